"""Aggregates: fixed functions from a pool of class probabilities to one class.

``outputs`` is ``[rows, classes]``, ``heads`` their first classes; ``pools`` is ``[pools, members]`` of row numbers,
padded with -1.
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

FloatArray = npt.NDArray[np.floating[Any]]
AT_ONCE = 1 << 24
"""Probabilities looked at in one step."""
UNIT = 2.0**-30
"""Scores are rounded to multiples of this and summed exactly: no order of summation can change a verdict. A win asks
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

    def wins(self, outputs: Tensor, pools: Tensor, label: int, margin: float) -> Tensor:
        """Whether ``label`` leads every other class of the pool by more than ``margin``, ``[pools]``."""
        return torch.cat([self._wins(outputs, part, label, margin) for part in _parts(outputs, pools)])

    def least(self, heads: Heads, pools: IntArray, label: int, margin: float) -> FloatArray:
        """A bound from the first classes alone, ``[pools]``: where it is positive, ``wins`` is true."""
        votes = np.append(self._least(heads, label, margin), 0.0)  # padding, -1, finds the 0
        return np.asarray(votes[pools].sum(axis=1))

    @abstractmethod
    def _least(self, heads: Heads, label: int, margin: float) -> FloatArray:
        """By how much each vote raises ``label`` over the margin and any one rival, at least, ``[rows]``."""

    def _wins(self, outputs: Tensor, pools: Tensor, label: int, margin: float) -> Tensor:
        return lead(self._scores(outputs, pools), label) > margin + 2 * UNIT


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

    def _least(self, heads: Heads, label: int, margin: float) -> FloatArray:
        lead = np.where(heads.labels == label, heads.lead, -heads.confidence)
        return lead.astype(np.float64) - (margin + SLACK)


class MeanLogProbability(_Mean):
    """The class with the highest mean log-probability (probabilities floored at 1e-30)."""

    name = "mean log-probability"

    @staticmethod
    def _transform(outputs: Tensor) -> Tensor:
        return outputs.clamp(min=FLOOR).log()

    def _least(self, heads: Heads, label: int, margin: float) -> FloatArray:
        first = np.maximum(heads.confidence.astype(np.float64), FLOOR)
        second = np.maximum(first - heads.lead, 0.0) + SLACK
        lead = np.where(heads.labels == label, np.log(first / second), np.log(FLOOR / (first + SLACK)))
        return lead - (margin + SLACK)


class LabelMajority(Aggregate):
    """The class that most outputs of the pool rank first.

    With a margin, an output whose own first class does not lead by more than it counts for the strongest rival.
    """

    name = "label majority"

    def _least(self, heads: Heads, label: int, margin: float) -> FloatArray:
        return np.where(heads.wins(label, margin), 1.0, -1.0)

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        return self._count(outputs, pools, pools >= 0)

    def _wins(self, outputs: Tensor, pools: Tensor, label: int, margin: float) -> Tensor:
        best = outputs[pools.clamp(min=0)].topk(min(2, outputs.shape[1]), dim=-1).values
        firm = (best[..., 0] - best[..., -1] > margin) & (pools >= 0)
        soft = ((pools >= 0) & ~firm).sum(dim=1)
        return lead(self._count(outputs, pools, firm), label) > soft

    @staticmethod
    def _count(outputs: Tensor, pools: Tensor, counted: Tensor) -> Tensor:
        labels = outputs[pools.clamp(min=0)].argmax(dim=-1)
        counts = outputs.new_zeros((len(pools), outputs.shape[1]), dtype=torch.float64)
        return counts.scatter_add_(1, labels, counted.double())


def _parts(outputs: Tensor, pools: Tensor) -> Iterator[Tensor]:
    """The pools in parts that fit into memory."""
    yield from torch.split(pools, max(AT_ONCE // max(pools.shape[1] * outputs.shape[1], 1), 1))


def lead(scores: Tensor, label: int) -> Tensor:
    """By how much ``label`` is ahead of the best other class, ``[rows]`` (negative when behind)."""
    rivals = scores.clone()
    rivals[:, label] = -torch.inf
    return scores[:, label] - rivals.amax(dim=1)


AGGREGATES: dict[str, type[Aggregate]] = {a.name: a for a in (MeanProbability, MeanLogProbability, LabelMajority)}
