"""Minority Reports (McCoyd et al. 2020): alert when a masked view confidently disagrees."""

from __future__ import annotations

import numpy as np

from certmask.geometry import IntArray
from certmask.rules.reports import ReportingRule
from certmask.votes import BoolArray, Heads


class MinorityReports(ReportingRule):
    """Answer the majority of the masks; alert if some mask votes otherwise with a confidence above the threshold.

    Certificate: in every jury some mask votes for the label with a confidence above the threshold. A patch there
    leaves that vote alone, so any other answer comes with an alert. Both comparisons are strict.
    """

    name = "minority reports"

    def reports(self, heads: Heads, answers: IntArray) -> BoolArray:
        return np.asarray((heads.labels != answers[:, None]) & (heads.confidence > self.threshold))

    def warns(self, heads: Heads, labels: IntArray) -> BoolArray:
        return heads.wins(labels[:, None], self.margin) & (heads.confidence > self.threshold + self.margin)
