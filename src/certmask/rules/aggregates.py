"""Aggregates: fixed functions from a pool of class probabilities to one class.

``outputs`` is ``[rows, classes]``; ``pools`` is ``[pools, members]`` of row numbers, padded with -1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

CHUNK = 512
FLOOR = 1e-30


class Aggregate(ABC):
    """The winner of a pool depends on that pool's outputs alone; the smallest class wins a tie."""

    name: ClassVar[str]

    @abstractmethod
    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """One score per pool and class, ``[pools, classes]``."""

    def labels(self, outputs: Tensor, pools: Tensor) -> Tensor:
        """The winning class of each pool, ``[pools]``."""
        return torch.cat([self._scores(outputs, part).argmax(dim=1) for part in torch.split(pools, CHUNK)])

    def leads(self, outputs: Tensor, pools: Tensor, label: int) -> Tensor:
        """By how much ``label`` is ahead of the best other class of each pool, ``[pools]``."""
        return torch.cat([lead(self._scores(outputs, part), label) for part in torch.split(pools, CHUNK)])

    def wins(self, outputs: Tensor, pools: Tensor, label: int, margin: float) -> Tensor:
        """Whether ``label`` leads every other class of the pool by more than ``margin``, ``[pools]``."""
        return torch.cat([self._wins(outputs, part, label, margin) for part in torch.split(pools, CHUNK)])

    def _wins(self, outputs: Tensor, pools: Tensor, label: int, margin: float) -> Tensor:
        return lead(self._scores(outputs, pools), label) > margin


class _Mean(Aggregate):
    """Mean over the pool, summed member by member in double precision: the same order whatever else is computed."""

    @staticmethod
    @abstractmethod
    def _transform(outputs: Tensor) -> Tensor: ...

    def _scores(self, outputs: Tensor, pools: Tensor) -> Tensor:
        total = outputs.new_zeros((len(pools), outputs.shape[1]), dtype=torch.float64)
        for member in pools.unbind(dim=1):
            rows = self._transform(outputs[member.clamp(min=0)].double())
            total += torch.where(member[:, None] >= 0, rows, 0.0)
        return total / (pools >= 0).sum(dim=1, keepdim=True)


class MeanProbability(_Mean):
    """The class with the highest mean probability."""

    name = "mean probability"

    @staticmethod
    def _transform(outputs: Tensor) -> Tensor:
        return outputs


class MeanLogProbability(_Mean):
    """The class with the highest mean log-probability (probabilities floored at 1e-30)."""

    name = "mean log-probability"

    @staticmethod
    def _transform(outputs: Tensor) -> Tensor:
        return outputs.clamp(min=FLOOR).log()


class LabelMajority(Aggregate):
    """The class that most outputs of the pool rank first.

    With a margin, an output whose own first class does not lead by more than it counts for the strongest rival.
    """

    name = "label majority"

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


def lead(scores: Tensor, label: int) -> Tensor:
    """By how much ``label`` is ahead of the best other class, ``[rows]`` (negative when behind)."""
    rivals = scores.clone()
    rivals[:, label] = -torch.inf
    return scores[:, label] - rivals.amax(dim=1)


AGGREGATES: dict[str, type[Aggregate]] = {a.name: a for a in (MeanProbability, MeanLogProbability, LabelMajority)}
