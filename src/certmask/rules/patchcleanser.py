"""PatchCleanser (Xiang et al. 2022): double masking, and its challenger variant."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.passes import Ballot
from certmask.rules.aggregates import MeanProbability
from certmask.rules.levels import Levels, mask_levels
from certmask.rules.proof import Prover
from certmask.rules.rule import Asking, Proofs, Rule
from certmask.rules.tournament import checked_resort, double_masking, recovered, side_by_side, tournament
from certmask.votes import BoolArray, Votes


class PatchCleanser(Rule):
    """One mask each: if all agree, answer. Else a dissenter whose every second mask agrees with it wins.

    With ``challenger=True`` masks that disagree duel instead, by the vote of both together: fewer passes. Both as
    published leave what nobody settles to the masks' ``majority``. With the ``bare`` picture as ``last_resort``
    that answers, unless a mask that votes otherwise is unbeaten, be it one of the majority.
    Certificate for all: every mask and every pair of masks votes for the label (two-mask correctness).
    """

    name = "patchcleanser"
    guarantee = Guarantee.RECOVERY

    def __init__(self, challenger: bool = False, last_resort: str = "majority", margin: float = 0.0) -> None:
        super().__init__(margin)
        if not isinstance(challenger, bool):
            raise CertmaskError(f"expected challenger to be True or False, got {challenger!r}")
        self.challenger = challenger
        self.last_resort = checked_resort(last_resort)

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        (labels, _, leads), referee = votes.heads(singles), partial(_two_mask_labels, votes)
        if self.last_resort == "bare":
            return (yield from recovered(votes, labels, leads, referee, self.last_resort))
        game = tournament if self.challenger else double_masking
        return (yield from side_by_side(map(game, labels), referee))

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        return (yield from self.proving(votes, labels)).holds

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        prover = Prover(MeanProbability(), (), (), self.margin, votes, labels)
        return (yield from prover.recovery(_single_masks(votes.ballot)))

    def most_passes(self, cover: Cover) -> int:
        return len(cover) + cover.pairs()

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "challenger": self.challenger, "last_resort": self.last_resort}


def _single_masks(ballot: Ballot) -> Levels:
    """Every mask as a place of its own."""
    if "masks" not in ballot.levels:
        cover = ballot.cover
        ballot.levels["masks"] = Levels(ballot, mask_levels(cover), cover.reaches, cover.mask_patches)
    found: Levels = ballot.levels["masks"]
    return found


def _two_mask_labels(votes: Votes, pictures: IntArray, pairs: IntArray) -> Asking[IntArray]:
    """What each picture's pair of masks votes, ``[n]``."""
    passes = votes.ballot.pairs(pairs[:, 0], pairs[:, 1])[:, None]
    yield votes.ask(passes, pictures)
    return np.asarray(votes.heads(passes, pictures).labels[:, 0])
