"""No defence: the classifier's own answer, for comparison."""

from __future__ import annotations

from certmask.certificate import Decision, Guarantee
from certmask.rules.rule import Asking, Rule
from certmask.votes import Votes, bare_pass


class Undefended(Rule):
    """One pass on the image as it came; nothing is ever certified."""

    name = "undefended"
    guarantee = Guarantee.NONE

    def deciding(self, votes: Votes) -> Asking[Decision]:
        yield bare_pass()
        return Decision(int(votes.heads(bare_pass()).labels[0]))

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        yield from ()
        return False
