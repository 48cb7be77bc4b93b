"""Jury detection: every place is judged by the votes that hide it; answer only if all places agree."""

from __future__ import annotations

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.geometry import IntArray
from certmask.rules.jury import JuryRule
from certmask.rules.rule import Asking, Proofs, majority
from certmask.votes import Votes


class JuryDetection(JuryRule):
    """Answer ``c`` if ``D(t) = c`` for every place ``t``, else raise an alert (with the places' majority).

    Certificate: ``D(t)`` is the label for every place of the clean image. A patch in ``t`` leaves ``D(t)`` alone,
    so no other class can be answered without an alert.
    """

    name = "jury detection"
    guarantee = Guarantee.DETECTION
    pairs = "all"

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        claims = yield from self.claims(votes)
        return [Decision(majority(own), alert=bool(((own != own[0]) | (own == NO_CLASS)).any())) for own in claims]

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        return (yield from self.prover(votes, labels).detection(self.levels(votes)))
