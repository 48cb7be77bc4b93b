"""The aggregation rule of the CertMask paper (its figure 1), and its test for "certified"."""

from __future__ import annotations

import numpy as np

from certmask.certificate import Decision, Guarantee
from certmask.rules.rule import Asking, Rule, majority
from certmask.votes import Votes, single_passes


class Published(Rule):
    """All agree → that class; else the class with exactly k votes; else the majority.

    A mask placed k times votes k times. Ties go to the smallest class, among classes with exactly k votes as in the
    majority. The test "every mask votes for the label" proves nothing about this rule: an attacker who leaves one
    vote outside the jury alone and turns the others wins (docs/guarantees.md).
    """

    name = "published"
    guarantee = Guarantee.PUBLISHED

    def deciding(self, votes: Votes) -> Asking[Decision]:
        passes = single_passes(len(votes.cover))
        yield passes
        labels = votes.heads(passes).labels
        counts = np.bincount(labels, weights=votes.cover.copies).astype(int)
        exactly_k = np.flatnonzero(counts == votes.cover.k)
        if np.count_nonzero(counts) > 1 and len(exactly_k):
            return Decision(int(exactly_k[0]))
        return Decision(majority(labels, np.array(votes.cover.copies)))

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        passes = single_passes(len(votes.cover))
        yield passes
        return bool(votes.heads(passes).wins(label, self.margin).all())
