"""De-randomized smoothing (Levine & Feizi 2020): every small part of the picture has a vote, the most votes win."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CertmaskError, CoverError
from certmask.evidence.maps import AT_ONCE
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
        super().check(cover)
        hidden = hidden_by(cover)
        if 2 * int(hidden.sum(axis=1).min()) <= hidden.shape[1]:
            raise CoverError(
                f"expected a cover most of whose views hide any one place, such as band_cover, got {cover}: nothing "
                "could be certified"
            )

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        yield votes.ask(_views(votes.ballot)[None])
        return [one for _, outputs in _portions(votes, 1) for one in self._decisions(outputs)]

    def _decisions(self, outputs: Tensor) -> list[Decision]:
        """An alert, with the class that is most probable on average, where no view counts for any."""
        counts = self._counted(outputs).sum(dim=1)
        sums = outputs.double().sum(dim=1)
        alerts = counts.amax(dim=1) == 0
        labels = torch.where(alerts, sums.argmax(dim=1), counts.argmax(dim=1))
        labels = torch.where(alerts & (sums.amax(dim=1) == 0), NO_CLASS, labels)
        return [Decision(*one) for one in zip(labels.tolist(), alerts.tolist(), strict=True)]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        yield votes.ask(_views(votes.ballot)[None])
        hidden, found = votes.sent(hidden_by(votes.cover)), np.zeros(len(labels), dtype=bool)
        for part, outputs in _portions(votes, len(hidden)):
            found[part] = self._proved(outputs, votes.sent(labels[part]), hidden).cpu().numpy()
        return found

    def _proved(self, outputs: Tensor, labels: Tensor, hidden: Tensor) -> Tensor:
        """Whether no place, ``[places, views]``, can overturn the label of ``outputs [pictures, views, classes]``."""
        own, others = self._sure(outputs, labels), self._counted(outputs, self.margin).double()
        touched = (~hidden).sum(dim=1)
        if self.exact:
            kept = (own.double() @ hidden.double().T)[:, :, None]
            lead = kept - hidden.double() @ others - touched[:, None]
        else:
            lead = (own.sum(dim=1, keepdim=True) - others.sum(dim=1) - 2 * touched.max())[:, None]
        rivals = torch.arange(outputs.shape[2], device=outputs.device)
        wins = (lead > 0) | ((lead == 0) & (labels[:, None] < rivals)[:, None])
        return (wins.all(dim=1) | (labels[:, None] == rivals)).all(dim=1)

    def _counted(self, outputs: Tensor, margin: float = 0.0) -> Tensor:
        """For which classes each view counts, or may count once votes have moved, ``[pictures, views, classes]``."""
        most = outputs.amax(dim=2, keepdim=True)
        if self.theta is not None:
            return (most > 0) & (outputs.double() >= self.theta - margin / 2)
        first = torch.zeros_like(outputs, dtype=torch.bool).scatter_(2, outputs.argmax(dim=2, keepdim=True), True)
        return (most > 0) & (first if margin == 0 else most - outputs <= margin)

    def _sure(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Which views count for the label however votes move, ``[pictures, views]``."""
        where = labels[:, None, None].expand(-1, outputs.shape[1], 1)
        own = outputs.gather(2, where)[..., 0]
        if self.theta is not None:
            return own.double() >= self.theta + self.margin / 2
        ahead = own - outputs.scatter(2, where, -1.0).amax(dim=2)
        first = outputs.argmax(dim=2) == labels[:, None]
        return first & (own > 0) & ((ahead > self.margin) if self.margin else (ahead >= 0))

    def most_passes(self, cover: Cover) -> int:
        return len(cover.grids[0]) * len(cover.grids[1]) if cover.tiling == BLOCKS else len(cover)

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


def _portions(votes: Votes, places: int) -> Iterator[tuple[slice, Tensor]]:
    """What the views say of some pictures at a time, ``[pictures, views, classes]``.

    So many that neither this nor as much for each place outgrows memory.
    """
    rows = votes.rows(_views(votes.ballot)[None], votes.everyone)
    step = max(AT_ONCE // (max(rows.shape[1], places) * votes.outputs.shape[1]), 1)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield part, votes.outputs[votes.sent(rows[part])]
