"""What both jury rules have in common: places are judged by the votes that hide them, level by level."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from math import comb
from typing import Any, ClassVar, NamedTuple

import numpy as np

from certmask.certificate import Place
from certmask.covers import Cover
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, Leads
from certmask.rules.levels import Levels, PoolsOf, jury_levels, place_sets
from certmask.rules.proof import Prover
from certmask.rules.registry import DEFAULT_PAIRS, aggregate_of
from certmask.rules.rule import Asking, Rule
from certmask.rules.verdicts import LAST, Pools, judged, settled
from certmask.votes import BoolArray, Votes

Thresholds = float | Sequence[float]
DEFAULT_THRESHOLDS = (0.95, 0.5, 0.2)
"""The leads that settle a question before the last level, where nobody says otherwise: almost certain under the largest
masks, clear under smaller ones."""


class Verdicts(NamedTuple):
    """Verdicts on places or pairs of them: the class, the level that settled it, and its lead there, ``[n]`` each."""

    labels: IntArray
    levels: IntArray
    leads: Leads

    @classmethod
    def empty(cls, count: int) -> Verdicts:
        return cls(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.empty(count))


class JuryRule(Rule):
    """Every place ``t`` claims ``D(t)``, the verdict of the first level whose lead exceeds that level's threshold.

    The last level decides in any case. Every vote that takes part, also in whether to go on, hides ``t``: a patch there
    changes neither. ``thresholds`` are those of all levels but the last, or one for all; in units of the aggregate's
    lead, on average over a pool's votes. Of more than there are levels, those of the coarsest are left out.
    Where votes are ``pooled``, a level's pool has those of coarser levels, too.
    """

    pairs = DEFAULT_PAIRS
    most_hypotheses: ClassVar[int] = 200_000
    """More sets of places would not fit into memory beside those of other pictures."""

    def __init__(
        self,
        aggregate: Aggregate | str | None = None,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        pooled: bool = False,
        margin: float = 0.0,
    ) -> None:
        super().__init__(margin)
        self.aggregate = aggregate_of(aggregate)
        self.unit = self.aggregate.unit
        self.thresholds = checked_thresholds(thresholds)
        if not isinstance(pooled, bool):
            raise CertmaskError(f"expected pooled to be True or False, got {pooled!r}")
        self.pooled = pooled

    def check(self, cover: Cover) -> None:
        if (cover.threat.count > 1 or cover.threat.steps) and not cover.levels:
            raise CoverError(f"expected a cover of levels against {cover.threat}, such as zoom_cover, got {cover}")
        hypotheses = comb(len(cover.cells), cover.threat.count) if cover.levels else len(cover.districts)
        if hypotheses > self.most_hypotheses:
            raise CoverError(
                f"expected levels that leave at most {self.most_hypotheses:,} hypotheses to {self.name}, "
                f"got {hypotheses:,}: take fewer masks per axis"
            )
        levels = len(jury_levels(cover, self.pairs))
        for thresholds in (self.thresholds, self.claim_thresholds):
            if isinstance(thresholds, tuple) and len(thresholds) < levels - 1:
                raise CoverError(
                    f"expected {levels - 1} thresholds for {levels} levels, got {len(thresholds)}: one for each level "
                    "but the last, or one number for all"
                )

    def levels(self, votes: Votes) -> Levels:
        """Which votes judge which places; found once for each ballot."""
        key, ballot = (self.pairs, self.pooled), votes.ballot
        if key not in ballot.levels:
            cover = ballot.cover
            judging = jury_levels(cover, self.pairs)
            ballot.levels[key] = Levels(ballot, judging, cover.boxes, cover.place_patches, self.pooled)
        found: Levels = votes.ballot.levels[key]
        return found

    @property
    def claim_thresholds(self) -> float | tuple[float, ...]:
        """The thresholds of claims."""
        return self.thresholds

    def claims(self, votes: Votes) -> Asking[IntArray]:
        found = yield from self.judged_places(votes)
        return found.labels.reshape(votes.store.pictures, -1)

    def places(self, votes: Votes) -> Asking[list[tuple[Place, ...]]]:
        levels, (claims, at, _) = self.levels(votes), (yield from self.judged_places(votes))
        count, leads = levels.hypotheses, np.empty(len(claims))
        for level in np.unique(at).tolist():
            (own,) = np.nonzero(at == level)
            pools = Pools(own // count, levels.claim_pools(own % count, level))
            leads[own] = judged(self.aggregate, votes, pools).low / pools.sizes
        said = zip(claims.tolist(), leads.tolist(), at.tolist(), strict=True)
        found = [levels.place(n % count, *one) for n, one in enumerate(said)]
        return [tuple(found[n : n + count]) for n in range(0, len(found), count)]

    def judged_places(self, votes: Votes) -> Asking[Verdicts]:
        """``D(t)`` of every place of every picture, ``[pictures · places]``."""
        levels = self.levels(votes)
        places = np.tile(np.arange(levels.hypotheses), votes.store.pictures)
        pictures = np.repeat(votes.everyone, levels.hypotheses)
        bars = bars_of(self.claim_thresholds, levels)
        return (yield from self._verdicts(votes, pictures, places, levels.claim_pools, bars))

    def duels(self, votes: Votes, pictures: IntArray, pairs: IntArray) -> Asking[IntArray]:
        """``R(t, u)`` of pairs of places ``[n, 2]`` of pictures ``[n]``: the class that votes name which hide both."""
        levels = self.levels(votes)
        bars = bars_of(self.thresholds, levels)
        return (yield from self._verdicts(votes, pictures, pairs, levels.pair_pools, bars)).labels

    def _verdicts(
        self, votes: Votes, pictures: IntArray, things: IntArray, pools_of: PoolsOf, bars: Sequence[float]
    ) -> Asking[Verdicts]:
        """The verdict on each thing, a place or a pair of them, of the first level that settles it."""
        found = Verdicts.empty(len(things))
        left = np.arange(len(things))
        for level, bar in enumerate((*bars, LAST)):
            pools = Pools(pictures[left], pools_of(things[left], level))
            yield votes.ask(pools.passes, pools.pictures)
            found.labels[left], clear, found.leads[left] = settled(self.aggregate, votes, pools, bar)
            found.levels[left] = level
            left = left[~clear]
            if not len(left):
                break
        return found

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        return (yield from self.proving(votes, labels)).holds

    def prover(self, votes: Votes, labels: IntArray) -> Prover:
        """Who asks the questions of a proof."""
        levels = self.levels(votes)
        claims, duels = bars_of(self.claim_thresholds, levels), bars_of(self.thresholds, levels)
        return Prover(self.aggregate, claims, duels, self.margin, votes, labels)

    def hypotheses(self, cover: Cover) -> list[tuple[int, ...]]:
        if not cover.levels:
            return cover.districts.all_juries
        sets = place_sets(len(cover.cells), cover.threat.count)
        return [tuple(dict.fromkeys(masks)) for masks in cover.cells.masks[sets].reshape(len(sets), -1).tolist()]

    def describe(self) -> dict[str, Any]:
        told = {"aggregate": self.aggregate.name, "thresholds": described(self.thresholds), "pooled": self.pooled}
        return {**super().describe(), **told}


def described(thresholds: float | tuple[float, ...]) -> float | list[float]:
    """As results files record them."""
    return list(thresholds) if isinstance(thresholds, tuple) else thresholds


def bars_of(thresholds: float | tuple[float, ...], levels: Sized) -> tuple[float, ...]:
    """The threshold of each level but the last."""
    if not isinstance(thresholds, tuple):
        return (thresholds,) * (len(levels) - 1)
    return thresholds[len(thresholds) - len(levels) + 1 :]


def checked_thresholds(thresholds: Thresholds) -> float | tuple[float, ...]:
    """One number of at least 0, or several."""
    numbers = thresholds if isinstance(thresholds, (list, tuple)) else (thresholds,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float, np.floating)) or not 0 <= number < np.inf:
            raise CertmaskError(f"expected thresholds of at least 0, got {thresholds!r}")
    return tuple(map(float, numbers)) if isinstance(thresholds, (list, tuple)) else float(numbers[0])
