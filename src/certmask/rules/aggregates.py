"""Aggregates: fixed functions from a pool of class probabilities to one class.

``outputs`` is ``[rows, classes]``, votes in whole units; ``pools`` is ``[pools, members]`` of row numbers, filled up
with -1. What the heads of votes say is worked out on the host, for any shape of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from certmask.certificate import NO_CLASS
from certmask.geometry import IntArray
from certmask.votes import UNIT, Heads, logarithms

Leads = npt.NDArray[np.floating[Any]]
Numbers = npt.NDArray[Any]
Column = TypeVar("Column")
AT_ONCE = 1 << 24
"""Probabilities looked at in one step."""
LOG_UNIT = 2.0**-30
"""Logarithms are rounded to multiples of this and summed exactly: no order of summation can change a verdict. A win
asks for two of them beyond the margin, which is what rounding can add to noise."""
SLACK = 1e-6
"""More than float32 rounds off a lead of logarithms."""


class Judged(NamedTuple, Generic[Column]):
    """Verdicts on pools: the class, and bounds of its lead, summed over the pool's votes, ``[pools]`` each.

    Leads are sums of whole units, and so exact. As votes are, the winner's lead is ``low``, and so is ``high``; under
    any change of votes that a margin allows it stays between them, and where ``low`` is positive the winner stays, too.
    """

    labels: Column
    low: Column
    high: Column


class Aggregate(ABC):
    """The winner of a pool depends on that pool's outputs alone; the smallest class wins a tie.

    Silent votes count for no class, and a pool of them has no winner and no lead. ``unit`` is what margins are given
    in. Where a margin is None, votes are taken as they are; with one of 0, a tie is nobody's win all the same.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "probability"

    def judged(self, outputs: Tensor, pools: Tensor, margin: float | None = None) -> Judged[Tensor]:
        """The verdict on each pool, ``[pools]``."""
        parts = [self._judged(outputs, part, margin) for part in _parts(outputs, pools)]
        return Judged(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def _judged(self, outputs: Tensor, pools: Tensor, margin: float | None) -> Judged[Tensor]:
        rows, place = torch.unique(pools, return_inverse=True)
        spoken = ((outputs[rows.clamp(min=0)].amax(dim=1) > 0) & (rows >= 0))[place].any(dim=1)
        labels, leads = winners(self._scores(outputs, pools))
        band = self._noise(margin) * (pools >= 0).sum(dim=1)
        leads = torch.where(spoken, leads, 0.0)
        return Judged(torch.where(spoken, labels, NO_CLASS), leads - band, leads + band)

    def judged_alone(self, heads: Heads, margin: float | None = None) -> Judged[Numbers]:
        """The same for pools of a single vote, from its head."""
        leads, band = self._lead_alone(heads), self._noise(margin)
        return Judged(heads.labels, leads - band, leads + band)

    def labels(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """The winning class of each pool, ``[pools]``."""
        return self.judged(outputs, pools).labels

    def wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        """Whether each pool's label ``[pools]`` leads every other class by more than ``margin``, ``[pools]``."""
        found = self.judged(outputs, pools, margin)
        return (found.labels == labels) & (found.low > 0)

    @abstractmethod
    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        """By how much each vote raises its label over any one rival, less the margin, at least; shaped as the heads.

        Their sum over a pool is at most the ``low`` of its verdict; where it is positive, the label is the winner.
        """

    @abstractmethod
    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """The sum of each pool's votes for every class, ``[pools, classes]``."""

    @abstractmethod
    def _lead_alone(self, heads: Heads) -> Leads:
        """By how much a single vote's first class leads."""

    @abstractmethod
    def _noise(self, margin: float | None) -> float:
        """By how much one vote's changes within a margin may move a lead, at most, in whole units."""


class MeanProbability(Aggregate):
    """The class with the highest mean probability: sums of whole units, which are exact."""

    name = "mean probability"

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        return np.where(heads.labels == labels, heads.lead, -heads.confidence) - self._noise(margin)

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return _sums(outputs, pools, Tensor.double)

    def _lead_alone(self, heads: Heads) -> Leads:
        return heads.lead

    def _noise(self, margin: float | None) -> float:
        return ceil((margin or 0.0) / UNIT) * UNIT


class MeanLogProbability(Aggregate):
    """The class with the highest mean log-probability; what is less than a unit counts as one.

    Its lead is the logarithm of the odds, which tells votes apart that are all but certain.
    """

    name = "mean log-probability"
    unit = "logarithm"

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        first = np.maximum(heads.confidence, UNIT)
        second = np.maximum(first - heads.lead, UNIT)
        lead = np.where(heads.labels == labels, np.log(first / second), np.log(UNIT / first))
        return lead - (margin + SLACK)

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return _sums(outputs, pools, lambda rows: (logarithms(rows) / LOG_UNIT).round_().mul_(LOG_UNIT))

    def _lead_alone(self, heads: Heads) -> Leads:
        ranked = np.stack([heads.confidence, heads.confidence - heads.lead])
        first, second = np.round(np.log(np.maximum(ranked, UNIT)) / LOG_UNIT) * LOG_UNIT
        return np.asarray(first - second)

    def _noise(self, margin: float | None) -> float:
        return 0.0 if margin is None else (ceil(margin / LOG_UNIT) + 2) * LOG_UNIT


class LabelMajority(Aggregate):
    """The class that most outputs of the pool rank first.

    With a margin, an output whose own first class does not lead by more than it may count for any class.
    """

    name = "label majority"

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        return np.where(heads.wins(labels, margin), 1.0, -1.0)

    def _judged(self, outputs: Tensor, pools: Tensor, margin: float | None) -> Judged[Tensor]:
        if margin is None:
            return super()._judged(outputs, pools, margin)
        best = outputs[pools.clamp(min=0)].topk(min(2, outputs.shape[1]), dim=-1).values
        firm = ((best[..., 0] - best[..., -1]).double() > margin) & (pools >= 0)
        labels, leads = winners(self._count(outputs, pools, firm))
        soft = ((pools >= 0) & ~firm).sum(dim=1)
        return Judged(labels, leads - soft, leads + soft)

    def judged_alone(self, heads: Heads, margin: float | None = None) -> Judged[Numbers]:
        if margin is None:
            return super().judged_alone(heads)
        return Judged(heads.labels, np.where(heads.lead > margin, 1.0, -1.0), np.ones(heads.lead.shape))

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return self._count(outputs, pools, pools >= 0)

    def _lead_alone(self, heads: Heads) -> Leads:
        return np.where(heads.labels == NO_CLASS, 0.0, 1.0)

    def _noise(self, margin: float | None) -> float:
        return 0.0

    @staticmethod
    def _count(outputs: Tensor, pools: Tensor, counted: Tensor) -> Tensor:
        members = outputs[pools.clamp(min=0)]
        counts = outputs.new_zeros((len(pools), outputs.shape[1]), dtype=torch.float64)
        return counts.scatter_add_(1, members.argmax(dim=-1), (counted & (members.amax(dim=-1) > 0)).double())


def _sums(outputs: Tensor, pools: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum over each pool of what is read of its rows, ``[pools, classes]``; exact for whole numbers of a unit."""
    rows, place = torch.unique(pools, return_inverse=True)
    values = read(outputs[rows.clamp(min=0)])
    values[rows < 0] = 0.0
    return embedding_bag(place, values, mode="sum")


def _parts(outputs: Tensor, pools: Tensor) -> Sequence[Tensor]:
    """The pools in parts of which the probabilities fit into memory."""
    return torch.split(pools, max(AT_ONCE // max(pools.shape[1] * outputs.shape[1], 1), 1))


def winners(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The class with the highest score in each row (the smallest on a tie), and its lead over the second."""
    labels = scores.argmax(dim=1)
    first = scores.gather(1, labels[:, None])[:, 0]
    return labels, first - scores.scatter(1, labels[:, None], -torch.inf).amax(dim=1)
