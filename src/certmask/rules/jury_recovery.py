"""Jury recovery: districts that disagree duel, each pair judged by masks of both juries together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, MeanProbability
from certmask.rules.rule import Asking, Rule, jury_passes, needed
from certmask.rules.tournament import tournament
from certmask.rules.verdicts import FIRST_BLOCK, all_won, blocks, least_leads, verdicts
from certmask.votes import PAD, Votes


class JuryRecovery(Rule):
    """Every district claims ``D(t)``; claims that differ duel by ``R(t, u)``; the class of the survivors is answered.

    Certificate: on the clean image ``D(t)`` and ``R(t, u)`` are the label for all districts ``t ≠ u``. A patch in ``t``
    leaves ``D(t)`` and every ``R(t, ·)`` alone, so district ``t`` never loses a duel and the survivors agree with it.
    ``pairs="all"`` pools every mask of one jury with every mask of the other, ``"aligned"`` only masks of one grid.
    """

    name = "jury recovery"
    guarantee = Guarantee.RECOVERY

    def __init__(self, pairs: str = "all", aggregate: Aggregate | None = None, margin: float = 0.0) -> None:
        super().__init__(margin)
        if pairs not in ("all", "aligned"):
            raise CoverError(f"expected pairs to be 'all' or 'aligned', got {pairs!r}")
        self.pairs = pairs
        self.aggregate = aggregate or MeanProbability()

    def check(self, cover: Cover) -> None:
        if self.pairs == "aligned" and not cover.grids:
            raise CoverError(f"expected a cover made of complete grids for aligned pairs, got {cover}")

    def deciding(self, votes: Votes) -> Asking[Decision]:
        pools = jury_passes(votes.cover)
        yield needed(pools)
        claims = verdicts(self.aggregate, votes, pools)

        def duels(opponents: IntArray) -> Asking[IntArray]:
            common = self.pair_passes(votes.cover, opponents)
            yield needed(common)
            return verdicts(self.aggregate, votes, common)

        return (yield from tournament(claims, duels))

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        pools = jury_passes(votes.cover)
        yield needed(pools)
        if not all_won(self.aggregate, votes, pools, label, self.margin):
            return False
        leads = least_leads(self.aggregate, votes, pools, label, self.margin)
        for opponents in blocks(weakest_first(leads), FIRST_BLOCK):
            common = self.pair_passes(votes.cover, opponents)
            yield needed(common)
            if not all_won(self.aggregate, votes, common, label, self.margin):
                return False
        return True

    def pair_passes(self, cover: Cover, districts: IntArray) -> IntArray:
        """The two-mask passes pooled for pairs of districts ``[n, 2]``: ``[n, members, 2]``, padded."""
        juries = cover.grid_juries if self.pairs == "aligned" else (cover.districts.juries,)
        return np.concatenate([_pooled(part, districts) for part in juries], axis=1)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "pairs": self.pairs, "aggregate": self.aggregate.name}


def _pooled(juries: IntArray, districts: IntArray) -> IntArray:
    """Every mask of one district's jury with every mask of the other's, ``[n, members, 2]``, padded."""
    pairs = np.broadcast_arrays(juries[districts[:, 0], :, None], juries[districts[:, 1], None, :])
    pool = np.stack(pairs, axis=-1).reshape(len(districts), -1, 2)
    pool[(pool < 0).any(axis=-1)] = PAD
    return pool


def all_pairs(count: int) -> IntArray:
    """Every pair ``i < j`` of ``count`` things, ``[n, 2]``."""
    return np.stack(np.triu_indices(count, k=1), axis=1).astype(np.int64)


def weakest_first(leads: npt.NDArray[np.floating[Any]]) -> IntArray:
    """Every pair ``i < j``, those with the smallest leads first: where a certificate fails, it fails early."""
    pairs = all_pairs(len(leads))
    return np.asarray(pairs[np.argsort(leads[pairs].sum(axis=1), kind="stable")])
