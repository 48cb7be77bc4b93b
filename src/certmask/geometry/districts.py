"""Districts: groups of patch locations that are covered by the same masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from certmask.geometry.shapes import Mask, Span, position_spans
from certmask.threat import Patch, Size

IntArray = npt.NDArray[np.int64]
BitArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Districts:
    """Every location belongs to exactly one district; ``juries[d]`` lists the masks that cover all of district ``d``.

    ``juries`` is ``[districts, largest jury]``, padded with -1; ``sizes`` counts its members;
    ``corner`` is the first location of each district and ``area`` the number of its locations, of every size of patch.
    """

    juries: IntArray
    sizes: IntArray
    corner: IntArray
    area: IntArray

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def all_juries(self) -> list[tuple[int, ...]]:
        """The jury of every district."""
        return [self.jury(district) for district in range(len(self))]

    def jury(self, district: int) -> tuple[int, ...]:
        """The masks that a patch anywhere in this district cannot influence."""
        return tuple(int(mask) for mask in self.juries[district, : self.sizes[district]])


def find_districts(image: Size, patches: Patch | Sequence[Patch], masks: Sequence[Mask]) -> Districts:
    """Group all patch locations, of one patch or of patches of several sizes, by their jury, exactly.

    Each axis is cut where some mask starts or stops covering; the cells between the cuts are merged by jury.
    """
    index: dict[bytes, int] = {}
    corner: list[tuple[int, int]] = []
    area: list[int] = []
    for patch in [patches] if isinstance(patches, Patch) else patches:
        for jury, at, locations in _cells_of(image, patch, masks):
            district = index.setdefault(jury, len(index))
            if district == len(area):
                corner.append(at)
                area.append(0)
            area[district] += locations
    juries, sizes = _members(list(index))
    return Districts(juries, sizes, np.array(corner, dtype=np.int64), np.array(area, dtype=np.int64))


def _cells_of(image: Size, patch: Patch, masks: Sequence[Mask]) -> Iterator[tuple[bytes, tuple[int, int], int]]:
    """The jury of every cell, packed, with its first location and the number of its locations."""
    n_y, n_x = patch.positions(image)
    cuts_y, bits_y = _axis_cells([position_spans(m.rows(image), patch.height) for m in masks], n_y)
    cuts_x, bits_x = _axis_cells([position_spans(m.columns(image), patch.width) for m in masks], n_x)
    packed = f"V{bits_x.shape[1]}"
    for (top, bottom), row in zip(pairwise(cuts_y), bits_y, strict=True):
        juries = np.bitwise_and(row, bits_x, order="C").view(packed)[:, 0].tolist()
        for jury, (left, right) in zip(juries, pairwise(cuts_x), strict=True):
            yield jury, (top, left), (bottom - top) * (right - left)


def _axis_cells(runs: Sequence[tuple[Span, ...]], positions: int) -> tuple[list[int], BitArray]:
    """Cut one axis at every run's ends; return the cuts and, per cell, the packed set of masks that cover it.

    Behind the masks stands one that covers nothing, so that a set is never without a byte.
    """
    distinct = {run: number for number, run in enumerate(dict.fromkeys(runs))}
    cuts = sorted({0, positions} | {end for run in distinct for pair in run for end in pair})
    cell = {cut: number for number, cut in enumerate(cuts)}
    covered = np.zeros((len(cuts) - 1, len(distinct) + 1), dtype=bool)
    for run, number in distinct.items():
        for low, high in run:
            covered[cell[low] : cell[high], number] = True
    which = np.array([*(distinct[run] for run in runs), len(distinct)], dtype=np.int64)
    return cuts, np.packbits(covered[:, which], axis=1)


def _members(packed: Sequence[bytes]) -> tuple[IntArray, IntArray]:
    """The masks of every jury, in rows padded with -1, and how many they are. Of many masks few are in one jury."""
    octets = np.frombuffer(b"".join(packed), dtype=np.uint8)
    filled = np.flatnonzero(octets != 0)
    which, bit = np.nonzero(np.unpackbits(octets[filled, None], axis=1))
    jury, octet = np.divmod(filled[which], len(octets) // len(packed))
    sizes = np.bincount(jury, minlength=len(packed))
    juries = np.full((len(packed), max(int(sizes.max()), 1)), -1, dtype=np.int64)
    juries[jury, np.arange(len(jury)) - (np.cumsum(sizes) - sizes)[jury]] = 8 * octet + bit
    return juries, sizes
