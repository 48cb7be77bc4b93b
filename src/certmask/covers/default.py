"""Covers for those who do not want to choose one: docs/results.md has the measurement that they are taken from."""

from __future__ import annotations

from certmask.covers.cover import Cover
from certmask.covers.register import TILINGS
from certmask.covers.tilings import spread_cover
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import minimum_masks, reach, smallest_mask
from certmask.threat import Patch, Size, checked_patch, checked_size

DEFAULT_FOLD = (2, 2)
PER_AXIS = (4, 4)
SINGLE_PER_AXIS = (6, 6)
"""Masks per axis where one mask per place is asked for."""

MOST_MASKS = 200_000


def default_patch(image: Size) -> Patch:
    """A seventh of the model's input along each side: 32×32 on 224×224."""
    return Patch(*(max(1, round(side / 7)) for side in image))


def default_mask(image: Size, patch: Patch, fold: Size = DEFAULT_FOLD) -> Size:
    """The mask for a fold: the smallest of which 4 per axis cover every place once, 6 per axis for a single fold."""
    return smallest_mask(image, patch, SINGLE_PER_AXIS if fold == (1, 1) else PER_AXIS)


def default_fold(patch: Patch, mask: Size) -> Size:
    """2×2, or less where a mask does not cover two neighbouring places."""
    s_y, s_x = reach(patch, mask)
    return min(DEFAULT_FOLD[0], s_y), min(DEFAULT_FOLD[1], s_x)


def default_cover(image: Size | int, patch: Patch | Size | int) -> Cover:
    """Every place 2×2 times, for ``JuryRecovery()``: 81 masks and at most 881 passes against 32 px on 224.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    """
    image, patch = checked_size(image, "image"), checked_patch(patch)
    mask = default_mask(image, patch)
    return spread_cover(image, patch, mask, default_fold(patch, mask))


def mask_and_fold(
    image: Size, patch: Patch, tiling: str, mask: Size | None, fold: Size | None, many: bool
) -> tuple[Size, Size]:
    """What was asked for; what was left open is chosen: several masks per place where ``many`` are worth it."""
    many = many and tiling == "spread"
    wanted = fold if fold is not None else DEFAULT_FOLD if many else (1, 1)
    size = mask if mask is not None else default_mask(image, patch, wanted)
    return size, default_fold(patch, size) if many and fold is None else wanted


def suited_cover(
    image: Size,
    patch: Patch,
    tiling: str = "spread",
    mask: Size | None = None,
    fold: Size | None = None,
    *,
    many: bool = True,
) -> Cover:
    """The cover that is asked for, as far as it is; an error if it has more masks than anybody could want."""
    if tiling not in TILINGS:
        raise CertmaskError(f"expected tiling to be one of {', '.join(TILINGS)}, got {tiling!r}")
    size, folds = mask_and_fold(image, patch, tiling, mask, fold, many)
    count = minimum_masks(image, patch, size, folds[0] * folds[1])
    if count > MOST_MASKS:
        raise CoverError(f"expected a cover of at most {MOST_MASKS:,} masks, got {count:,} or more: take a larger mask")
    if tiling == "patchcleanser":
        if folds != (1, 1):
            raise CoverError(f"expected fold 1x1 for the patchcleanser tiling, got {folds[0]}x{folds[1]}")
        return TILINGS[tiling](image, patch, mask=size)
    return TILINGS[tiling](image, patch, size, folds)
