"""certmask: image classifiers that are provably safe against adversarial patches.

Names are imported when first used, so that geometry and planning work without loading torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certmask.adapters import BlackBox as BlackBox
    from certmask.attacks import AdaptiveAttack as AdaptiveAttack
    from certmask.attacks import Attack as Attack
    from certmask.attacks import Budget as Budget
    from certmask.attacks import PatchAttack as PatchAttack
    from certmask.attacks import RandomSearch as RandomSearch
    from certmask.attacks import Target as Target
    from certmask.attacks import UniversalPatch as UniversalPatch
    from certmask.attacks import worst_case as worst_case
    from certmask.certificate import Certificate as Certificate
    from certmask.certificate import Decision as Decision
    from certmask.certificate import Guarantee as Guarantee
    from certmask.certification import certify_run as certify_run
    from certmask.classifier import Classifier as Classifier
    from certmask.covers import Cover as Cover
    from certmask.covers import band_cover as band_cover
    from certmask.covers import custom_cover as custom_cover
    from certmask.covers import default_cover as default_cover
    from certmask.covers import minimal_cover as minimal_cover
    from certmask.covers import offset_cover as offset_cover
    from certmask.covers import patchcleanser_cover as patchcleanser_cover
    from certmask.covers import replicated_cover as replicated_cover
    from certmask.covers import spread_cover as spread_cover
    from certmask.covers import stacked_cover as stacked_cover
    from certmask.covers import zoom_cover as zoom_cover
    from certmask.data import load_dataset as load_dataset
    from certmask.defences import Explanation as Explanation
    from certmask.defences import LocalDefence as LocalDefence
    from certmask.defences import MaskedDefence as MaskedDefence
    from certmask.deployed import Answer as Answer
    from certmask.deployed import Defence as Defence
    from certmask.deployed import Evaluation as Evaluation
    from certmask.deployed import Proof as Proof
    from certmask.deployed import certify as certify
    from certmask.engine import Engine as Engine
    from certmask.errors import CertmaskError as CertmaskError
    from certmask.evidence import ClippedBagNet as ClippedBagNet
    from certmask.evidence import LocalClassifier as LocalClassifier
    from certmask.evidence import RobustMasking as RobustMasking
    from certmask.evidence import receptive_field as receptive_field
    from certmask.geometry import Mask as Mask
    from certmask.results.columns import figures as figures
    from certmask.results.run import read_run as read_run
    from certmask.rules import HiCert as HiCert
    from certmask.rules import JuryDetection as JuryDetection
    from certmask.rules import JuryRecovery as JuryRecovery
    from certmask.rules import LabelMajority as LabelMajority
    from certmask.rules import MeanLogProbability as MeanLogProbability
    from certmask.rules import MeanProbability as MeanProbability
    from certmask.rules import MinorityReports as MinorityReports
    from certmask.rules import PairDetection as PairDetection
    from certmask.rules import PatchCleanser as PatchCleanser
    from certmask.rules import Published as Published
    from certmask.rules import Rule as Rule
    from certmask.rules import Smoothing as Smoothing
    from certmask.rules import Undefended as Undefended
    from certmask.threat import AnyRectangle as AnyRectangle
    from certmask.threat import Patch as Patch
    from certmask.threat import PhotoPatch as PhotoPatch
    from certmask.threat import Threat as Threat
    from certmask.threat import UpTo as UpTo
    from certmask.tuning import load_defence as load_defence
    from certmask.votes import Votes as Votes
    from certmask.zoo import load_classifier as load_classifier
    from certmask.zoo.timm_import import import_timm as import_timm

__version__ = "0.2.0"

_ROOMS = {
    "adapters": ["BlackBox"],
    "attacks": [
        "AdaptiveAttack",
        "Attack",
        "Budget",
        "PatchAttack",
        "RandomSearch",
        "Target",
        "UniversalPatch",
        "worst_case",
    ],
    "certificate": ["Certificate", "Decision", "Guarantee"],
    "certification": ["certify_run"],
    "classifier": ["Classifier"],
    "covers": [
        "Cover",
        "band_cover",
        "custom_cover",
        "default_cover",
        "minimal_cover",
        "offset_cover",
        "patchcleanser_cover",
        "replicated_cover",
        "spread_cover",
        "stacked_cover",
        "zoom_cover",
    ],
    "data": ["load_dataset"],
    "defences": ["Explanation", "LocalDefence", "MaskedDefence"],
    "deployed": ["Answer", "Defence", "Evaluation", "Proof", "certify"],
    "engine": ["Engine"],
    "errors": ["CertmaskError"],
    "evidence": ["ClippedBagNet", "LocalClassifier", "RobustMasking", "receptive_field"],
    "geometry": ["Mask"],
    "results.columns": ["figures"],
    "results.run": ["read_run"],
    "rules": [
        "HiCert",
        "JuryDetection",
        "JuryRecovery",
        "LabelMajority",
        "MeanLogProbability",
        "MeanProbability",
        "MinorityReports",
        "PairDetection",
        "PatchCleanser",
        "Published",
        "Rule",
        "Smoothing",
        "Undefended",
    ],
    "threat": ["AnyRectangle", "Patch", "PhotoPatch", "Threat", "UpTo"],
    "tuning": ["load_defence"],
    "votes": ["Votes"],
    "zoo": ["load_classifier"],
    "zoo.timm_import": ["import_timm"],
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_ROOM_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'certmask' has no attribute {name!r}")
    return getattr(import_module(f"certmask.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
