"""PatchCleanser (Xiang et al. 2022): double masking, and its challenger variant."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.rules.jury_recovery import all_pairs, weakest_first
from certmask.rules.rule import Asking, Rule
from certmask.rules.tournament import double_masking, side_by_side, tournament
from certmask.rules.verdicts import FIRST_BLOCK, blocks
from certmask.votes import BoolArray, Votes


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

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        game = tournament if self.challenger else double_masking
        labels = votes.heads(singles).labels
        return (yield from side_by_side(map(game, labels), partial(_two_mask_labels, votes)))

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        proved = np.asarray(heads.wins(labels[:, None], self.margin).all(axis=1))
        if not proved.any():
            return proved
        pairs = all_pairs(len(votes.cover))
        order = {n: weakest_first(heads.lead[n], pairs) for n in np.flatnonzero(proved)}
        for block in blocks(len(pairs), FIRST_BLOCK):
            left = np.flatnonzero(proved)
            if not len(left):
                break
            chosen = pairs[np.stack([order[n][block] for n in left])]
            passes = votes.ballot.pairs(chosen[..., 0], chosen[..., 1])
            yield votes.ask(passes, left)
            proved[left] = votes.heads(passes, left).wins(labels[left, None], self.margin).all(axis=1)
        return proved

    def most_pairs(self, cover: Cover) -> int:
        return cover.pairs()

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "challenger": self.challenger}


def _two_mask_labels(votes: Votes, pictures: IntArray, pairs: IntArray) -> Asking[IntArray]:
    """What each picture's pair of masks votes, ``[n]``."""
    passes = votes.ballot.pairs(pairs[:, 0], pairs[:, 1])[:, None]
    yield votes.ask(passes, pictures)
    return np.asarray(votes.heads(passes, pictures).labels[:, 0])
