"""Masks on the device: every footprint of all covers in a run, once, as rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.geometry import IntArray
from certmask.geometry.shapes import Span
from certmask.threat import Size

Footprint = tuple[tuple[Span, ...], tuple[Span, ...]]


class MaskTable:
    """The distinct masks of several covers of one image size, numbered; the last row stands for "no mask".

    The row before it, of number ``probe``, hides the middle of a fixed picture, whatever the covers are.
    Mask ``i`` blanks out pixel ``(y, x)`` where ``rows[i, y] & columns[i, x]``, wrapped or not.
    """

    def __init__(self, covers: Sequence[Cover], image: Size, device: torch.device) -> None:
        for cover in covers:
            if cover.image != image:
                raise CoverError(
                    f"expected a cover of the model's input {image[0]}×{image[1]}, "
                    f"got one for {cover.image[0]}×{cover.image[1]}"
                )
        different = dict.fromkeys(m.footprint(image) for cover in covers for m in cover.masks)
        self._number: dict[Any, int] = {footprint: number for number, footprint in enumerate(different)}
        self._image = image
        self.probe = len(self._number)
        self.rows = _indicator([*(f[0] for f in self._number), _middle(image[0])], image[0]).to(device)
        self.columns = _indicator([*(f[1] for f in self._number), _middle(image[1])], image[1]).to(device)

    def __len__(self) -> int:
        return len(self._number)

    @property
    def footprints(self) -> list[Footprint]:
        """The pixels of every mask, in order: runs of rows and runs of columns."""
        return list(self._number)

    def index(self, cover: Cover) -> IntArray:
        """Where each mask of a cover stands in this table."""
        return np.array([self._number[m.footprint(self._image)] for m in cover.masks], dtype=np.int64)

    def numbers(self, listed: Iterable[Any]) -> IntArray:
        """Where masks with these pixels, as a file lists them, stand in this table; -1 for one that is not here."""
        return np.array([self._number.get(footprint_from(mask), -1) for mask in listed], dtype=np.int64)


def hidden_by(rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels ``[n, height, width]`` under any mask of a set, from its ``rows [n, masks, height]`` and ``columns``."""
    return (rows[:, :, :, None] & columns[:, :, None, :]).any(dim=1)


def _middle(length: int) -> tuple[Span]:
    return ((length // 4, length - length // 4),)


def footprint_from(listed: Any) -> Footprint:
    """A footprint whose tuples a file has made into lists."""
    rows, columns = listed
    return tuple(map(tuple, rows)), tuple(map(tuple, columns))


def _indicator(runs: Sequence[Sequence[tuple[int, int]]], length: int) -> Tensor:
    table = torch.zeros(len(runs) + 1, length, dtype=torch.bool)
    for row, pieces in zip(table, runs, strict=False):
        for low, high in pieces:
            row[low:high] = True
    return table
