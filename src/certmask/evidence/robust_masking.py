"""PatchGuard's robust masking (Xiang et al. 2021): each class is judged without its strongest window."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.errors import CertmaskError, VoteError
from certmask.evidence.maps import LARGEST, EvidenceMaps, Hypotheses, beside, outside_of, sums
from certmask.evidence.rule import EvidenceRule, of_labels
from certmask.threat import Patch, Size


class RobustMasking(EvidenceRule):
    """Answer the class with the largest score: its sum ``S_c`` of evidence, without its strongest window.

    Evidence: local logits, or softmax of bands, clipped at 0; NaN says nothing, 0.
    A window counts as an attack, and is left out, if it holds more than the share ``threshold`` (``T``) of ``S_c``;
    with 0 the strongest window always is. The smallest class wins a tie.

    Certificate: for every ``t`` and every ``c ≠ y``, ``(1 − T)·(S_y(outside A(t)) − max_w S_y(w ∖ A(t)))`` exceeds
    ``S_c(outside A(t))``, or equals it and ``y < c``; the maximum is over the windows that share a cell with ``A(t)``
    or hold more than ``T·S_y(outside A(t))``. Whatever the patch shows, the score of ``y`` is at least the bracket:
    evidence is not negative, so ``S_y`` is at least ``S_y(outside A(t))``, and a window that is left out is one of
    these. And the score of ``c`` is at most ``S_c(outside A(t)) / (1 − T)``: some window ``w`` contains ``A(t)``. If
    one is left out, it is at least as strong as ``w``, and no more than ``S_c(outside w)`` remains. If none is, ``w``
    holds at most ``T·S_c``, so ``S_c`` is at most ``S_c(outside w) / (1 − T)``.
    """

    name = "robust masking"

    def __init__(self, patch: Patch | Size | int, threshold: float = 0.0, margin: float = 0.0) -> None:
        super().__init__(patch, margin)
        try:
            self.threshold = Fraction(str(threshold))
        except ValueError:
            self.threshold = Fraction(-1)
        if not 0 <= self.threshold < 1 or self.threshold.denominator > 1000:
            raise CertmaskError(f"expected a share of evidence from 0 to below 1, in thousandths, got {threshold!r}")

    def local(self, logits: Tensor) -> Tensor:
        return logits.double().clamp(0, LARGEST)

    def totals(self, values: Tensor, sets: Hypotheses) -> Tensor:
        total = values.sum(dim=(1, 2))
        strongest = sums(values, sets.window_rows, sets.window_columns).amax(dim=(1, 2))
        masked = self.threshold.denominator * strongest > self.threshold.numerator * total
        return total - torch.where(masked, strongest, 0)

    def ahead(self, values: Tensor, labels: Tensor, sets: Hypotheses) -> Tensor:
        part, whole = self.threshold.numerator, self.threshold.denominator
        outside = outside_of(values, sets)
        own = of_labels(outside, labels)
        least = own - self.most_masked(of_labels(values, labels), own, sets)
        lead = (whole - part) * least[..., None] - whole * outside
        wins_tie = labels[:, None] < torch.arange(values.shape[3], device=labels.device)
        return lead + wins_tie[:, None, None] > whole * self.units

    def most_masked(self, own: Tensor, outside: Tensor, sets: Hypotheses) -> Tensor:
        """The most that the label can lose outside ``A(t)`` to a window, ``[pictures, rows, columns]`` of sets.

        ``own [pictures, rows, columns]`` is its evidence, ``outside`` what it has outside ``A(t)`` at all.
        """
        in_windows = sums(own, sets.window_rows, sets.window_columns)[:, :, None]
        columns = sets.columns[:, None] & sets.window_columns
        lost = []
        for number, touched in enumerate(sets.rows):
            rows = touched & sets.window_rows
            shared = sums(own, rows, columns.reshape(-1, columns.shape[2])).reshape(len(own), -1, *columns.shape[:2])
            overlap = beside(own, np.multiply.outer(rows.any(axis=1), columns.any(axis=2)))
            may_hide = overlap | self.may_exceed(in_windows, outside[:, number, None, :, None])
            lost.append(torch.where(may_hide, in_windows - shared, 0).amax(dim=(1, 3)))
        return torch.stack(lost, dim=1)

    def may_exceed(self, window: Tensor, outside: Tensor) -> Tensor:
        """Whether windows that the patch does not touch may hold more than the share, once it has emptied its own."""
        part, whole = self.threshold.numerator, self.threshold.denominator
        return whole * (window + self.units) > part * outside

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": float(self.threshold)}

    def _checked(self, maps: EvidenceMaps) -> EvidenceMaps:
        if maps.range[0] < 0:
            raise VoteError("expected evidence of at least 0, got less")
        return maps
