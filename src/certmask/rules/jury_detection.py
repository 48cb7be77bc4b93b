"""Jury detection: every district is judged by its own jury; answer only if all districts agree."""

from __future__ import annotations

from typing import Any

from certmask.certificate import Decision, Guarantee
from certmask.rules.aggregates import Aggregate, MeanProbability
from certmask.rules.rule import Asking, Rule, jury_passes, majority, needed
from certmask.rules.verdicts import all_won, verdicts
from certmask.votes import Votes


class JuryDetection(Rule):
    """Answer ``c`` if ``D(t) = c`` for every district ``t``, else raise an alert (with the districts' majority).

    Certificate: ``D(t)`` is the label for every district of the clean image. A patch in ``t`` leaves ``D(t)`` alone,
    so no other class can be answered without an alert.
    """

    name = "jury detection"
    guarantee = Guarantee.DETECTION

    def __init__(self, aggregate: Aggregate | None = None, margin: float = 0.0) -> None:
        super().__init__(margin)
        self.aggregate = aggregate or MeanProbability()

    def deciding(self, votes: Votes) -> Asking[Decision]:
        pools = jury_passes(votes.cover)
        yield needed(pools)
        claims = verdicts(self.aggregate, votes, pools)
        return Decision(majority(claims), alert=bool((claims != claims[0]).any()))

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        pools = jury_passes(votes.cover)
        yield needed(pools)
        return all_won(self.aggregate, votes, pools, label, self.margin)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "aggregate": self.aggregate.name}
