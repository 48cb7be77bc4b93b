"""Cells: rectangles of patch locations, each hidden as a whole by one mask of every grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from certmask.errors import GeometryError
from certmask.geometry.districts import IntArray
from certmask.geometry.shapes import Mask, Span, position_spans
from certmask.threat import Patch, Size

Run = tuple[Span, ...]


@dataclass(frozen=True, eq=False)
class Cells:
    """Every location belongs to exactly one cell; ``masks[c, g]`` is the mask of grid ``g`` that hides all of ``c``.

    ``boxes [cells, 4]`` are the cells' locations: first and last row, first and last column, the last ones excluded.
    They are locations of the patch of number ``patches[c]``, where there are patches of several sizes.
    """

    masks: IntArray
    boxes: IntArray
    patches: IntArray

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        """Those of several patches, numbered in this order."""
        masks, boxes = (np.concatenate([getattr(part, key) for part in parts]) for key in ("masks", "boxes"))
        return cls(masks, boxes, np.repeat(np.arange(len(parts)), [len(part) for part in parts]))

    def __len__(self) -> int:
        return len(self.masks)


def find_cells(image: Size, patch: Patch, grids: Sequence[Sequence[Mask]]) -> Cells:
    """The fewest cells, in rows and columns, of which each grid hides every one with a single mask.

    A grid is made of rows and columns of masks that do not wrap, else there is an error. Its numbers are those of its
    masks in the order given.
    """
    n_y, n_x = patch.positions(image)
    by_runs = [_by_runs(grid, image) for grid in grids]
    rows = [sorted({run for run, _ in grid}) for grid in by_runs]
    columns = [sorted({run for _, run in grid}) for grid in by_runs]
    for grid, own_rows, own_columns in zip(by_runs, rows, columns, strict=True):
        if set(grid) != {(row, column) for row in own_rows for column in own_columns}:
            raise GeometryError("expected grids of rows and columns of masks, got one with a gap")
    bands_y, cuts_y = _bands([[position_spans(run, patch.height) for run in own] for own in rows], n_y)
    bands_x, cuts_x = _bands([[position_spans(run, patch.width) for run in own] for own in columns], n_x)
    masks = [
        [by_runs[g][rows[g][row[g]], columns[g][column[g]]] for g in range(len(grids))]
        for row in bands_y
        for column in bands_x
    ]
    boxes = [(*cuts_y[y : y + 2], *cuts_x[x : x + 2]) for y in range(len(bands_y)) for x in range(len(bands_x))]
    return Cells(np.array(masks, dtype=np.int64), np.array(boxes, dtype=np.int64), np.zeros(len(boxes), dtype=np.int64))


def _by_runs(grid: Sequence[Mask], image: Size) -> dict[tuple[Run, Run], int]:
    """The number of each mask of a grid, by the rows and columns that it hides."""
    if any(mask.wraps for mask in grid):
        raise GeometryError("expected grids of masks that do not wrap, got one that does")
    return {mask.footprint(image): number for number, mask in reversed(list(enumerate(grid)))}


def _bands(grids: Sequence[Sequence[Run]], positions: int) -> tuple[list[list[int]], list[int]]:
    """Cut one axis into the fewest bands such that every grid covers each with one of its runs.

    Returns the number of that run, for every band and grid, and the cuts. From each cut on, the run that reaches
    farthest is taken in every grid, and the band ends where the first of them does.
    """
    bands: list[list[int]] = []
    cuts = [0]
    while cuts[-1] < positions:
        ends = [
            [max((high for low, high in run if low <= cuts[-1] < high), default=0) for run in runs] for runs in grids
        ]
        band = [max(range(len(own)), key=own.__getitem__) for own in ends]
        end = min(own[run] for own, run in zip(ends, band, strict=True))
        if end <= cuts[-1]:
            raise GeometryError(f"expected grids that cover every place, got none at {cuts[-1]} along an axis")
        bands.append(band)
        cuts.append(min(end, positions))
    return bands, cuts
