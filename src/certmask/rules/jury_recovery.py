"""Jury recovery: districts that disagree duel, each pair judged by masks of both juries together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.geometry import IntArray
from certmask.passes import Ballot
from certmask.rules.aggregates import Aggregate
from certmask.rules.registry import DEFAULT_PAIRS, aggregate_of
from certmask.rules.rule import Asking, Rule
from certmask.rules.tournament import side_by_side, tournament
from certmask.rules.verdicts import FIRST_BLOCK, all_won, blocks, jury_claims, least_leads, verdicts
from certmask.votes import BoolArray, Votes

TABLE = 1 << 22
"""Up to so many passes, the pools of all pairs of districts are found once and kept."""


class JuryRecovery(Rule):
    """Every district claims ``D(t)``; claims that differ duel by ``R(t, u)``; the class of the survivors is answered.

    Certificate: on the clean image ``D(t)`` and ``R(t, u)`` are the label for all districts ``t ≠ u``. A patch in ``t``
    leaves ``D(t)`` and every ``R(t, ·)`` alone, so district ``t`` never loses a duel and the survivors agree with it.
    ``pairs="all"`` pools every mask of one jury with every mask of the other, ``"aligned"`` only masks of one grid.
    """

    name = "jury recovery"
    guarantee = Guarantee.RECOVERY

    def __init__(
        self, pairs: str = DEFAULT_PAIRS, aggregate: Aggregate | str | None = None, margin: float = 0.0
    ) -> None:
        super().__init__(margin)
        if pairs not in ("all", "aligned"):
            raise CoverError(f"expected pairs to be 'all' or 'aligned', got {pairs!r}")
        self.pairs = pairs
        self.aggregate = aggregate_of(aggregate)
        self.unit = self.aggregate.unit

    def check(self, cover: Cover) -> None:
        if self.pairs == "aligned" and not cover.grids:
            raise CoverError(f"expected a cover of complete grids for aligned pairs, got {cover}: take pairs='all'")

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        claims = yield from self.claims(votes)
        return (yield from side_by_side(map(tournament, claims), partial(self._outcomes, votes)))

    def _outcomes(self, votes: Votes, pictures: IntArray, opponents: IntArray) -> Asking[IntArray]:
        """``R(t, u)`` of each picture's pair of districts, ``[n]``."""
        common = self.pair_pools(votes.ballot, opponents)[:, None]
        yield votes.ask(common, pictures)
        return np.asarray(verdicts(self.aggregate, votes, common, pictures)[:, 0])

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        juries = votes.ballot.juries[None]
        yield votes.ask(votes.ballot.jurors[None])
        proved = all_won(self.aggregate, votes, juries, labels, self.margin)
        if not proved.any():
            return proved
        leads = least_leads(self.aggregate, votes, juries, labels, self.margin)
        opponents = all_pairs(leads.shape[1])
        order = {n: weakest_first(leads[n], opponents) for n in np.flatnonzero(proved)}
        for block in blocks(len(opponents), FIRST_BLOCK):
            left = np.flatnonzero(proved)
            if not len(left):
                break
            common = self._pools_of(votes.ballot, opponents, np.stack([order[n][block] for n in left]))
            yield votes.ask(common, left)
            proved[left] = all_won(self.aggregate, votes, common, labels[left], self.margin, left)
        return proved

    def _pools_of(self, ballot: Ballot, opponents: IntArray, chosen: IntArray) -> IntArray:
        """The pools of some of all pairs of districts, ``[..., members]``; from a table where it is not too large."""
        members = sum(part.shape[1] ** 2 for part in self._juries(ballot.cover))
        if len(opponents) * members > TABLE:
            return self.pair_pools(ballot, opponents[chosen])
        if self.pairs not in ballot.pools:
            ballot.pools[self.pairs] = self.pair_pools(ballot, opponents)
        return ballot.pools[self.pairs][chosen]

    def pair_pools(self, ballot: Ballot, districts: IntArray) -> IntArray:
        """The two-mask passes pooled for pairs of districts ``[..., 2]``: ``[..., members]``, filled up with -1."""
        return np.concatenate([_pooled(ballot, part, districts) for part in self._juries(ballot.cover)], axis=-1)

    def _juries(self, cover: Cover) -> tuple[IntArray, ...]:
        """The juries whose masks are combined: of one grid each, or all together."""
        return cover.grid_juries if self.pairs == "aligned" else (cover.districts.juries,)

    def most_pairs(self, cover: Cover) -> int:
        return cover.pairs(self.pairs)

    def hypotheses(self, cover: Cover) -> list[tuple[int, ...]]:
        return cover.districts.all_juries

    def claims(self, votes: Votes) -> Asking[IntArray]:
        return (yield from jury_claims(self.aggregate, votes))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "pairs": self.pairs, "aggregate": self.aggregate.name}


def _pooled(ballot: Ballot, juries: IntArray, districts: IntArray) -> IntArray:
    """Every mask of one district's jury with every mask of the other's, ``[..., members]``, filled up with -1."""
    pool = ballot.pairs(juries[districts[..., 0], :, None], juries[districts[..., 1], None, :])
    return pool.reshape(*districts.shape[:-1], -1)


def all_pairs(count: int) -> IntArray:
    """Every pair ``i < j`` of ``count`` things, ``[n, 2]``."""
    return np.stack(np.triu_indices(count, k=1), axis=1).astype(np.int64)


def weakest_first(leads: npt.NDArray[np.floating[Any]], pairs: IntArray) -> IntArray:
    """The pairs by rising lead of their two members: where a certificate fails, it fails early."""
    return np.argsort(leads[pairs[:, 0]] + leads[pairs[:, 1]], kind="stable")
