"""Local evidence: cells that see little of a picture, rules that add up what they say, and what no patch can change."""

from certmask.evidence.clipped import ClippedBagNet, clipped_evidence
from certmask.evidence.field import Field, band_fields, receptive_field
from certmask.evidence.maps import EvidenceMaps, Hypotheses, hypotheses, touched
from certmask.evidence.robust_masking import RobustMasking, positive_evidence
from certmask.evidence.rule import EvidenceRule

__all__ = [
    "ClippedBagNet",
    "EvidenceMaps",
    "EvidenceRule",
    "Field",
    "Hypotheses",
    "RobustMasking",
    "band_fields",
    "clipped_evidence",
    "hypotheses",
    "positive_evidence",
    "receptive_field",
    "touched",
]
