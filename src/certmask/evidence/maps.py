"""Maps of local evidence, and which of their cells a patch touches. Whole numbers, so sums do not depend on order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from certmask.errors import GeometryError, VoteError
from certmask.evidence.field import BoolArray, Field
from certmask.geometry import IntArray
from certmask.threat import Patch, Size, checked_patch

ONE = 2**24
"""Evidence of 1.0: numbers are kept as whole multiples of ``1 / ONE``."""
LARGEST = 2.0**12
"""Evidence is clipped to it: sums over all cells then fit into 53 bits, and are exact as float64, too."""
MOST_CELLS = 2**14
AT_ONCE = 1 << 24
"""Numbers that are computed in one step, unless a single picture takes more."""


@dataclass(frozen=True, eq=False)
class EvidenceMaps:
    """What the cells of a map say for each class, ``values [pictures, rows, columns, classes]`` in units of 1 / ONE.

    ``fields`` are those of the rows and of the columns: a cell's evidence depends on no pixel outside its own.
    """

    values: Tensor
    fields: tuple[Field, Field]

    def __post_init__(self) -> None:
        cells = self.fields[0].cells, self.fields[1].cells
        if self.values.ndim != 4 or self.values.shape[1:3] != cells or cells[0] * cells[1] > MOST_CELLS:
            raise VoteError(
                f"expected evidence [pictures, {cells[0]}, {cells[1]}, classes] of at most {MOST_CELLS} cells, got "
                f"{list(self.values.shape)}"
            )
        if self.values.dtype != torch.int64:
            raise VoteError(f"expected whole numbers, int64, got {self.values.dtype}")
        if max(-self.range[0], self.range[1]) > LARGEST * ONE:
            raise VoteError(f"expected whole numbers of at most {LARGEST:g} · {ONE}, got larger ones")

    @classmethod
    def rounded(cls, numbers: Tensor, fields: tuple[Field, Field], nothing: float) -> EvidenceMaps:
        """Evidence as a network gives it, ``[pictures, rows, columns, classes]``; NaN counts as ``nothing``.

        A patch may bring NaN and infinity about: they become numbers that the attacker might have chosen as well.
        """
        plain = numbers.detach().double().nan_to_num(nan=nothing)
        return cls((plain.clamp(-LARGEST, LARGEST) * ONE).round().long(), fields)

    @cached_property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest number; 0 where there is none."""
        if not self.values.numel():
            return 0, 0
        low, high = self.values.aminmax()
        return int(low), int(high)

    def portions(self, sets: Hypotheses) -> list[slice]:
        """The pictures in parts of which all that a rule computes fits into memory; a picture is never cut."""
        cells, columns = self.values.shape[1] * self.values.shape[2], len(sets.columns)
        windows = len(sets.window_rows) * len(sets.window_columns)
        numbers = max(max(cells, len(sets.rows) * columns, windows) * self.classes, columns * windows)
        step = max(AT_ONCE // max(numbers, 1), 1)
        return [slice(start, start + step) for start in range(0, len(self.values), step)]

    @property
    def image(self) -> Size:
        return self.fields[0].extent, self.fields[1].extent

    @property
    def classes(self) -> int:
        return int(self.values.shape[3])


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Sets of cells that a patch may touch, and windows: each is some rows × some columns of the map.

    A set is ``rows[a] × columns[b]`` (``[sets, cells]``, true for its members), a window ``window_rows[v] ×
    window_columns[w]``. Every set lies inside a window, else there is an error.
    """

    rows: BoolArray
    columns: BoolArray
    window_rows: BoolArray
    window_columns: BoolArray

    def __post_init__(self) -> None:
        for axis, sets, windows in (
            ("rows", self.rows, self.window_rows),
            ("columns", self.columns, self.window_columns),
        ):
            if not inside(sets, windows).any(axis=1).all():
                raise GeometryError(f"expected windows that contain whatever a patch touches, got smaller {axis}")

    @property
    def sizes(self) -> IntArray:
        """How many cells each set has, ``[rows, columns]``."""
        return np.outer(self.rows.sum(axis=1), self.columns.sum(axis=1)).astype(np.int64)


def hypotheses(patch: Patch | Size | int, fields: tuple[Field, Field]) -> Hypotheses:
    """What certificates look at: the largest sets of cells that a patch touches somewhere, and windows for them.

    A set inside another one is left out. A patch that touches ``A ⊆ B`` can do nothing that an attacker of ``B``
    cannot: he leaves ``B ∖ A`` as it is. So an answer that no attack on ``B`` changes, none on ``A`` does.
    """
    rows, columns = (largest(sets) for sets in touched(patch, fields))
    return Hypotheses(rows, columns, windows(rows, fields[0].wraps), windows(columns, fields[1].wraps))


def touched(patch: Patch | Size | int, fields: tuple[Field, Field]) -> tuple[BoolArray, BoolArray]:
    """``A(t)``, exactly: a patch with its top left corner in ``(y, x)`` touches the cells ``rows[y] × columns[x]``.

    A cell outside has a field without a pixel of the patch.
    """
    patch = checked_patch(patch)
    patch.positions((fields[0].extent, fields[1].extent))
    return _touched(patch.height, fields[0]), _touched(patch.width, fields[1])


def _touched(length: int, field: Field) -> BoolArray:
    """The cells with a pixel in ``[x, x + length)``, for every ``x``."""
    before = np.pad(np.cumsum(field.sees, axis=1), ((0, 0), (1, 0)))
    return np.asarray((before[:, length:] > before[:, :-length]).T)


def largest(sets: BoolArray) -> BoolArray:
    """The distinct sets that lie in no other one."""
    distinct = np.unique(sets, axis=0)
    return np.asarray(distinct[inside(distinct, distinct).sum(axis=1) == 1])


def windows(sets: BoolArray, wraps: bool) -> BoolArray:
    """All runs of as many consecutive cells as it takes that every set lies inside one; around the end if it wraps."""
    cells = sets.shape[1]
    for length in range(max(int(sets.sum(axis=1).max()), 1), cells):
        starts = np.arange(cells if wraps else cells - length + 1)
        runs = np.zeros((len(starts), cells), dtype=bool)
        runs[np.arange(len(starts))[:, None], (starts[:, None] + np.arange(length)) % cells] = True
        if inside(sets, runs).any(axis=1).all():
            return runs
    return np.ones((1, cells), dtype=bool)


def inside(sets: BoolArray, others: BoolArray) -> BoolArray:
    """Whether each set ``[sets, cells]`` lies inside each of the others: ``[sets, others]``."""
    return np.asarray(sets.astype(np.float64) @ ~others.T == 0)


def beside(values: Tensor, numbers: IntArray | BoolArray) -> Tensor:
    """Numbers on the device of values."""
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(values.device)


def outside_of(values: Tensor, sets: Hypotheses) -> Tensor:
    """What values ``[pictures, rows, columns, classes]`` sum up to without each set, ``[pictures, a, b, classes]``."""
    return values.sum(dim=(1, 2))[:, None, None] - sums(values, sets.rows, sets.columns)


def sums(values: Tensor, rows: BoolArray, columns: BoolArray) -> Tensor:
    """Of values ``[pictures, rows, columns, …]`` over every ``rows[a] × columns[b]``: ``[pictures, a, b, …]``.

    Exact for whole numbers on every device: those whose sums stay below 2⁵³ are summed as float64 without rounding.
    """
    over_rows = torch.tensordot(beside(values, rows).double(), values.double(), ([1], [1]))
    over_both: Tensor = torch.tensordot(beside(values, columns).double(), over_rows, ([1], [2]))
    return over_both.movedim(2, 0).transpose(1, 2).to(values.dtype)
