"""PatchCleanser (Xiang et al. 2022): double masking, and its challenger variant."""

from __future__ import annotations

from typing import Any

import numpy as np

from certmask.certificate import Decision, Guarantee
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.rules.jury_recovery import weakest_first
from certmask.rules.rule import Asking, Rule, majority
from certmask.rules.tournament import tournament
from certmask.rules.verdicts import FIRST_BLOCK, blocks
from certmask.votes import Votes, single_passes


class PatchCleanser(Rule):
    """One mask each: if all agree, answer. Else a dissenter whose every second mask agrees with it wins.

    With ``challenger=True`` masks that disagree duel instead, by the vote of both together: fewer passes.
    Certificate for both: every mask and every pair of masks votes for the label (two-mask correctness).
    """

    name = "patchcleanser"
    guarantee = Guarantee.RECOVERY

    def __init__(self, challenger: bool = False, margin: float = 0.0) -> None:
        super().__init__(margin)
        if not isinstance(challenger, bool):
            raise CertmaskError(f"expected challenger to be True or False, got {challenger!r}")
        self.challenger = challenger

    def deciding(self, votes: Votes) -> Asking[Decision]:
        passes = single_passes(len(votes.cover))
        yield passes
        labels = votes.heads(passes).labels
        if self.challenger:
            return (yield from tournament(labels, lambda pairs: _two_mask_labels(votes, pairs)))
        winner = majority(labels)
        for dissenter in np.flatnonzero(labels != winner):
            partners = np.stack([np.full(len(labels), dissenter), np.arange(len(labels))], axis=1)
            if ((yield from _two_mask_labels(votes, partners)) == labels[dissenter]).all():
                return Decision(int(labels[dissenter]))
        return Decision(winner)

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        passes = single_passes(len(votes.cover))
        yield passes
        heads = votes.heads(passes)
        if not heads.wins(label, self.margin).all():
            return False
        for pairs in blocks(weakest_first(heads.lead), FIRST_BLOCK):
            yield pairs
            if not votes.heads(pairs).wins(label, self.margin).all():
                return False
        return True

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "challenger": self.challenger}


def _two_mask_labels(votes: Votes, pairs: IntArray) -> Asking[IntArray]:
    yield pairs
    return votes.heads(pairs).labels
