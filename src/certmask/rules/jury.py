"""What both jury rules have in common: places are judged by the votes that hide them, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from certmask.certificate import Place
from certmask.covers import Cover
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate
from certmask.rules.levels import Levels, jury_levels
from certmask.rules.proof import Prover
from certmask.rules.registry import DEFAULT_PAIRS, aggregate_of
from certmask.rules.rule import Asking, Rule
from certmask.rules.verdicts import LAST, Pools, judged, settled
from certmask.votes import BoolArray, Votes

DEFAULT_THRESHOLD = 0.5
"""The lead that settles a question before the last level, where nobody says otherwise."""


class JuryRule(Rule):
    """Every place ``t`` claims ``D(t)``, the verdict of the first level whose lead exceeds that level's threshold.

    The last level decides in any case. Every vote that takes part, also in whether to go on, hides ``t``: a patch there
    changes neither. ``thresholds`` are those of all levels but the last, or one for all; in units of the aggregate's
    lead, on average over a pool's votes. Where votes are ``pooled``, a level's pool has those of coarser levels, too.
    """

    pairs = DEFAULT_PAIRS

    def __init__(
        self,
        aggregate: Aggregate | str | None = None,
        thresholds: float | Sequence[float] = DEFAULT_THRESHOLD,
        pooled: bool = False,
        margin: float = 0.0,
    ) -> None:
        super().__init__(margin)
        self.aggregate = aggregate_of(aggregate)
        self.unit = self.aggregate.unit
        self.thresholds = _checked_thresholds(thresholds)
        if not isinstance(pooled, bool):
            raise CertmaskError(f"expected pooled to be True or False, got {pooled!r}")
        self.pooled = pooled

    def check(self, cover: Cover) -> None:
        levels = len(jury_levels(cover, self.pairs))
        if isinstance(self.thresholds, tuple) and len(self.thresholds) != levels - 1:
            raise CoverError(
                f"expected {levels - 1} thresholds for {levels} levels, got {len(self.thresholds)}: one for each level "
                "but the last, or one number for all"
            )

    def levels(self, votes: Votes) -> Levels:
        """Which votes judge which places; found once for each ballot."""
        key, ballot = (self.pairs, self.pooled), votes.ballot
        if key not in ballot.levels:
            ballot.levels[key] = Levels(ballot, jury_levels(ballot.cover, self.pairs), ballot.cover.boxes, self.pooled)
        found: Levels = votes.ballot.levels[key]
        return found

    def bars(self, levels: Levels) -> tuple[float, ...]:
        """The threshold of each level but the last."""
        return self.thresholds if isinstance(self.thresholds, tuple) else (self.thresholds,) * (len(levels) - 1)

    def claims(self, votes: Votes) -> Asking[IntArray]:
        levels = self.levels(votes)
        places = np.tile(np.arange(levels.places), votes.store.pictures)
        pictures = np.repeat(votes.everyone, levels.places)
        found = yield from self._verdicts(votes, levels, pictures, places, duels=False)
        return found.reshape(-1, levels.places)

    def places(self, votes: Votes) -> Asking[list[tuple[Place, ...]]]:
        levels = self.levels(votes)
        places = np.tile(np.arange(levels.places), votes.store.pictures)
        pictures = np.repeat(votes.everyone, levels.places)
        labels, leads, at = np.empty(len(places), int), np.empty(len(places)), np.empty(len(places), int)
        left = np.arange(len(places))
        for level, bar in enumerate((*self.bars(levels), LAST)):
            pools = Pools(pictures[left], levels.claim_pools(places[left], level))
            yield votes.ask(pools.passes, pools.pictures)
            labels[left], clear = settled(self.aggregate, votes, pools, bar)
            leads[left], at[left] = judged(self.aggregate, votes, pools).low / pools.sizes, level
            left = left[~clear]
            if not len(left):
                break
        said = zip(places.tolist(), labels.tolist(), leads.tolist(), at.tolist(), strict=True)
        boxes = levels.boxes.tolist()
        found = [Place(tuple(boxes[n]), levels.jury(n, level), claim, lead, level) for n, claim, lead, level in said]
        return [tuple(found[n : n + levels.places]) for n in range(0, len(found), levels.places)]

    def duels(self, votes: Votes, pictures: IntArray, pairs: IntArray) -> Asking[IntArray]:
        """``R(t, u)`` of pairs of places ``[n, 2]`` of pictures ``[n]``: the class that votes name which hide both."""
        return (yield from self._verdicts(votes, self.levels(votes), pictures, pairs, duels=True))

    def _verdicts(
        self, votes: Votes, levels: Levels, pictures: IntArray, things: IntArray, duels: bool
    ) -> Asking[IntArray]:
        """The verdict on each thing, a place or a pair of them, of the first level that settles it."""
        verdicts = np.empty(len(things), dtype=np.int64)
        left = np.arange(len(things))
        for level, bar in enumerate((*self.bars(levels), LAST)):
            own = things[left]
            pools = Pools(pictures[left], levels.pair_pools(own, level) if duels else levels.claim_pools(own, level))
            yield votes.ask(pools.passes, pools.pictures)
            verdicts[left], clear = settled(self.aggregate, votes, pools, bar)
            left = left[~clear]
            if not len(left):
                break
        return verdicts

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        return (yield from self.proving(votes, labels)).holds

    def prover(self, votes: Votes, labels: IntArray) -> Prover:
        """Who asks the questions of a proof."""
        return Prover(self.aggregate, self.bars(self.levels(votes)), self.margin, votes, labels)

    def hypotheses(self, cover: Cover) -> list[tuple[int, ...]]:
        if not cover.levels:
            return cover.districts.all_juries
        return [tuple(dict.fromkeys(masks)) for masks in cover.cells.masks.tolist()]

    def describe(self) -> dict[str, Any]:
        thresholds = list(self.thresholds) if isinstance(self.thresholds, tuple) else self.thresholds
        told = {"aggregate": self.aggregate.name, "thresholds": thresholds, "pooled": self.pooled}
        return {**super().describe(), **told}


def _checked_thresholds(thresholds: float | Sequence[float]) -> float | tuple[float, ...]:
    """One number of at least 0, or several."""
    numbers = thresholds if isinstance(thresholds, (list, tuple)) else (thresholds,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float, np.floating)) or not 0 <= number < np.inf:
            raise CertmaskError(f"expected thresholds of at least 0, got {thresholds!r}")
    return tuple(map(float, numbers)) if isinstance(thresholds, (list, tuple)) else float(numbers[0])
