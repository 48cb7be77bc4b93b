"""Few boxes and few masks for rectangles of many shapes: exact choices by small dynamic programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from certmask.errors import GeometryError
from certmask.threat import Size


class Shape(NamedTuple):
    """The masks that cover every place of a box: their largest size, and how many there are along each axis."""

    mask: Size
    per_axis: Size

    @property
    def masks(self) -> int:
        return self.per_axis[0] * self.per_axis[1]


class Bound(NamedTuple):
    """A run of boxes that share masks: the first and the last of them, and the smallest box that contains all."""

    first: int
    last: int
    box: Size

    @property
    def own(self) -> range:
        """The numbers of the boxes."""
        return range(self.first, self.last + 1)


def fewest_masks(image: Size, box: Size, area: int, align: int = 1) -> Shape | None:
    """The shape of at most ``area`` pixels of which fewest masks cover every place of the box; None where none does.

    Edges are multiples of ``align``. Of equal ones the squarest.
    """
    found: list[Shape] = []
    for height in _sides(image[0], align):
        width = max((side for side in _sides(image[1], align) if side * height <= area), default=0)
        per_axis = _per_axis(image[0], box[0], height, align), _per_axis(image[1], box[1], width, align)
        if all(per_axis):
            found.append(Shape((height, width), per_axis))
    return min(found, key=lambda shape: (shape.masks, max(shape.mask)), default=None)


@lru_cache(maxsize=64)
def _sides(length: int, align: int) -> tuple[int, ...]:
    return (*range(align, length, align), length)


def _per_axis(length: int, box: int, mask: int, align: int) -> int:
    """Masks along one axis that cover every place, each a multiple of ``align`` after the one before; 0: none do."""
    reached, positions = mask - box + 1, length - box + 1
    if reached >= positions:
        return 1
    stride = align * (reached // align)
    return 1 - (reached - positions) // stride if stride > 0 else 0


def bounding_boxes(image: Size, boxes: Sequence[Size], area: int, align: int = 1) -> list[Bound]:
    """Each of the boxes, of rising height and falling width, lies inside one of these; no other choice of runs takes
    fewer masks of at most ``area`` pixels in all. An error where no choice will do."""
    best: list[tuple[int, list[Bound]] | None] = [(0, [])]
    for last in range(len(boxes)):
        chosen: tuple[int, list[Bound]] | None = None
        for first, before in enumerate(best):
            box = boxes[last][0], boxes[first][1]
            shape = fewest_masks(image, box, area, align) if before and box[0] * box[1] <= area else None
            if before and shape and (chosen is None or before[0] + shape.masks < chosen[0]):
                chosen = before[0] + shape.masks, [*before[1], Bound(first, last, box)]
        best.append(chosen)
    found = best[-1]
    if found is None:
        raise GeometryError(
            f"expected masks that cover every box from {boxes[0][0]}×{boxes[0][1]} to {boxes[-1][0]}×{boxes[-1][1]}, "
            f"got none of {area} pixels whose edges are multiples of {align}"
        )
    return found[1]
