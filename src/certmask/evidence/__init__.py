"""Local evidence: cells that see little of a picture, rules that add up what they say, and what no patch can change."""

from certmask.evidence.averaging import Averaging
from certmask.evidence.clipped import ClippedBagNet
from certmask.evidence.field import Field, band_fields, receptive_field
from certmask.evidence.maps import EvidenceMaps, Hypotheses, hypotheses, touched
from certmask.evidence.robust_masking import RobustMasking
from certmask.evidence.rule import EvidenceRule

__all__ = [
    "Averaging",
    "ClippedBagNet",
    "EvidenceMaps",
    "EvidenceRule",
    "Field",
    "Hypotheses",
    "RobustMasking",
    "band_fields",
    "hypotheses",
    "receptive_field",
    "touched",
]
