"""Aggregates: fixed functions from a pool of class probabilities to one class.

``outputs`` is ``[rows, classes]``; ``pools`` is ``[pools, members]`` of row numbers, filled up with -1. Bounds are
computed for many pictures at once, from the ``heads`` ``[pictures, pools, members]`` of their pools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from certmask.geometry import IntArray
from certmask.votes import Heads

Leads = npt.NDArray[np.floating[Any]]
AT_ONCE = 1 << 24
"""Probabilities looked at in one step."""
UNIT = 2.0**-30
"""Leads are rounded to multiples of this and summed exactly: no order of summation can change a verdict. A win asks
for two of them beyond the margin, which is what rounding can add to noise."""
SLACK = 1e-6
"""More than float32 rounds off a lead."""
FLOOR = 1e-30


class Aggregate(ABC):
    """The winner of a pool depends on that pool's outputs alone; the smallest class wins a tie."""

    name: ClassVar[str]

    @abstractmethod
    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """One score per pool and class, ``[pools, classes]``."""

    def labels(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """The winning class of each pool, ``[pools]``."""
        return torch.cat([self._scores(outputs, part).argmax(dim=1) for part in _parts(outputs, pools)])

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

    def _wins(self, outputs: Tensor, pools: Tensor, labels: Tensor, margin: float) -> Tensor:
        return lead(self._scores(outputs, pools), labels) > margin + 2 * UNIT


class _Mean(Aggregate):
    """Mean over the pool, summed exactly."""

    @staticmethod
    @abstractmethod
    def _transform(outputs: Tensor) -> Tensor: ...

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        rows, place = torch.unique(pools, return_inverse=True)
        units = (self._transform(outputs[rows.clamp(min=0)].double()) / UNIT).round_()
        units[rows < 0] = 0.0
        total = embedding_bag(place, units, mode="sum")
        return total * UNIT / (pools >= 0).sum(dim=1, keepdim=True)


class MeanProbability(_Mean):
    """The class with the highest mean probability."""

    name = "mean probability"

    @staticmethod
    def _transform(outputs: Tensor) -> Tensor:
        return outputs

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        lead = np.where(heads.labels == labels, heads.lead, -heads.confidence)
        return lead.astype(np.float64) - (margin + SLACK)


class MeanLogProbability(_Mean):
    """The class with the highest mean log-probability (probabilities floored at 1e-30)."""

    name = "mean log-probability"

    @staticmethod
    def _transform(outputs: Tensor) -> Tensor:
        return outputs.clamp(min=FLOOR).log()

    def weights(self, heads: Heads, labels: IntArray, margin: float) -> Leads:
        first = np.maximum(heads.confidence.astype(np.float64), FLOOR)
        second = np.maximum(first - heads.lead, 0.0) + SLACK
        lead = np.where(heads.labels == labels, np.log(first / second), np.log(FLOOR / (first + SLACK)))
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
        firm = (best[..., 0] - best[..., -1] > margin) & (pools >= 0)
        soft = ((pools >= 0) & ~firm).sum(dim=1)
        return lead(self._count(outputs, pools, firm), labels) > soft

    @staticmethod
    def _count(outputs: Tensor, pools: Tensor, counted: Tensor) -> Tensor:
        labels = outputs[pools.clamp(min=0)].argmax(dim=-1)
        counts = outputs.new_zeros((len(pools), outputs.shape[1]), dtype=torch.float64)
        return counts.scatter_add_(1, labels, counted.double())


def _parts(outputs: Tensor, pools: Tensor, split: Tensor | None = None) -> Iterator[Tensor]:
    """The pools, or something else of their length, in parts of which the probabilities fit into memory."""
    length = max(AT_ONCE // max(pools.shape[1] * outputs.shape[1], 1), 1)
    yield from torch.split(pools if split is None else split, length)


def lead(scores: Tensor, labels: Tensor) -> Tensor:
    """By how much each row's label is ahead of its best other class, ``[rows]`` (negative when behind)."""
    labels = labels[:, None]
    return scores.gather(1, labels)[:, 0] - scores.scatter(1, labels, -torch.inf).amax(dim=1)
