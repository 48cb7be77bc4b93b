"""What rules on local evidence have in common: they answer from maps, and certify that no patch changes the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from certmask.certificate import Certificate, Guarantee, checked_margin
from certmask.errors import CertmaskError
from certmask.evidence.field import BoolArray
from certmask.evidence.maps import ONE, EvidenceMaps
from certmask.geometry import IntArray
from certmask.threat import Patch, Size, checked_patch


class EvidenceRule(ABC):
    """Turns maps of evidence into a class and, given the true one, into a certificate of recovery against a patch.

    With a margin ``m`` a certificate also holds if evidence moves between certification and use, as long as no
    difference of two sums, each of one class over any cells that the patch does not touch, moves by more than ``m``.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee] = Guarantee.RECOVERY
    unit: ClassVar[str] = "evidence"

    def __init__(self, patch: Patch | Size | int, margin: float = 0.0) -> None:
        self.patch = checked_patch(patch)
        self.margin = checked_margin(margin)

    @property
    def units(self) -> int:
        """The margin in whole units of evidence; no difference of sums moves by part of one."""
        return int(min(self.margin * ONE, 2.0**52))

    @abstractmethod
    def answers(self, maps: EvidenceMaps) -> IntArray:
        """The class of each picture, clean or attacked."""

    @abstractmethod
    def holds(self, maps: EvidenceMaps, labels: IntArray) -> BoolArray:
        """Whether the maps of *clean* pictures prove that each is answered with its label, whatever the patch."""

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


def ahead_of_all(ahead: BoolArray, labels: IntArray) -> BoolArray:
    """Whether each label is ahead, ``[pictures, rows, columns, classes]``, at every place of every class but itself."""
    own = labels[:, None] == np.arange(ahead.shape[3])
    return np.asarray((ahead.all(axis=(1, 2)) | own).all(axis=1))
