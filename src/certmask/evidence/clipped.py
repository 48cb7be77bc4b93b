"""Clipped BagNet (Zhang et al. 2020): local evidence is squashed, so no cell can say more than so much."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.errors import CertmaskError, VoteError
from certmask.evidence.maps import ONE, EvidenceMaps, Hypotheses, beside, outside_of
from certmask.evidence.rule import EvidenceRule, of_labels
from certmask.threat import Patch, Size

SLOPE = 0.05
"""As published."""


class ClippedBagNet(EvidenceRule):
    """Answer the class with the largest sum of evidence ``tanh(slope·u − 1)``; the smallest class on a tie.

    ``u`` are local logits; NaN says the least, −1. The slope as published, 0.05, is for BagNets trained on ImageNet,
    whose logits are large; it belongs to the function, and any other certifies as truly.
    Certificate: for every ``t`` and every class ``c ≠ y``, over the cells outside ``A(t)`` the evidence for ``y`` is
    ahead of that for ``c`` by more than ``2·|A(t)|``. A patch in ``t`` leaves that lead alone. Each cell of ``A(t)``
    can at worst say −1 for ``y`` and 1 for ``c``, which takes 2 from the lead (less than 2 where the evidence is a
    true tanh; rounded, it reaches 1). So ``y`` stays strictly ahead of every class.
    """

    name = "clipped bagnet"
    nothing = -1.0

    def __init__(self, patch: Patch | Size | int, slope: float = SLOPE, margin: float = 0.0) -> None:
        super().__init__(patch, margin)
        if isinstance(slope, bool) or not isinstance(slope, (int, float, np.floating)) or not 0 < slope < np.inf:
            raise CertmaskError(f"expected a slope above 0, got {slope!r}")
        self.slope = float(slope)

    def local(self, logits: Tensor) -> Tensor:
        return torch.tanh(self.slope * logits.double() - 1)

    def totals(self, values: Tensor, sets: Hypotheses) -> Tensor:
        return values.sum(dim=(1, 2))

    def ahead(self, values: Tensor, labels: Tensor, sets: Hypotheses) -> Tensor:
        outside = outside_of(values, sets)
        lead = of_labels(outside, labels)[..., None] - outside
        return lead > beside(values, 2 * ONE * sets.sizes + self.units)[:, :, None]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "slope": self.slope}

    def _checked(self, maps: EvidenceMaps) -> EvidenceMaps:
        low, high = maps.range
        if max(-low, high) > ONE:
            raise VoteError(f"expected evidence from -1 to 1, got {max(-low, high) / ONE:g} or its negative")
        return maps
