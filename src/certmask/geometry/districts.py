"""Districts: groups of patch locations that are covered by the same masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    members = [_members(key, len(masks)) for key in index]
    sizes = np.array([len(jury) for jury in members], dtype=np.int64)
    juries = np.full((len(members), max(int(sizes.max()), 1)), -1, dtype=np.int64)
    for district, own in enumerate(members):
        juries[district, : len(own)] = own
    return Districts(juries, sizes, np.array(corner, dtype=np.int64), np.array(area, dtype=np.int64))


def _cells_of(image: Size, patch: Patch, masks: Sequence[Mask]) -> Iterator[tuple[bytes, tuple[int, int], int]]:
    """The jury of every cell, packed, with its first location and the number of its locations."""
    n_y, n_x = patch.positions(image)
    cuts_y, bits_y = _axis_cells([position_spans(m.rows(image), patch.height) for m in masks], n_y)
    cuts_x, bits_x = _axis_cells([position_spans(m.columns(image), patch.width) for m in masks], n_x)
    for y, row in enumerate(bits_y):
        for x, jury in enumerate(row & bits_x):
            locations = (cuts_y[y + 1] - cuts_y[y]) * (cuts_x[x + 1] - cuts_x[x])
            yield jury.tobytes(), (int(cuts_y[y]), int(cuts_x[x])), int(locations)


def _axis_cells(runs: Sequence[tuple[Span, ...]], positions: int) -> tuple[IntArray, BitArray]:
    """Cut one axis at every run's ends; return the cuts and, per cell, the packed set of masks that cover it."""
    distinct = {run: number for number, run in enumerate(dict.fromkeys(runs))}
    ends = {0, positions} | {end for run in distinct for pair in run for end in pair}
    cuts = np.array(sorted(ends), dtype=np.int64)
    covered = np.zeros((len(cuts) - 1, len(distinct)), dtype=bool)
    for run, number in distinct.items():
        for low, high in run:
            covered[np.searchsorted(cuts, low) : np.searchsorted(cuts, high), number] = True
    which = np.array([distinct[run] for run in runs], dtype=np.int64)
    return cuts, np.packbits(covered[:, which], axis=1)


def _members(packed: bytes, masks: int) -> IntArray:
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=masks)
    return np.flatnonzero(bits).astype(np.int64)
