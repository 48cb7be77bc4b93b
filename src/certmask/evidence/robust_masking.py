"""PatchGuard's robust masking (Xiang et al. 2021): each class is judged without its strongest window."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from torch import Tensor

from certmask.errors import CertmaskError, VoteError
from certmask.evidence.field import BoolArray, Field
from certmask.evidence.maps import EvidenceMaps, Hypotheses, hypotheses, sums
from certmask.evidence.rule import EvidenceRule, ahead_of_all
from certmask.geometry import IntArray
from certmask.threat import Patch, Size


def positive_evidence(numbers: Tensor, fields: tuple[Field, Field]) -> EvidenceMaps:
    """Local logits, or softmax of bands, ``[pictures, rows, columns, classes]``, clipped at 0; NaN says nothing, 0."""
    return EvidenceMaps.rounded(numbers.clamp(min=0), fields, nothing=0.0)


class RobustMasking(EvidenceRule):
    """Answer the class with the largest score: its sum ``S_c`` of evidence, without its strongest window.

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
            raise CertmaskError(f"expected a threshold from 0 to below 1, in thousandths, got {threshold!r}")

    def answers(self, maps: EvidenceMaps) -> IntArray:
        values, sets = _checked(maps).values, self.hypotheses(maps)
        total = values.sum(axis=(1, 2))
        strongest = sums(values, sets.window_rows, sets.window_columns).max(axis=(1, 2))
        masked = self.threshold.denominator * strongest > self.threshold.numerator * total
        return np.asarray((total - np.where(masked, strongest, 0)).argmax(axis=1))

    def holds(self, maps: EvidenceMaps, labels: IntArray) -> BoolArray:
        values, sets = _checked(maps).values, self.hypotheses(maps)
        part, whole = self.threshold.numerator, self.threshold.denominator
        outside = values.sum(axis=(1, 2))[:, None, None] - sums(values, sets.rows, sets.columns)
        own = np.take_along_axis(outside, labels[:, None, None, None], axis=3)[..., 0]
        least = own - self.most_masked(maps, labels, own, sets)
        lead = (whole - part) * least[..., None] - whole * outside
        wins_tie = labels[:, None] < np.arange(maps.classes)
        ahead = lead + wins_tie[:, None, None] > whole * self.units
        return ahead_of_all(ahead, labels)

    def hypotheses(self, maps: EvidenceMaps) -> Hypotheses:
        """What the patch may touch, and the windows."""
        return hypotheses(self.patch, maps.fields)

    def most_masked(self, maps: EvidenceMaps, labels: IntArray, outside: IntArray, sets: Hypotheses) -> IntArray:
        """The most that the label can lose outside ``A(t)`` to a window, ``[pictures, rows, columns]`` of sets.

        ``outside`` is what it has there at all.
        """
        own = np.take_along_axis(maps.values, labels[:, None, None, None], axis=3)[..., 0]
        in_windows = sums(own, sets.window_rows, sets.window_columns)[:, None, None]
        shared_rows, shared_columns = (
            (touched[:, None] & windows).reshape(-1, touched.shape[1])
            for touched, windows in ((sets.rows, sets.window_rows), (sets.columns, sets.window_columns))
        )
        shape = len(sets.rows), len(sets.window_rows), len(sets.columns), len(sets.window_columns)
        shared = sums(own, shared_rows, shared_columns).reshape(-1, *shape).swapaxes(2, 3)
        overlap = np.outer(shared_rows.any(axis=1), shared_columns.any(axis=1))
        may_hide = overlap.reshape(shape).swapaxes(1, 2) | self.may_exceed(in_windows, outside[..., None, None])
        return np.asarray((in_windows - shared).max(axis=(3, 4), where=may_hide, initial=0))

    def may_exceed(self, window: IntArray, outside: IntArray) -> BoolArray:
        """Whether windows that the patch does not touch may hold more than the share, once it has emptied its own."""
        part, whole = self.threshold.numerator, self.threshold.denominator
        return np.asarray(whole * (window + self.units) > part * outside)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": float(self.threshold)}


def _checked(maps: EvidenceMaps) -> EvidenceMaps:
    if maps.values.min(initial=0) < 0:
        raise VoteError("expected evidence of at least 0, got less")
    return maps
