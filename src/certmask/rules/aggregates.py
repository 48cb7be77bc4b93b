"""Aggregates: fixed functions from a pool of class probabilities to one class.

``outputs`` is ``[rows, classes]``, votes in whole units; ``pools`` is ``[pools, members]`` of row numbers, filled up
with -1. Bounds are computed for many pictures at once from the ``heads`` ``[pictures, pools, members]`` of their pools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from certmask.certificate import NO_CLASS
from certmask.geometry import IntArray
from certmask.votes import UNIT, Heads, logarithms

Leads = npt.NDArray[np.floating[Any]]
AT_ONCE = 1 << 24
"""Probabilities looked at in one step."""
LOG_UNIT = 2.0**-30
"""Logarithms are rounded to multiples of this and summed exactly: no order of summation can change a verdict. A win
asks for two of them beyond the margin, which is what rounding can add to noise."""
SLACK = 1e-6
"""More than float32 rounds off a lead of logarithms."""


class Aggregate(ABC):
    """The winner of a pool depends on that pool's outputs alone; the smallest class wins a tie.

    Silent votes count for no class, and a pool of them has no winner. ``unit`` is what margins are given in.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "probability"

    @abstractmethod
    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """One score per pool and class, ``[pools, classes]``."""

    def labels(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """The winning class of each pool, ``[pools]``."""
        return torch.cat([self._labels(outputs, part) for part in _parts(outputs, pools)])

    def _labels(self, outputs: Tensor, pools: Tensor) -> Tensor:
        rows, place = torch.unique(pools, return_inverse=True)
        spoken = (outputs[rows.clamp(min=0)].amax(dim=1) > 0) & (rows >= 0)
        return torch.where(spoken[place].any(dim=1), self._scores(outputs, pools).argmax(dim=1), NO_CLASS)

    def wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        """Whether each pool's label ``[pools]`` leads every other class by more than ``margin``, ``[pools]``."""
        parts = zip(_parts(outputs, pools), _parts(outputs, pools, labels), strict=True)
        return torch.cat([self._wins(outputs, part, wanted, margin) for part, wanted in parts])

    def least(self, heads: Heads, pools: IntArray, labels: IntArray, margin: float) -> Leads:
        """A bound from first classes alone, ``[pictures, pools]``: where it is positive, ``wins`` is true.

        ``heads`` and ``pools`` are ``[pictures, pools, members]``, ``labels`` is ``[pictures]``.
        """
        weights = self.weights(heads, labels[:, None, None], margin)
        return np.asarray(np.where(pools < 0, 0.0, weights).sum(axis=-1))

    @abstractmethod
    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        """By how much each vote raises its label over the margin and any one rival, at least, shaped as the heads."""

    @abstractmethod
    def _wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor: ...


class MeanProbability(Aggregate):
    """The class with the highest mean probability: sums of whole units, which are exact."""

    name = "mean probability"

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return _sums(outputs, pools, Tensor.double)

    def _wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        return lead(self._scores(outputs, pools), labels) > _whole(margin) * (pools >= 0).sum(dim=1)

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        return np.where(heads.labels == labels, heads.lead, -heads.confidence) - _whole(margin)


class MeanLogProbability(Aggregate):
    """The class with the highest mean log-probability; what is less than a unit counts as one."""

    name = "mean log-probability"
    unit = "logarithm"

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        total = _sums(outputs, pools, lambda rows: (logarithms(rows) / LOG_UNIT).round_())
        return total * LOG_UNIT / (pools >= 0).sum(dim=1, keepdim=True)

    def _wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        return lead(self._scores(outputs, pools), labels) > margin + 2 * LOG_UNIT

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        first = np.maximum(heads.confidence, UNIT)
        second = np.maximum(first - heads.lead, UNIT)
        lead = np.where(heads.labels == labels, np.log(first / second), np.log(UNIT / first))
        return lead - (margin + SLACK)


class LabelMajority(Aggregate):
    """The class that most outputs of the pool rank first.

    With a margin, an output whose own first class does not lead by more than it counts for the strongest rival.
    """

    name = "label majority"

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        return np.where(heads.wins(labels, margin), 1.0, -1.0)

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return self._count(outputs, pools, pools >= 0)

    def _wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        best = outputs[pools.clamp(min=0)].topk(min(2, outputs.shape[1]), dim=-1).values
        firm = ((best[..., 0] - best[..., -1]).double() > margin) & (pools >= 0)
        soft = ((pools >= 0) & ~firm).sum(dim=1)
        return lead(self._count(outputs, pools, firm), labels) > soft

    @staticmethod
    def _count(outputs: Tensor, pools: Tensor, counted: Tensor) -> Tensor:
        members = outputs[pools.clamp(min=0)]
        counts = outputs.new_zeros((len(pools), outputs.shape[1]), dtype=torch.float64)
        return counts.scatter_add_(1, members.argmax(dim=-1), (counted & (members.amax(dim=-1) > 0)).double())


def _whole(margin: float) -> float:
    """A margin rounded up to whole units, so that as many of them as a pool has votes are exact, too."""
    return ceil(margin / UNIT) * UNIT


def _sums(outputs: Tensor, pools: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum over each pool of what is read of its rows, ``[pools, classes]``; exact for whole numbers of a unit."""
    rows, place = torch.unique(pools, return_inverse=True)
    values = read(outputs[rows.clamp(min=0)])
    values[rows < 0] = 0.0
    return embedding_bag(place, values, mode="sum")


def _parts(outputs: Tensor, pools: Tensor, split: Tensor | None = None) -> Iterator[Tensor]:
    """The pools, or something else of their length, in parts of which the probabilities fit into memory."""
    length = max(AT_ONCE // max(pools.shape[1] * outputs.shape[1], 1), 1)
    yield from torch.split(pools if split is None else split, length)


def lead(scores: Tensor, labels: Tensor) -> Tensor:
    """By how much each row's label is ahead of its best other class, ``[rows]`` (negative when behind)."""
    labels = labels[:, None]
    return scores.gather(1, labels)[:, 0] - scores.scatter(1, labels, -torch.inf).amax(dim=1)
