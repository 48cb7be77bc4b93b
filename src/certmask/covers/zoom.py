"""Covers of several levels, coarse to fine: large masks for a first look, small ones for a closer one."""

from __future__ import annotations

from collections.abc import Sequence

from certmask.covers.cover import Cover, build
from certmask.covers.tilings import patchcleanser_cover, spread_cover
from certmask.errors import CoverError
from certmask.geometry import smallest_mask
from certmask.threat import Patch, Size, checked_patch, checked_size

Level = int | tuple[int, int]
"""Masks per axis and, where a small jury judges every place, the fold along each axis."""

PER_AXIS: tuple[Level, ...] = (2, 3, 6, 12)
"""Masks per axis of the levels, where nobody says otherwise: 128, 96, 64 and 48 px for a 32 px patch on 224."""

STEPS = 56
"""Steps of the grid of masks along the shorter side, where nobody says otherwise: masks then share their edges."""


def zoom_cover(
    image: Size | int, patch: Patch | Size | int, levels: Sequence[Level] | None = None, align: int | None = None
) -> Cover:
    """Every place of the patch lies inside a mask of every level, from few large masks to many small ones.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    levels: masks per axis of each level, coarse to fine; ``(6, 2)`` is 6 per axis, 2×2 times, shifted
    align: what every edge of a mask is a multiple of, such as 16 for the tokens of a ViT; None takes a 56th
    """
    image, patch = checked_size(image, "image"), checked_patch(patch)
    grid = max(min(image) // STEPS, 1) if align is None else checked_size(align, "align")[0]
    if levels is not None:
        return stacked_cover([_level(image, patch, level, grid) for level in levels])
    covers = [_level(image, patch, level, grid) for level in PER_AXIS]
    return stacked_cover([cover for n, cover in enumerate(covers) if n == 0 or len(cover) > len(covers[n - 1])])


def stacked_cover(covers: Sequence[Cover]) -> Cover:
    """One cover of several levels, from covers against one patch, coarse to fine, each made of complete grids."""
    if not covers:
        raise CoverError("expected at least one level, got none")
    for cover in covers:
        if (cover.image, cover.patch) != (covers[0].image, covers[0].patch):
            raise CoverError(f"expected levels of one image and patch, got {cover} beside {covers[0]}")
        if not cover.grids or cover.levels:
            raise CoverError(f"expected levels made of complete grids, got {cover}")
    first, last = covers[0], covers[-1]
    grids = [[cover.masks[number] for number in grid] for cover in covers for grid in cover.grids]
    align = min(cover.align for cover in covers)
    stacked = build("zoom", first.image, first.patch, last.mask, (1, 1), grids, True, align, tuple(covers))
    assert len(stacked.cells)
    return stacked


def _level(image: Size, patch: Patch, level: Level, align: int) -> Cover:
    per_axis, fold = checked_size(level if isinstance(level, (tuple, list)) else (level, 1), "a level")
    mask = smallest_mask(image, patch, (per_axis, per_axis), align)
    if fold == 1:
        return patchcleanser_cover(image, patch, mask=mask, align=align)
    return spread_cover(image, patch, mask, fold, align)
