"""Covers of several levels, coarse to fine: large masks for a first look, small ones for a closer one."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from certmask.covers.cover import Cover, build
from certmask.covers.tilings import patchcleanser_cover, spread_cover
from certmask.errors import CoverError
from certmask.geometry import smallest_mask
from certmask.geometry.rectangles import bounding_boxes, fewest_masks
from certmask.threat import AnyRectangle, Patch, Size, Threat, checked_patch, checked_size, checked_threat

Level = int | tuple[int, int]
"""Masks per axis and, where a small jury judges every place, the fold along each axis."""

PER_AXIS: tuple[Level, ...] = (2, 3, 6, 12)
"""Masks per axis of the levels, where nobody says otherwise: 128, 96, 64 and 48 px for a 32 px patch on 224."""

SIZES_PER_AXIS: tuple[Level, ...] = (2, 3, 6, 6)
"""The same for patches of several sizes: masks for the largest, then each size's own."""

SHAPES_PER_AXIS: tuple[Level, ...] = (2, 3, 4, 6)
"""The same for rectangles of any shape, of which there are many."""

TWO_PER_AXIS: tuple[Level, ...] = (3, 6)
"""The same for two patches: of four masks of half the side together, nothing is left to be seen."""

MORE_PER_AXIS: tuple[Level, ...] = (3,)
"""The same for more patches, of which sets are many."""

STEPS = 56
"""Steps of the grid of masks along the shorter side, where nobody says otherwise: masks then share their edges."""


