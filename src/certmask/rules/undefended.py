"""No defence: the classifier's own answer, for comparison."""

from __future__ import annotations

import numpy as np

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, Rule
from certmask.votes import BoolArray, Votes


class Undefended(Rule):
    """One pass on the image as it came; nothing is ever certified."""

    name = "undefended"
    guarantee = Guarantee.NONE

    def check(self, cover: Cover) -> None:
        """Whatever the threat, nothing is promised."""

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        bare = votes.ballot.bare[None]
        yield votes.ask(bare)
        return [Decision(int(label), alert=bool(label == NO_CLASS)) for label in votes.heads(bare).labels[:, 0]]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        yield from ()
        return np.zeros(len(labels), dtype=bool)
