"""Pair detection: what recovery from some patches certifies, it detects of twice as many."""

from __future__ import annotations

from certmask.rules.aggregates import Aggregate
from certmask.rules.jury import DEFAULT_THRESHOLDS, Thresholds
from certmask.rules.jury_detection import JuryDetection


class PairDetection(JuryDetection):
    """Answer ``c`` if ``R(t, u) = c`` for every two hypotheses of half as many patches, else raise an alert.

    Certificate: every ``R(t, u)`` is the label on the clean image. Patches in ``t`` and ``u`` leave it alone: no other
    class can be answered without an alert. It holds wherever ``JuryRecovery`` with the same levels and thresholds
    certifies half as many patches. The sets of places are those of jury detection; the thresholds are those of duels.
    """

    name = "pair detection"

    def __init__(
        self,
        aggregate: Aggregate | str | None = None,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        pooled: bool = False,
        margin: float = 0.0,
    ) -> None:
        super().__init__(aggregate, thresholds, pooled, margin)
