"""Shares with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from certmask.errors import ResultsError


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
