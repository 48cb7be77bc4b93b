"""HiCert (2025): a masked view that is not sure keeps a wrong answer from passing as well as one that disagrees."""

from __future__ import annotations

import numpy as np

from certmask.certificate import NO_CLASS
from certmask.geometry import IntArray
from certmask.rules.reports import ReportingRule
from certmask.votes import BoolArray, Heads


class HiCert(ReportingRule):
    """Answer the majority of the masks; alert unless all of them vote for it, none with a confidence below ``τ``.

    Certificate: in every jury some mask votes for the label, or votes for any class with a confidence below ``τ``. A
    patch there leaves that vote alone, so any other answer comes with an alert. The comparison is strict. The larger
    ``τ``, the more is certified and the more clean images raise an alert.
    """

    name = "hicert"
    takes_one = True

    def reports(self, heads: Heads, answers: IntArray) -> BoolArray:
        return np.asarray((heads.labels != answers[:, None]) | (heads.confidence < self.threshold))

    def warns(self, heads: Heads, labels: IntArray) -> BoolArray:
        unsure = heads.confidence < self.threshold - self.margin
        return np.asarray((heads.wins(labels[:, None], self.margin) | unsure) & (heads.labels != NO_CLASS))
