"""A reference that shares no code with certmask: it paints the pixels of masks and looks at every location."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.optimize import Bounds, LinearConstraint, milp

BoolArray = npt.NDArray[np.bool_]
Size = tuple[int, int]


class Rectangle(Protocol):
    """What is read from a mask: its five fields, no method."""

    @property
    def top(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def wraps(self) -> bool: ...


def paint(mask: Rectangle, image: Size) -> BoolArray:
    """The pixels that the mask blanks out."""
    canvas = np.zeros(image, dtype=bool)
    y, x = np.arange(mask.top, mask.top + mask.height), np.arange(mask.left, mask.left + mask.width)
    if mask.wraps:
        y, x = y % image[0], x % image[1]
    else:
        y, x = y[(y >= 0) & (y < image[0])], x[(x >= 0) & (x < image[1])]
    canvas[np.ix_(y, x)] = True
    return canvas


def patch_inside(canvas: BoolArray, location: Size, patch: Size) -> bool:
    """Whether every pixel of the patch is a painted pixel of the image."""
    (top, left), (bottom, right) = location, (location[0] + patch[0], location[1] + patch[1])
    if top < 0 or left < 0 or bottom > canvas.shape[0] or right > canvas.shape[1]:
        return False
    return bool(canvas[top:bottom, left:right].all())


def hidden(canvases: BoolArray, patch: Size) -> BoolArray:
    """The same for every location inside the image, row by row, of canvases ``[n, height, width]``: ``[n, y, x]``."""
    return np.asarray(sliding_window_view(canvases, patch, axis=(1, 2)).all(axis=(3, 4)))


def locations(image: Size, patch: Size) -> list[Size]:
    """Every top-left corner of a patch inside the image, row by row."""
    return [(y, x) for y in range(image[0] - patch[0] + 1) for x in range(image[1] - patch[1] + 1)]


def juries(
    image: Size, patch: Size, masks: Sequence[Rectangle], at: Iterable[Size] | None = None
) -> dict[Size, tuple[int, ...]]:
    """The masks that cover each location (all locations, or those of ``at``), row by row."""
    canvases = np.stack([paint(mask, image) for mask in masks])
    if at is None:
        every = hidden(canvases, patch)
        return {(y, x): tuple(np.flatnonzero(every[:, y, x]).tolist()) for y, x in locations(image, patch)}
    return {
        (y, x): tuple(np.flatnonzero(canvases[:, y : y + patch[0], x : x + patch[1]].all(axis=(1, 2))).tolist())
        for y, x in at
    }


def folds(image: Size, patch: Size, masks: Sequence[Rectangle], copies: Sequence[int]) -> dict[Size, int]:
    """How many placed masks, copies counted, cover each location."""
    return {location: sum(copies[number] for number in jury) for location, jury in juries(image, patch, masks).items()}


def positions(mask: Rectangle, image: Size, patch: Size, axis: int) -> frozenset[int]:
    """The positions along one axis at which the mask hides a patch, wherever it hides one along the other."""
    canvas = paint(mask, image)
    return frozenset(place[axis] for place in locations(image, patch) if patch_inside(canvas, place, patch))


def fewest_bands(grids: Sequence[Iterable[frozenset[int]]], length: int) -> int:
    """The fewest runs that ``length`` positions can be cut into such that every grid hides each with one mask.

    ``grids`` are the positions that each mask of a grid hides. Every way to cut is tried, shortest prefixes first.
    """
    fewest = [0]
    for stop in range(1, length + 1):
        bands = [
            fewest[start] + 1
            for start in range(stop)
            if all(any(hidden.issuperset(range(start, stop)) for hidden in grid) for grid in grids)
        ]
        fewest.append(min(bands))
    return fewest[-1]


class Rect(NamedTuple):
    """A mask of the integer program's own."""

    top: int
    left: int
    height: int
    width: int
    wraps: bool


@lru_cache(maxsize=8)
def candidates(image: Size, patch: Size, mask: Size, wraps: bool) -> tuple[list[Rect], BoolArray]:
    """Every mask that touches the image, one of each kind, and which locations it covers: ``[mask, location]``."""
    tops = range(image[0]) if wraps else range(1 - mask[0], image[0])
    lefts = range(image[1]) if wraps else range(1 - mask[1], image[1])
    masks = [Rect(top, left, *mask, wraps) for top in tops for left in lefts]
    covered = hidden(np.stack([paint(rect, image) for rect in masks]), patch).reshape(len(masks), -1)
    different, kept = np.unique(covered, axis=0, return_index=True)
    return [masks[number] for number in kept], different


def cheapest_cover(image: Size, patch: Size, mask: Size, k: int, wraps: bool = False) -> list[Rect]:
    """A k-fold cover with the fewest masks, from an integer program over all starts; a mask may be taken repeatedly."""
    masks, covered = candidates(image, patch, mask, wraps)
    answer = milp(
        c=np.ones(len(masks)),
        integrality=np.ones(len(masks)),
        constraints=LinearConstraint(covered.T.astype(float), lb=k),
        bounds=Bounds(0, k),
        options={"mip_rel_gap": 0.0},
    )
    assert answer.success, answer.message
    return [rect for rect, times in zip(masks, answer.x, strict=True) for _ in range(round(times))]
