"""Minority Reports (McCoyd et al. 2020): alert when a masked view confidently disagrees."""

from __future__ import annotations

from typing import Any

import numpy as np

from certmask.certificate import Decision, Guarantee
from certmask.errors import CertmaskError
from certmask.rules.rule import Asking, Rule, majority
from certmask.votes import Votes, single_passes


class MinorityReports(Rule):
    """Answer the majority of the masks; alert if some mask votes otherwise with a confidence above the threshold.

    Certificate: in every jury some mask votes for the label with a confidence above the threshold. A patch there
    leaves that vote alone, so any other answer comes with an alert. Both comparisons are strict.
    """

    name = "minority reports"
    guarantee = Guarantee.DETECTION

    def __init__(self, threshold: float = 0.5, margin: float = 0.0) -> None:
        super().__init__(margin)
        if not 0 <= threshold < 1:
            raise CertmaskError(f"expected a threshold from 0 to below 1, got {threshold}")
        self.threshold = threshold

    def deciding(self, votes: Votes) -> Asking[Decision]:
        passes = single_passes(len(votes.cover))
        yield passes
        heads = votes.heads(passes)
        label = majority(heads.labels, np.array(votes.cover.copies))
        return Decision(label, bool(((heads.labels != label) & (heads.confidence > self.threshold)).any()))

    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        passes = single_passes(len(votes.cover))
        yield passes
        heads = votes.heads(passes)
        speaks = heads.wins(label, self.margin) & (heads.confidence > self.threshold + self.margin)
        juries = votes.cover.districts.juries
        return bool((speaks[juries] & (juries >= 0)).any(axis=1).all())

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": self.threshold}
