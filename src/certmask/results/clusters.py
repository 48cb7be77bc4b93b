"""Two defences over several runs: runs that share photos are no independent witnesses, so photos are what varies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt

from certmask.errors import ResultsError
from certmask.results.file import Row
from certmask.results.run import Run

Holds = Callable[[Row, str], bool]
"""Whether something holds for a defence on the photo of a row."""


def is_certified(row: Row, defence: str) -> bool:
    return row["defences"][defence]["certified"] is True


def is_right(row: Row, defence: str) -> bool:
    """Answered rightly and without an alert."""
    outcome = row["defences"][defence]
    return bool(outcome["label"] == row["label"] and not outcome["alert"])


def split(run: Run, first: str, second: str, holds: Holds = is_certified) -> tuple[int, int]:
    """On how many photos it holds for the first defence alone, and for the second alone."""
    sides = [(holds(row, first), holds(row, second)) for row in run.rows]
    return sides.count((True, False)), sides.count((False, True))


@dataclass(frozen=True)
class Difference:
    """How far the first is ahead in percentage points, half of its 95 % interval, and over how many photos."""

    points: float
    half: float
    photos: int

    def __str__(self) -> str:
        return f"{self.points:+.1f} ± {self.half:.1f}".replace("-", "−")


def difference(
    runs: Iterable[Run], first: str, second: str, holds: Holds = is_certified, unless: frozenset[str] = frozenset()
) -> Difference:
    """The mean of first minus second over all rows, clustered by photo (normal); photos in ``unless`` are left out."""
    apart: dict[tuple[str, int], list[int]] = {}
    for run in runs:
        for row in run.rows:
            if row["image"] not in unless:
                photo = apart.setdefault((row["image"], row["label"]), [])
                photo.append(holds(row, first) - holds(row, second))
    if not apart:
        raise ResultsError(f"expected photos on which {first!r} and {second!r} can be compared, got none")
    rows = sum(map(len, apart.values()))
    mean = sum(map(sum, apart.values())) / rows
    error = sqrt(sum((sum(photo) - len(photo) * mean) ** 2 for photo in apart.values())) / rows
    return Difference(100 * mean, 196 * error, len(apart))
