"""Defences: what they promise against a threat, what they answer, what they certify, and why."""

from certmask.defences.deployed import Answer, Defence, Explanation, Proof, explain
from certmask.defences.masked import MaskedDefence, defence_from
from certmask.defences.protocol import AnyDefence, Outcome, engine_covers, examine

__all__ = [
    "Answer",
    "AnyDefence",
    "Defence",
    "Explanation",
    "MaskedDefence",
    "Outcome",
    "Proof",
    "defence_from",
    "engine_covers",
    "examine",
    "explain",
]
