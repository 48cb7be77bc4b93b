"""What rules on local evidence have in common: they answer from maps, and certify that no patch changes the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from certmask.certificate import Certificate, Guarantee, checked_margin
from certmask.errors import CertmaskError
from certmask.evidence.field import BoolArray, Field
from certmask.evidence.maps import ONE, EvidenceMaps, Hypotheses, hypotheses
from certmask.geometry import IntArray
from certmask.threat import Patch, Size, checked_patch


class EvidenceRule(ABC):
    """Turns maps of evidence into a class and, given the true one, into a certificate of recovery against a patch.

    With a margin ``m`` a certificate also holds if evidence moves between certification and use, as long as no
    difference of two sums, each of one class over any cells that the patch does not touch, moves by more than ``m``.

    Everything is computed where the maps are, for some pictures at a time: for each, there are as many numbers as it
    has cells, sets or windows, times classes, and what robust masking compares is found for one set of rows at a time.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee] = Guarantee.RECOVERY
    unit: ClassVar[str] = "evidence"
    nothing: ClassVar[float] = 0.0
    """What a cell says that gave no number."""

    def __init__(self, patch: Patch | Size | int, margin: float = 0.0) -> None:
        self.patch = checked_patch(patch)
        self.margin = checked_margin(margin)

    @property
    def units(self) -> int:
        """The margin in whole units of evidence; no difference of sums moves by part of one."""
        return int(min(self.margin * ONE, 2.0**52))

    @abstractmethod
    def local(self, logits: Tensor) -> Tensor:
        """What each cell says by its logits ``[…, classes]``, in float64; differentiable."""

    @abstractmethod
    def totals(self, values: Tensor, sets: Hypotheses) -> Tensor:
        """The score of each class, ``[pictures, classes]``, by ``values [pictures, rows, columns, classes]``."""

    @abstractmethod
    def ahead(self, values: Tensor, labels: Tensor, sets: Hypotheses) -> Tensor:
        """Whether the label stays ahead of every class wherever the patch is, ``[pictures, rows, columns, classes]``.

        What is said of the label itself counts for nothing.
        """

    @final
    def evidence(self, logits: Tensor, fields: tuple[Field, Field]) -> EvidenceMaps:
        """The maps that the rule reads, from a network's ``logits [pictures, rows, columns, classes]``."""
        return EvidenceMaps.rounded(self.local(logits), fields, self.nothing)

    @final
    def scores(self, logits: Tensor, fields: tuple[Field, Field]) -> Tensor:
        """The scores ``[pictures, classes]`` of which the largest is the answer, but for rounding; differentiable."""
        return self.totals(self.local(logits), self.hypotheses(fields))

    def answers(self, maps: EvidenceMaps) -> IntArray:
        """The class of each picture, clean or attacked; the smallest one on a tie."""
        sets, found = self.hypotheses(maps.fields), [np.empty(0, dtype=np.int64)]
        for part in self._checked(maps).portions(sets):
            found.append(self.totals(maps.values[part], sets).argmax(dim=1).cpu().numpy())
        return np.concatenate(found)

    def holds(self, maps: EvidenceMaps, labels: IntArray) -> BoolArray:
        """Whether the maps of *clean* pictures prove that each is answered with its label, whatever the patch."""
        sets, found = self.hypotheses(maps.fields), [np.empty(0, dtype=bool)]
        own = torch.from_numpy(labels.astype(np.int64)).to(maps.values.device)
        for part in self._checked(maps).portions(sets):
            ahead = self.ahead(maps.values[part], own[part], sets)
            found.append(ahead_of_all(ahead, own[part]).cpu().numpy())
        return np.concatenate(found)

    def hypotheses(self, fields: tuple[Field, Field]) -> Hypotheses:
        """What the patch may touch, and the windows; found once for the same fields."""
        return _found(self.patch, fields)

    @final
    def certify(self, maps: EvidenceMaps, labels: IntArray) -> list[Certificate]:
        """A certificate for each picture."""
        if labels.shape != maps.values.shape[:1] or not np.all((labels >= 0) & (labels < maps.classes)):
            raise CertmaskError(f"expected a label from 0 to {maps.classes - 1} for each picture, got {labels!r}")
        return [
            Certificate(bool(holds), self.guarantee, int(label), self.patch.describe(), maps.image, self.describe())
            for holds, label in zip(self.holds(maps, labels), labels, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Name and parameters, as a results file records them."""
        return {"rule": self.name, "guarantee": self.guarantee.value, "margin": self.margin}

    def __repr__(self) -> str:
        told = ", ".join(f"{k}={v!r}" for k, v in self.describe().items() if k not in ("rule", "guarantee"))
        return f"{type(self).__name__}({self.patch.size}, {told})"

    def _checked(self, maps: EvidenceMaps) -> EvidenceMaps:
        """The maps, if they are evidence that the rule's proof allows."""
        return maps


_found = lru_cache(maxsize=16)(hypotheses)


def ahead_of_all(ahead: Tensor, labels: Tensor) -> Tensor:
    """Whether each label is ahead, ``[pictures, rows, columns, classes]``, at every place of every class but itself."""
    own = labels[:, None] == torch.arange(ahead.shape[3], device=labels.device)
    return (ahead.all(dim=1).all(dim=1) | own).all(dim=1)


def of_labels(values: Tensor, labels: Tensor) -> Tensor:
    """What values ``[pictures, a, b, classes]`` say for each picture's label, ``[pictures, a, b]``."""
    where = labels[:, None, None, None].expand(-1, *values.shape[1:3], 1)
    return values.gather(3, where)[..., 0]
