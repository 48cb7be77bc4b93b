"""Jury detection: every district is judged by its own jury; answer only if all districts agree."""

from __future__ import annotations

from typing import Any

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate
from certmask.rules.registry import aggregate_of
from certmask.rules.rule import Asking, Rule, majority
from certmask.rules.verdicts import all_won, jury_claims
from certmask.votes import BoolArray, Votes


class JuryDetection(Rule):
    """Answer ``c`` if ``D(t) = c`` for every district ``t``, else raise an alert (with the districts' majority).

    Certificate: ``D(t)`` is the label for every district of the clean image. A patch in ``t`` leaves ``D(t)`` alone,
    so no other class can be answered without an alert.
    """

    name = "jury detection"
    guarantee = Guarantee.DETECTION

    def __init__(self, aggregate: Aggregate | str | None = None, margin: float = 0.0) -> None:
        super().__init__(margin)
        self.aggregate = aggregate_of(aggregate)
        self.unit = self.aggregate.unit

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        claims = yield from self.claims(votes)
        return [Decision(majority(own), alert=bool(((own != own[0]) | (own == NO_CLASS)).any())) for own in claims]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        juries = votes.ballot.juries[None]
        yield votes.ask(votes.ballot.jurors[None])
        return all_won(self.aggregate, votes, juries, labels, self.margin)

    def hypotheses(self, cover: Cover) -> list[tuple[int, ...]]:
        return cover.districts.all_juries

    def claims(self, votes: Votes) -> Asking[IntArray]:
        return (yield from jury_claims(self.aggregate, votes))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "aggregate": self.aggregate.name}
