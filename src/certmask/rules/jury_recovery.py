"""Jury recovery: places that disagree duel, each pair judged by votes that hide both."""

from __future__ import annotations

from functools import partial
from typing import Any

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate
from certmask.rules.jury import DEFAULT_THRESHOLDS, JuryRule, Thresholds, checked_thresholds, described
from certmask.rules.registry import DEFAULT_PAIRS
from certmask.rules.rule import Asking, Proofs
from certmask.rules.tournament import LAST_RESORTS, checked_resort, recovered
from certmask.votes import Votes

DEFAULT_CLAIM_THRESHOLDS = (0.9, 0.2, 0.1)
"""The leads that settle a claim before the last level, where nobody says otherwise."""


class JuryRecovery(JuryRule):
    """Answer the claim ``D(t)`` of a place that is unbeaten: ``R(t, u) = D(t)`` for every ``u`` with another claim.

    Certificate: on the clean image ``D(t)`` and ``R(t, u)`` are the label for all places ``t ≠ u``. A patch in ``t``
    leaves ``D(t)`` and every ``R(t, ·)`` alone, so ``t`` is unbeaten, and whoever else is has its claim. Where nobody
    of another class is, the ``last_resort`` answers: the ``bare`` picture, or the ``majority`` of claims.
    ``thresholds`` are those of duels, ``claim_thresholds`` those of claims, which are sure sooner.
    ``pairs="all"`` pools every mask of one jury with every mask of the other, ``"aligned"`` only masks of one grid.
    """

    name = "jury recovery"
    guarantee = Guarantee.RECOVERY
    most_hypotheses = 4_000
    """More cannot duel with each other before their tables fill a memory."""

    def __init__(
        self,
        pairs: str = DEFAULT_PAIRS,
        aggregate: Aggregate | str | None = None,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        pooled: bool = False,
        claim_thresholds: Thresholds = DEFAULT_CLAIM_THRESHOLDS,
        last_resort: str = LAST_RESORTS[0],
        margin: float = 0.0,
    ) -> None:
        super().__init__(aggregate, thresholds, pooled, margin)
        if pairs not in ("all", "aligned"):
            raise CoverError(f"expected pairs to be 'all' or 'aligned', got {pairs!r}")
        self.pairs = pairs
        self._claim_thresholds = checked_thresholds(claim_thresholds)
        self.last_resort = checked_resort(last_resort)

    @property
    def claim_thresholds(self) -> float | tuple[float, ...]:
        return self._claim_thresholds

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        found = yield from self.judged_places(votes)
        pictures = votes.store.pictures
        claims, leads = found.labels.reshape(pictures, -1), found.leads.reshape(pictures, -1)
        return (yield from recovered(votes, claims, leads, partial(self.duels, votes), self.last_resort))

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        return (yield from self.prover(votes, labels).recovery(self.levels(votes)))

    def most_passes(self, cover: Cover) -> int:
        return cover.sets(2 * cover.threat.count) if cover.levels else len(cover) + cover.pairs(self.pairs)

    def describe(self) -> dict[str, Any]:
        told = {"pairs": self.pairs, "claim_thresholds": described(self.claim_thresholds)}
        return {**super().describe(), **told, "last_resort": self.last_resort}
