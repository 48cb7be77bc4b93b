"""Defences: what they promise against a threat, what they answer, what they certify, and why."""

from certmask.defences.explanation import Explanation, explain
from certmask.defences.masked import MaskedDefence, defence_from
from certmask.defences.protocol import AnyDefence, Outcome, engine_covers, examine

__all__ = [
    "AnyDefence",
    "Explanation",
    "MaskedDefence",
    "Outcome",
    "defence_from",
    "engine_covers",
    "examine",
    "explain",
]
