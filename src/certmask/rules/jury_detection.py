"""Jury detection: every place is judged by the votes that hide it; answer only if all places agree."""

from __future__ import annotations

import numpy as np

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, Leads
from certmask.rules.jury import JuryRule, Thresholds, bars_of
from certmask.rules.rule import Asking, Proofs, majority
from certmask.rules.verdicts import LAST, Pools, settled
from certmask.votes import BoolArray, Votes

DETECTION_THRESHOLDS = (0.95, 0.6, 0.2)
"""The leads that settle a claim before the last level, where nobody says otherwise."""

FIRST_PLACES = 4
"""How many places of a picture are looked at closer at first, and twice as many in each round after."""


class JuryDetection(JuryRule):
    """Answer ``c`` if ``D(t) = c`` for every place ``t``, else raise an alert, with what most places say so far.

    Certificate: ``D(t)`` is the label for every place of the clean image. A patch in ``t`` leaves ``D(t)`` alone,
    so no other class can be answered without an alert.
    """

    name = "jury detection"
    guarantee = Guarantee.DETECTION
    pairs = "all"
    last: float = LAST
    """The lead that settles a claim at the last level: any."""

    def __init__(
        self,
        aggregate: Aggregate | str | None = None,
        thresholds: Thresholds = DETECTION_THRESHOLDS,
        pooled: bool = False,
        margin: float = 0.0,
    ) -> None:
        super().__init__(aggregate, thresholds, pooled, margin)

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        claims, clear = yield from self._claims_until_split(votes)
        alerts = [
            bool(((own != own[0]) | (own == NO_CLASS)).any()) or not sure.all()
            for own, sure in zip(claims, clear, strict=True)
        ]
        return [Decision(majority(own), alert) for own, alert in zip(claims, alerts, strict=True)]

    def _claims_until_split(self, votes: Votes) -> Asking[tuple[IntArray, BoolArray]]:
        """``D(t)`` of every place, and whether it is settled, ``[pictures, places]`` each.

        Looking closer ends where two settled places disagree. The most doubtful places come first. Those that are not
        settled then have the verdict of the last look.
        """
        levels = self.levels(votes)
        labels = np.full((votes.store.pictures, levels.hypotheses), NO_CLASS)
        leads, clear = np.zeros(labels.shape), np.zeros(labels.shape, dtype=bool)
        for level, bar in enumerate((*bars_of(self.claim_thresholds, levels), self.last)):
            seen, at_once = clear.copy(), levels.hypotheses if level == 0 else FIRST_PLACES
            while (left := ~seen & ~_split(labels, clear)[:, None]).any():
                pictures, places = np.nonzero(_smallest(leads, left, at_once))
                pools = Pools(pictures, levels.claim_pools(places, level))
                yield votes.ask(pools.passes, pools.pictures)
                here = pictures, places
                labels[here], clear[here], leads[here] = settled(self.aggregate, votes, pools, bar)
                seen[here], at_once = True, 2 * at_once
        return labels, clear

    def most_passes(self, cover: Cover) -> int:
        return cover.sets(cover.threat.count) if cover.levels else len(cover)

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        return (yield from self.prover(votes, labels).detection(self.levels(votes), self.last))


def _split(labels: IntArray, clear: BoolArray) -> BoolArray:
    """Whether two of each picture's clear ``labels [pictures, places]`` differ, ``[pictures]``."""
    low = labels.min(axis=1, where=clear, initial=np.iinfo(labels.dtype).max)
    return np.asarray(labels.max(axis=1, where=clear, initial=np.iinfo(labels.dtype).min) > low)


def _smallest(leads: Leads, among: BoolArray, count: int) -> BoolArray:
    """The ``count`` smallest of each picture's ``leads [pictures, places]`` among some; the first ones of equals."""
    order = np.argsort(np.where(among, leads, np.inf), axis=1, kind="stable")
    chosen = np.zeros(leads.shape, dtype=bool)
    np.put_along_axis(chosen, order[:, :count], True, axis=1)
    return chosen & among
