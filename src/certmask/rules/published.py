"""The aggregation rule of the CertMask paper (its figure 1), and its test for "certified"."""

from __future__ import annotations

import numpy as np

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, Rule
from certmask.votes import BoolArray, Votes


class Published(Rule):
    """All agree → that class; else the class with exactly k votes; else the majority.

    A mask placed k times votes k times. Ties go to the smallest class, among classes with exactly k votes as in the
    majority. The test "every mask votes for the label" proves nothing about this rule: an attacker who leaves one
    vote outside the jury alone and turns the others wins (docs/guarantees.md).
    """

    name = "published"
    guarantee = Guarantee.PUBLISHED

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return [self._decision(votes.cover, labels) for labels in votes.heads(singles).labels]

    @staticmethod
    def _decision(cover: Cover, labels: IntArray) -> Decision:
        spoken = labels != NO_CLASS
        if not spoken.any():
            return Decision(NO_CLASS, alert=True)
        counts = np.bincount(labels[spoken], weights=np.array(cover.copies)[spoken]).astype(int)
        exactly_k = np.flatnonzero(counts == cover.k)
        if np.count_nonzero(counts) > 1 and len(exactly_k):
            return Decision(int(exactly_k[0]))
        return Decision(int(counts.argmax()))

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return np.asarray(votes.heads(singles).wins(labels[:, None], self.margin).all(axis=1))
