"""Rules turn votes into decisions and certificates; one file each, none of them sees a network."""

from certmask.rules.aggregates import AGGREGATES, Aggregate, LabelMajority, MeanLogProbability, MeanProbability
from certmask.rules.jury_detection import JuryDetection
from certmask.rules.jury_recovery import JuryRecovery
from certmask.rules.minority_reports import MinorityReports
from certmask.rules.patchcleanser import PatchCleanser
from certmask.rules.published import Published
from certmask.rules.rule import Rule
from certmask.rules.undefended import Undefended

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Undefended, Published, JuryDetection, MinorityReports, JuryRecovery, PatchCleanser)
}

__all__ = [
    "AGGREGATES",
    "RULES",
    "Aggregate",
    "JuryDetection",
    "JuryRecovery",
    "LabelMajority",
    "MeanLogProbability",
    "MeanProbability",
    "MinorityReports",
    "PatchCleanser",
    "Published",
    "Rule",
    "Undefended",
]
