"""Which masks cover a patch at a corner, and how much of it the others hide, for many corners at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.geometry.shapes import Run

Bits = npt.NDArray[np.bool_]


class Juries:
    """Looks up juries of single corners; a mask's pixels are its rows times its columns, so two axes are enough."""

    def __init__(self, cover: Cover) -> None:
        self.cover = cover
        image = cover.image
        self._rows = _prefix_sums([m.rows(image) for m in cover.masks], image[0])
        self._columns = _prefix_sums([m.columns(image) for m in cover.masks], image[1])

    def hidden(self, corners: IntArray) -> IntArray:
        """How many pixels of a patch at each corner ``[n, 2]`` each mask hides, ``[n, masks]``."""
        height, width = self.cover.patch.size
        rows = self._rows[:, corners[:, 0] + height] - self._rows[:, corners[:, 0]]
        columns = self._columns[:, corners[:, 1] + width] - self._columns[:, corners[:, 1]]
        return np.asarray((rows * columns).T)

    def members(self, corners: IntArray) -> Bits:
        """Which masks cover a patch at each corner, ``[n, masks]``: those that a patch there cannot influence."""
        height, width = self.cover.patch.size
        return np.asarray(self.hidden(corners) == height * width)

    def folds(self, corners: IntArray) -> IntArray:
        """How many placed masks cover each corner, ``[n]``."""
        return np.asarray(self.members(corners) @ np.array(self.cover.copies))


def _prefix_sums(runs: Sequence[Sequence[Run]], length: int) -> npt.NDArray[Any]:
    """Per mask, the number of its pixels before each position of one axis, ``[masks, length + 1]``."""
    marks = np.zeros((len(runs), length + 1), dtype=np.int64)
    for row, pieces in zip(marks, runs, strict=True):
        for low, high in pieces:
            row[low + 1 : high + 1] = 1
    return np.cumsum(marks, axis=1)
