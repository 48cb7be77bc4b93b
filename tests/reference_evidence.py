"""Rules on local evidence once more, from their definitions: plain Python, sets of cells, fractions, loops.

Evidence is ``map[cell][class]``, a cell a pair of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

Cell = tuple[int, int]
Cells = frozenset[Cell]
Map = Mapping[Cell, Sequence[int]]


def interval(size: int, stride: int, start: int, cell: int, extent: int, wraps: bool) -> set[int]:
    """The pixels that a cell sees along one axis."""
    pixels = [start + cell * stride + offset for offset in range(size)]
    return {pixel % extent for pixel in pixels} if wraps else {pixel for pixel in pixels if 0 <= pixel < extent}


def touched(patch: Cell, rows: Sequence[set[int]], columns: Sequence[set[int]], image: Cell) -> list[Cells]:
    """The cells that see a pixel of the patch, for every place of it; rows and columns: what each cell sees."""
    return [
        frozenset(
            (i, j)
            for i, seen_rows in enumerate(rows)
            for j, seen_columns in enumerate(columns)
            if any(y <= pixel < y + patch[0] for pixel in seen_rows)
            and any(x <= pixel < x + patch[1] for pixel in seen_columns)
        )
        for y in range(image[0] - patch[0] + 1)
        for x in range(image[1] - patch[1] + 1)
    ]


def largest(sets: Iterable[Cells]) -> list[Cells]:
    """Those that lie in no other one."""
    distinct = set(sets)
    return [one for one in distinct if not any(one < other for other in distinct)]


def windows(shape: Cell, cells: Cell, wraps: bool) -> list[Cells]:
    """All boxes of this shape; columns go on at the other end if they wrap."""
    lefts = range(cells[1] if wraps else cells[1] - shape[1] + 1)
    return [
        frozenset((top + i, (left + j) % cells[1]) for i in range(shape[0]) for j in range(shape[1]))
        for top in range(cells[0] - shape[0] + 1)
        for left in lefts
    ]


def total(evidence: Map, label: int, cells: Iterable[Cell]) -> int:
    return sum(evidence[cell][label] for cell in cells)


def first_of_largest(scores: Sequence[int]) -> int:
    return max(range(len(scores)), key=lambda label: (scores[label], -label))


def clipped_answer(evidence: Map, classes: int) -> int:
    return first_of_largest([total(evidence, label, evidence) for label in range(classes)])


def clipped_certifies(evidence: Map, classes: int, label: int, sets: Iterable[Cells], one: int, margin: int) -> bool:
    """Outside each set the label is ahead of each class by more than two for each of its cells, and the margin."""
    return all(
        total(evidence, label, set(evidence) - cells) - total(evidence, other, set(evidence) - cells)
        > 2 * one * len(cells) + margin
        for cells in sets
        for other in range(classes)
        if other != label
    )


def masked_score(evidence: Map, label: int, boxes: Sequence[Cells], share: Fraction) -> int:
    """What is left of a class without its strongest window, if that holds more than the share of it."""
    strongest = max(total(evidence, label, box) for box in boxes)
    whole = total(evidence, label, evidence)
    return whole - strongest if strongest > share * whole else whole


def masked_answer(evidence: Map, classes: int, boxes: Sequence[Cells], share: Fraction) -> int:
    return first_of_largest([masked_score(evidence, label, boxes, share) for label in range(classes)])


def masked_certifies(
    evidence: Map, classes: int, label: int, sets: Iterable[Cells], boxes: Sequence[Cells], share: Fraction, margin: int
) -> bool:
    """The least that the label keeps exceeds the most that any class can have."""
    for cells in sets:
        outside = set(evidence) - cells
        own = total(evidence, label, outside)
        lost = max(
            (
                total(evidence, label, box - cells)
                for box in boxes
                if box & cells or total(evidence, label, box) + margin > share * own
            ),
            default=0,
        )
        for other in range(classes):
            lead = (1 - share) * (own - lost) - total(evidence, other, outside)
            if other != label and not (lead > margin or (lead == margin and label < other)):
                return False
    return True
