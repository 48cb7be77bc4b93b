"""Defences: what they promise against a threat, what they answer, what they certify, and why."""

from certmask.defences.explanation import Explanation, explain
from certmask.defences.local import LocalDefence
from certmask.defences.masked import MaskedDefence
from certmask.defences.photo import PhotoDefence, by_photo, photo_defence_from
from certmask.defences.protocol import AnyDefence, Outcome, engine_covers, examine
from certmask.defences.rebuilt import RuledDefence, defence_from

__all__ = [
    "AnyDefence",
    "Explanation",
    "LocalDefence",
    "MaskedDefence",
    "Outcome",
    "PhotoDefence",
    "RuledDefence",
    "by_photo",
    "defence_from",
    "engine_covers",
    "examine",
    "explain",
    "photo_defence_from",
]
