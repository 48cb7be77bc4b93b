"""Two defences on the same images: how often exactly one of them holds, and whether that can be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.report.run_files import RunFile

Key = tuple[str, int, str]
"""Name, label and pixel hash: one photo."""

Threat = tuple[Guarantee, tuple[int, ...], tuple[int, ...]]
"""Only certificates of one guarantee against one patch on one input size are compared."""


@dataclass(frozen=True)
class Contest:
    """Certificates of two defences on the images they share."""

    guarantee: Guarantee
    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def images(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def chance(self) -> float:
        """How likely a split at least this uneven is if neither is better."""
        return mcnemar(self.only_first, self.only_second)


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided McNemar test: a fair coin thrown once per image on which the two differ."""
    if min(gained, lost) < 0:
        raise ResultsError(f"expected counts of at least 0, got {gained} and {lost}")
    thrown = gained + lost
    tail = sum(comb(thrown, heads) for heads in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << thrown))


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's correction for having looked at several comparisons, in the order given."""
    adjusted = [0.0] * len(chances)
    largest = 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=lambda n: chances[n])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[number]))
        adjusted[number] = largest
    return adjusted


def contests(runs: Sequence[RunFile]) -> list[Contest]:
    """Every pair of defences with one guarantee and one threat, within and across runs, where images are shared."""
    groups: dict[Threat, list[tuple[str, Mapping[Key, bool]]]] = {}
    for run in runs:
        for defence in run.defences:
            if run.guarantee(defence) is not Guarantee.NONE:
                title = defence if len(runs) == 1 else f"{run.name}: {defence}"
                groups.setdefault(_threat(run, defence), []).append((title, _certified(run, defence)))
    found = [_contest(threat[0], *a, *b) for threat, group in groups.items() for a, b in combinations(group, 2)]
    return [contest for contest in found if contest.images]


def _threat(run: RunFile, defence: str) -> Threat:
    cover = run.defences[defence]["cover"]
    return run.guarantee(defence), tuple(cover["patch"]), tuple(cover["image"])


def _certified(run: RunFile, defence: str) -> dict[Key, bool]:
    """Which photos are certified; where no pixel hash is on record, the run's own hash keeps them apart."""
    return {
        (row["image"], row["label"], str(row.get("input_sha256", run.digest))): row["defences"][defence]["certified"]
        for row in run.rows
    }


def _contest(
    guarantee: Guarantee, first: str, one: Mapping[Key, bool], second: str, other: Mapping[Key, bool]
) -> Contest:
    shared = [(one[key], other[key]) for key in one if key in other]
    counts = (shared.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False)))
    return Contest(guarantee, first, second, *counts)
