"""Clipped BagNet (Zhang et al. 2020): local evidence is squashed, so no cell can say more than so much."""

from __future__ import annotations

import torch
from torch import Tensor

from certmask.errors import VoteError
from certmask.evidence.maps import ONE, EvidenceMaps, Hypotheses, beside, outside_of
from certmask.evidence.rule import EvidenceRule, of_labels


class ClippedBagNet(EvidenceRule):
    """Answer the class with the largest sum of evidence ``tanh(0.05·u − 1)``; the smallest class on a tie.

    ``u`` are local logits; NaN says the least, −1.
    Certificate: for every ``t`` and every class ``c ≠ y``, over the cells outside ``A(t)`` the evidence for ``y`` is
    ahead of that for ``c`` by more than ``2·|A(t)|``. A patch in ``t`` leaves that lead alone. Each cell of ``A(t)``
    can at worst say −1 for ``y`` and 1 for ``c``, which takes 2 from the lead (less than 2 where the evidence is a
    true tanh; rounded, it reaches 1). So ``y`` stays strictly ahead of every class.
    """

    name = "clipped bagnet"
    nothing = -1.0

    def local(self, logits: Tensor) -> Tensor:
        return torch.tanh(0.05 * logits.double() - 1)

    def totals(self, values: Tensor, sets: Hypotheses) -> Tensor:
        return values.sum(dim=(1, 2))

    def ahead(self, values: Tensor, labels: Tensor, sets: Hypotheses) -> Tensor:
        outside = outside_of(values, sets)
        lead = of_labels(outside, labels)[..., None] - outside
        return lead > beside(values, 2 * ONE * sets.sizes + self.units)[:, :, None]

    def _checked(self, maps: EvidenceMaps) -> EvidenceMaps:
        low, high = maps.range
        if max(-low, high) > ONE:
            raise VoteError(f"expected evidence from -1 to 1, got {max(-low, high) / ONE:g} or its negative")
        return maps
