"""No defence: the class that a network of local evidence is for on average, for comparison."""

from __future__ import annotations

import torch
from torch import Tensor

from certmask.certificate import Guarantee
from certmask.evidence.maps import LARGEST, Hypotheses
from certmask.evidence.rule import EvidenceRule


class Averaging(EvidenceRule):
    """Answer the class with the largest sum of local logits, no class ever being proved ahead of another one."""

    name = "undefended"
    guarantee = Guarantee.NONE

    def local(self, logits: Tensor) -> Tensor:
        return logits.double().clamp(-LARGEST, LARGEST)

    def totals(self, values: Tensor, sets: Hypotheses) -> Tensor:
        return values.sum(dim=(1, 2))

    def ahead(self, values: Tensor, labels: Tensor, sets: Hypotheses) -> Tensor:
        return torch.zeros_like(values[:, :1, :1], dtype=torch.bool)
