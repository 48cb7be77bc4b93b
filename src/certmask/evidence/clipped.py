"""Clipped BagNet (Zhang et al. 2020): local evidence is squashed, so no cell can say more than so much."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from certmask.errors import VoteError
from certmask.evidence.field import BoolArray, Field
from certmask.evidence.maps import ONE, EvidenceMaps, hypotheses, sums
from certmask.evidence.rule import EvidenceRule, ahead_of_all
from certmask.geometry import IntArray


def clipped_evidence(logits: Tensor, fields: tuple[Field, Field]) -> EvidenceMaps:
    """``tanh(0.05·u − 1)`` of local logits ``u [pictures, rows, columns, classes]``; NaN says the least, −1."""
    return EvidenceMaps.rounded(torch.tanh(0.05 * logits.double() - 1), fields, nothing=-1.0)


class ClippedBagNet(EvidenceRule):
    """Answer the class with the largest sum of evidence from −1 to 1; the smallest class on a tie.

    Certificate: for every ``t`` and every class ``c ≠ y``, over the cells outside ``A(t)`` the evidence for ``y`` is
    ahead of that for ``c`` by more than ``2·|A(t)|``. A patch in ``t`` leaves that lead alone. Each cell of ``A(t)``
    can at worst say −1 for ``y`` and 1 for ``c``, which takes 2 from the lead (less than 2 where the evidence is a
    true tanh; rounded, it reaches 1). So ``y`` stays strictly ahead of every class.
    """

    name = "clipped bagnet"

    def answers(self, maps: EvidenceMaps) -> IntArray:
        return np.asarray(_checked(maps).values.sum(axis=(1, 2)).argmax(axis=1))

    def holds(self, maps: EvidenceMaps, labels: IntArray) -> BoolArray:
        values, sets = _checked(maps).values, hypotheses(self.patch, maps.fields)
        leads = np.take_along_axis(values, labels[:, None, None, None], axis=3) - values
        outside = leads.sum(axis=(1, 2))[:, None, None] - sums(leads, sets.rows, sets.columns)
        ahead = outside > (2 * ONE * sets.sizes + self.units)[:, :, None]
        return ahead_of_all(ahead, labels)


def _checked(maps: EvidenceMaps) -> EvidenceMaps:
    if np.abs(maps.values).max(initial=0) > ONE:
        raise VoteError(f"expected evidence from -1 to 1, got {np.abs(maps.values).max() / ONE:g} or its negative")
    return maps
