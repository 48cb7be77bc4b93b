"""Local evidence: cells that see little of a picture, rules that add up what they say, and what no patch can change.

Names are imported when first used, so that the command line can name the rules without loading torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certmask.evidence.averaging import Averaging as Averaging
    from certmask.evidence.clipped import ClippedBagNet as ClippedBagNet
    from certmask.evidence.field import Field as Field
    from certmask.evidence.field import band_fields as band_fields
    from certmask.evidence.field import receptive_field as receptive_field
    from certmask.evidence.maps import EvidenceMaps as EvidenceMaps
    from certmask.evidence.maps import Hypotheses as Hypotheses
    from certmask.evidence.maps import hypotheses as hypotheses
    from certmask.evidence.maps import touched as touched
    from certmask.evidence.network import LocalClassifier as LocalClassifier
    from certmask.evidence.robust_masking import RobustMasking as RobustMasking
    from certmask.evidence.rule import EvidenceRule as EvidenceRule

_FILES = {
    "averaging": ["Averaging"],
    "clipped": ["ClippedBagNet"],
    "field": ["Field", "band_fields", "receptive_field"],
    "maps": ["EvidenceMaps", "Hypotheses", "hypotheses", "touched"],
    "network": ["LocalClassifier"],
    "robust_masking": ["RobustMasking"],
    "rule": ["EvidenceRule"],
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted(_FILE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'certmask.evidence' has no attribute {name!r}")
    return getattr(import_module(f"certmask.evidence.{_FILE_OF[name]}"), name)
