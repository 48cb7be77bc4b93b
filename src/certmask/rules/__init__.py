"""Rules turn votes into decisions and certificates; one file each, none of them sees a network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from certmask.rules.registry import AGGREGATE_CLASSES, REGISTER

if TYPE_CHECKING:
    from certmask.rules.aggregates import Aggregate as Aggregate
    from certmask.rules.aggregates import LabelMajority as LabelMajority
    from certmask.rules.aggregates import MeanLogProbability as MeanLogProbability
    from certmask.rules.aggregates import MeanProbability as MeanProbability
    from certmask.rules.band_masking import BandMasking as BandMasking
    from certmask.rules.hicert import HiCert as HiCert
    from certmask.rules.jury_detection import JuryDetection as JuryDetection
    from certmask.rules.jury_hicert import JuryHiCert as JuryHiCert
    from certmask.rules.jury_recovery import JuryRecovery as JuryRecovery
    from certmask.rules.minority_reports import MinorityReports as MinorityReports
    from certmask.rules.pair_detection import PairDetection as PairDetection
    from certmask.rules.patchcleanser import PatchCleanser as PatchCleanser
    from certmask.rules.published import Published as Published
    from certmask.rules.rule import Rule as Rule
    from certmask.rules.smoothing import Smoothing as Smoothing
    from certmask.rules.undefended import Undefended as Undefended

    AGGREGATES: dict[str, type[Aggregate]]
    RULES: dict[str, type[Rule]]

__all__ = ["AGGREGATES", "RULES", "Aggregate", "Rule", *dict.fromkeys(row.name for row in REGISTER), *AGGREGATE_CLASSES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Classes by name, and both registers by the members' own names; nothing is loaded before it is asked for."""
    if name == "RULES":
        return {row.rule.name: row.rule for row in REGISTER}
    if name == "AGGREGATES":
        aggregates = import_module("certmask.rules.aggregates")
        return {member.name: member for member in (getattr(aggregates, own) for own in AGGREGATE_CLASSES)}
    files = {row.name: row.file for row in REGISTER}
    files |= {"Rule": "rule", "Aggregate": "aggregates"} | dict.fromkeys(AGGREGATE_CLASSES, "aggregates")
    if name not in files:
        raise AttributeError(f"module 'certmask.rules' has no attribute {name!r}")
    return getattr(import_module(f"certmask.rules.{files[name]}"), name)
