"""What of a picture a network is for: all but what masks hide, one band, or its cells one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from certmask.zoo.card import Card

MASKS, BANDS, CELLS = "masks", "bands", "cells"


class Network(NamedTuple):
    """The kind of a network, and the width of the bands that it was trained on."""

    kind: str = MASKS
    band: int | None = None


def network_of(card: Card) -> Network:
    """What a card says: BagNets have cells; what was trained on bands, or is told what is hidden, is for bands."""
    if card.architecture.startswith("bagnet"):
        return Network(CELLS)
    band = card.recipe.get("band")
    told = card.architecture.startswith(("told_", "smoothed_"))
    return Network(BANDS, band) if band or told else Network()
