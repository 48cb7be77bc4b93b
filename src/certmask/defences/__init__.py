"""Defences: what they promise against a threat, what they answer, what they certify."""

from certmask.defences.deployed import Answer, Defence, Proof
from certmask.defences.masked import MaskedDefence, Outcome, defence_from, examine

__all__ = ["Answer", "Defence", "MaskedDefence", "Outcome", "Proof", "defence_from", "examine"]
