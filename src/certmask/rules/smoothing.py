"""De-randomized smoothing (Levine & Feizi 2020): every small part of the picture has a vote, the most votes win."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import IntArray
from certmask.passes import Ballot
from certmask.rules.rule import Asking, Rule
from certmask.votes import BoolArray, Votes

BLOCKS = "blocks"


class Smoothing(Rule):
    """Answer the class that most views count for; the smallest one on a tie.

    A view counts for every class with a probability of at least ``theta``; without one, for its first class.
    Certificate: for every place ``t`` and every other class ``c``, those of the label among the views that hide ``t``
    are more than those of ``c`` and all that ``t`` touches together, or as many if the label is the smaller class. A
    patch in ``t`` can take every touched view from the label and give it to ``c``, and change no other.
    With ``exact=False`` only the largest number of touched views is known, as published: the label must lead every
    other class by more than twice that number, or by as much if it is the smaller one.
    On a cover of blocks the views are its pairs of a row mask and a column mask, else its masks.
    """

    name = "smoothing"
    guarantee = Guarantee.RECOVERY

    def __init__(self, theta: float | None = None, exact: bool = True, margin: float = 0.0) -> None:
        super().__init__(margin)
        number = isinstance(theta, (int, float, np.floating)) and not isinstance(theta, bool)
        if theta is not None and not (number and 0 < theta <= 1):
            raise CertmaskError(f"expected theta above 0 and at most 1, or None, got {theta!r}")
        if not isinstance(exact, bool):
            raise CertmaskError(f"expected exact to be True or False, got {exact!r}")
        self.theta, self.exact = theta, exact

    def check(self, cover: Cover) -> None:
        hidden = hidden_by(cover)
        if 2 * int(hidden.sum(axis=1).min()) <= hidden.shape[1]:
            raise CoverError(
                f"expected a cover most of whose views hide any one place, such as band_cover, got {cover}: nothing "
                "could be certified"
            )

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        yield votes.ask(_views(votes.ballot)[None])
        return [self._decision(outputs) for outputs in _outputs(votes)]

    def _decision(self, outputs: Tensor) -> Decision:
        """An alert, with the class that is most probable on average, where no view counts for any."""
        counts = self._counted(outputs).sum(dim=0).cpu().numpy()
        if counts.any():
            return Decision(int(np.argmax(counts)))
        sums = outputs.double().sum(dim=0).cpu().numpy()
        return Decision(int(np.argmax(sums)) if sums.any() else NO_CLASS, alert=True)

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        yield votes.ask(_views(votes.ballot)[None])
        hidden = torch.from_numpy(hidden_by(votes.cover))
        found = [self._proved(own, int(label), hidden) for own, label in zip(_outputs(votes), labels, strict=True)]
        return np.array(found, dtype=bool)

    def _proved(self, outputs: Tensor, label: int, hidden: Tensor) -> bool:
        """Whether no place ``[places, views]`` can overturn the label of ``outputs [views, classes]``."""
        own, others = self._sure(outputs, label), self._counted(outputs, self.margin)
        hidden = hidden.to(outputs.device)
        touched = (~hidden).sum(dim=1)
        if self.exact:
            lead = (hidden & own).sum(dim=1)[:, None] - hidden.double() @ others.double() - touched[:, None]
        else:
            lead = (own.sum() - others.sum(dim=0) - 2 * touched.max())[None]
        rivals = torch.arange(outputs.shape[1], device=outputs.device)
        wins = (lead > 0) | ((lead == 0) & (label < rivals))
        return bool(wins[:, rivals != label].all())

    def _counted(self, outputs: Tensor, margin: float = 0.0) -> Tensor:
        """For which classes each view counts, or may count once votes have moved, ``[views, classes]``."""
        spoken = outputs.amax(dim=1, keepdim=True) > 0
        if self.theta is not None:
            return spoken & (outputs.double() >= self.theta - margin / 2)
        first = torch.zeros_like(outputs, dtype=torch.bool).scatter_(1, outputs.argmax(dim=1, keepdim=True), True)
        return spoken & (first if margin == 0 else outputs.amax(dim=1, keepdim=True) - outputs <= margin)

    def _sure(self, outputs: Tensor, label: int) -> Tensor:
        """Which views count for the label however votes move, ``[views]``."""
        if self.theta is not None:
            return outputs[:, label].double() >= self.theta + self.margin / 2
        others = outputs.clone()
        others[:, label] = -1.0
        ahead = outputs[:, label] - others.amax(dim=1)
        first = outputs.argmax(dim=1) == label
        return first & (outputs[:, label] > 0) & ((ahead > self.margin) if self.margin else (ahead >= 0))

    def most_pairs(self, cover: Cover) -> int:
        return len(cover.grids[0]) * len(cover.grids[1]) if cover.tiling == BLOCKS else 0

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "theta": self.theta, "exact": self.exact}


@lru_cache(maxsize=8)
def hidden_by(cover: Cover) -> BoolArray:
    """Which views hide each place where a patch may be, ``[districts, views]``: the others are touched by it."""
    masks = np.zeros((len(cover.districts), len(cover)), dtype=bool)
    district, member = np.nonzero(cover.districts.juries >= 0)
    masks[district, cover.districts.juries[district, member]] = True
    if cover.tiling != BLOCKS:
        return masks
    rows, columns = (masks[:, list(grid)] for grid in cover.grids)
    return np.asarray((rows[:, :, None] | columns[:, None, :]).reshape(len(masks), -1))


def _views(ballot: Ballot) -> IntArray:
    """The passes that have a vote, ``[views]``."""
    if ballot.cover.tiling != BLOCKS:
        return ballot.singles
    rows, columns = (np.array(grid) for grid in ballot.cover.grids)
    return ballot.pairs(rows[:, None], columns[None, :]).ravel()


def _outputs(votes: Votes) -> list[Tensor]:
    """What the views of each picture say, ``[views, classes]``."""
    rows = votes.rows(_views(votes.ballot)[None], votes.everyone)
    return [votes.outputs[votes.sent(own)] for own in rows]
