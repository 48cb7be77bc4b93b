"""Shares with their uncertainty, and two defences on the same images: how often exactly one holds, and by chance?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, sqrt
from statistics import NormalDist

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.results.run import Run
from certmask.threat import Size, Threat


@dataclass(frozen=True)
class Share:
    """``count`` out of ``of`` images."""

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of or self.of < 1:
            raise ResultsError(f"expected a share of at least one image, got {self.count} of {self.of}")

    @property
    def value(self) -> float:
        """The share from 0 to 1."""
        return self.count / self.of

    @property
    def percent(self) -> str:
        """In percent with one place, halves rounded up from the counts."""
        tenths = (2000 * self.count + self.of) // (2 * self.of)
        return f"{tenths // 10}.{tenths % 10}"

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share."""
        return wilson(self.count, self.of)


def wilson(count: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval: every share ``p`` with ``|count/of − p| ≤ z·√(p·(1−p)/of)``."""
    if not 0 < confidence < 1:
        raise ResultsError(f"expected a confidence between 0 and 1, got {confidence}")
    share = Share(count, of).value
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = 1 + z * z / of
    centre = (share + z * z / (2 * of)) / spread
    half = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / spread
    return 0.0 if count == 0 else centre - half, 1.0 if count == of else centre + half


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


@dataclass(frozen=True)
class Contest:
    """Certificates of two defences on the images they share; ``adjusted`` is Holm's chance among all contests."""

    guarantee: Guarantee
    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int
    adjusted: float = 1.0

    @property
    def images(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def chance(self) -> float:
        """How likely a split at least this uneven is if neither is better."""
        return mcnemar(self.only_first, self.only_second)


Photo = tuple[str, int, str]
"""Name, label and pixel hash."""

Promise = tuple[Guarantee, Threat, Size]
"""Only certificates of one guarantee against one threat on one input size are compared."""


def contests(runs: Sequence[Run]) -> list[Contest]:
    """Every pair of defences with one guarantee and one threat, within and across runs, where images are shared."""
    groups: dict[Promise, list[tuple[str, Mapping[Photo, bool]]]] = {}
    for run in runs:
        for defence in run.defences:
            if run.guarantee(defence) is not Guarantee.NONE:
                title = defence if len(runs) == 1 else f"{run.name}: {defence}"
                promise = run.guarantee(defence), run.threat(defence), run.image(defence)
                groups.setdefault(promise, []).append((title, _certified(run, defence)))
    found = [_contest(promise[0], *a, *b) for promise, group in groups.items() for a, b in combinations(group, 2)]
    found = [contest for contest in found if contest.images]
    adjusted = holm([contest.chance for contest in found])
    return [replace(contest, adjusted=chance) for contest, chance in zip(found, adjusted, strict=True)]


def _certified(run: Run, defence: str) -> dict[Photo, bool]:
    """Which photos are certified; where no pixel hash is on record, the run's own hash keeps them apart."""
    return {
        (row["image"], row["label"], str(row.get("input_sha256", run.digest))): row["defences"][defence]["certified"]
        for row in run.rows
    }


def _contest(
    guarantee: Guarantee, first: str, one: Mapping[Photo, bool], second: str, other: Mapping[Photo, bool]
) -> Contest:
    shared = [(one[photo], other[photo]) for photo in one if photo in other]
    counts = (shared.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False)))
    return Contest(guarantee, first, second, *counts)
