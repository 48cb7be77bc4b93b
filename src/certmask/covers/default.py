"""A cover for those who do not want to choose one: docs/results.md has the measurement that it is taken from."""

from __future__ import annotations

from certmask.covers.cover import Cover
from certmask.covers.tilings import spread_cover
from certmask.geometry import reach, smallest_mask
from certmask.threat import Patch, Size, checked_size

FOLD = (2, 2)
PER_AXIS = (4, 4)
SINGLE_PER_AXIS = (6, 6)
"""Masks per axis where one mask per place is asked for."""


def default_mask(image: Size, patch: Patch, fold: Size = FOLD) -> Size:
    """The mask for a fold: the smallest of which 4 per axis cover every place once, 6 per axis for a single fold."""
    return smallest_mask(image, patch, SINGLE_PER_AXIS if fold == (1, 1) else PER_AXIS)


def default_fold(patch: Patch, mask: Size) -> Size:
    """2×2, or less where a mask does not cover two neighbouring places."""
    s_y, s_x = reach(patch, mask)
    return min(FOLD[0], s_y), min(FOLD[1], s_x)


def default_cover(image: Size | int, patch: Patch) -> Cover:
    """Every place 2×2 times, for ``JuryRecovery("aligned")``: 81 masks and at most 881 passes against 32 px on 224."""
    image = checked_size(image, "image")
    mask = default_mask(image, patch)
    return spread_cover(image, patch, mask, default_fold(patch, mask))