def zoom_cover(
    image: Size | int, patch: Threat | Size | int, levels: Sequence[Level] | None = None, align: int | None = None
) -> Cover:
    """Every place of the patch lies inside a mask of every level, from few large masks to many small ones.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it, any threat; a number stands for a square
    levels: masks per axis of each level, coarse to fine; ``(6, 2)`` is 6 per axis, 2×2 times, shifted
    align: what every edge of a mask is a multiple of, such as 16 for the tokens of a ViT; None takes a 56th
    """
    image, threat = checked_size(image, "image"), checked_threat(patch)
    threat.boxes_on(image)
    grid = max(min(image) // STEPS, 1) if align is None else checked_size(align, "align")[0]
    if levels is not None:
        return stacked_cover(_levels(image, threat, levels, grid))
    covers = _levels(image, threat, default_levels(threat), grid)
    return stacked_cover([cover for n, cover in enumerate(covers) if n == 0 or len(cover) > len(covers[n - 1])])


def default_levels(threat: Threat, rounds: int = 2) -> tuple[Level, ...]:
    """Masks per axis where nobody says otherwise, for a rule that judges so many hypotheses together at most."""
    if not isinstance(threat, Patch):
        return SIZES_PER_AXIS if threat.steps else SHAPES_PER_AXIS
    together = threat.count * rounds
    return PER_AXIS if together <= 2 else TWO_PER_AXIS if together <= 4 else MORE_PER_AXIS


def _levels(image: Size, threat: Threat, levels: Sequence[Level], align: int) -> list[Cover]:
    """One cover for every level."""
    if isinstance(threat, AnyRectangle):
        return _rectangle_levels(image, threat, levels, align)
    if threat.steps:
        return _size_levels(image, threat, levels, align)
    return [_level(image, checked_patch(threat), level, align) for level in levels]


def _size_levels(image: Size, threat: Threat, levels: Sequence[Level], align: int) -> list[Cover]:
    """Patches of every size share the masks of the largest, but for the last level, on which each size has its own."""
    largest, found = threat.steps[-1], []
    for number, level in enumerate(levels, start=1):
        shared = _level(image, largest, level, align)
        last = number == len(levels)
        covers = [_level(image, patch, level, align) if last else shared for patch in threat.steps]
        found.append(joined_cover(threat, threat.steps, covers))
    return found


def _rectangle_levels(image: Size, threat: AnyRectangle, levels: Sequence[Level], align: int) -> list[Cover]:
    """Masks as large as those for a square of the same area, of whatever shape, the fewest that will do.

    The last level says which rectangles share their masks; coarser levels let some of these share theirs.
    """
    height = min(isqrt(threat.area - 1) + 1, image[0])
    square = Patch(height, min(-(-threat.area // height), image[1]))
    areas = [_area(image, square, level, align) for level in levels]
    bounds = bounding_boxes(image, threat.boxes_on(image), areas[-1], align)
    boxes = [bound.box for bound in bounds]
    found = []
    for area in areas:
        shared = [_of_area(image, b.box, area, align) for b in bounding_boxes(image, boxes, area, align) for _ in b.own]
        found.append(joined_cover(threat, [Patch(*box) for box in boxes], shared))
    return found


def _area(image: Size, square: Patch, level: Level, align: int) -> int:
    """Pixels of a level's masks for a square patch."""
    if not isinstance(level, int):
        raise CoverError(f"expected levels of fold 1 for rectangles of any shape, got {level}")
    height, width = smallest_mask(image, square, (level, level), align)
    return height * width


def _of_area(image: Size, box: Size, area: int, align: int) -> Cover:
    """The fewest masks of at most so many pixels that cover every place of a box, as small as they can be then."""
    shape = fewest_masks(image, box, area, align)
    assert shape is not None
    mask = smallest_mask(image, Patch(*box), shape.per_axis, align)
    return patchcleanser_cover(image, Patch(*box), mask=mask, align=align)


def stacked_cover(covers: Sequence[Cover]) -> Cover:
    """One cover of several levels, from covers against one threat, coarse to fine, each made of complete grids."""
    if not covers:
        raise CoverError("expected at least one level, got none")
    for cover in covers:
        if (cover.image, cover.threat, cover.patches) != (covers[0].image, covers[0].threat, covers[0].patches):
            raise CoverError(f"expected levels of one image and patch, got {cover} beside {covers[0]}")
        if not cover.grids or cover.levels:
            raise CoverError(f"expected levels made of complete grids, got {cover}")
    first, last = covers[0], covers[-1]
    grids = [[cover.masks[number] for number in grid] for cover in covers for grid in cover.grids]
    align = min(cover.align for cover in covers)
    more = {"levels": tuple(covers), "patches": first.patches}
    stacked = build("zoom", first.image, first.threat, last.mask, (1, 1), grids, True, align, **more)
    assert len(stacked.cells)
    return stacked


def joined_cover(threat: Threat, patches: Sequence[Patch], covers: Sequence[Cover]) -> Cover:
    """One level against a threat: whatever it allows fits into one of the patches, each hidden by a cover of its own.

    The covers have equally many grids, and are made for their patch, or for one that contains it.
    """
    for patch, cover in zip(patches, covers, strict=True):
        if patch.height > cover.patch.height or patch.width > cover.patch.width or not cover.grids:
            raise CoverError(f"expected grids that cover {patch}, got {cover}")
        if (cover.image, len(cover.grids)) != (covers[0].image, len(covers[0].grids)):
            raise CoverError(f"expected parts of one image with equally many grids, got {cover} beside {covers[0]}")
    grids = [
        [cover.masks[number] for cover in covers for number in cover.grids[grid]]
        for grid in range(len(covers[0].grids))
    ]
    size = max((cover.mask for cover in covers), key=lambda mask: mask[0] * mask[1])
    more = {"patches": tuple(patches), "parts": tuple(covers)}
    return build("joined", covers[0].image, threat, size, (1, 1), grids, True, min(c.align for c in covers), **more)


def _level(image: Size, patch: Patch, level: Level, align: int) -> Cover:
    per_axis, fold = checked_size(level if isinstance(level, (tuple, list)) else (level, 1), "a level")
    mask = smallest_mask(image, patch, (per_axis, per_axis), align)
    if fold == 1:
        return patchcleanser_cover(image, patch, mask=mask, align=align)
    return spread_cover(image, patch, mask, fold, align)
