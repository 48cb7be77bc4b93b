"""Minority Reports (McCoyd et al. 2020): alert when a masked view confidently disagrees."""

from __future__ import annotations

from typing import Any

import numpy as np

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, Rule, majority
from certmask.votes import BoolArray, Votes


class MinorityReports(Rule):
    """Answer the majority of the masks; alert if some mask votes otherwise with a confidence above the threshold.

    Certificate: in every jury some mask votes for the label with a confidence above the threshold. A patch there
    leaves that vote alone, so any other answer comes with an alert. Both comparisons are strict.
    """

    name = "minority reports"
    guarantee = Guarantee.DETECTION
    quiet = False

    def __init__(self, threshold: float = 0.5, margin: float = 0.0) -> None:
        super().__init__(margin)
        if not isinstance(threshold, (int, float, np.floating)) or not 0 <= threshold < 1:
            raise CertmaskError(f"expected a threshold from 0 to below 1, got {threshold!r}")
        self.threshold = threshold

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads, copies = votes.heads(singles), np.array(votes.cover.copies)
        answers = np.array([majority(labels, copies) for labels in heads.labels], dtype=np.int64)
        reports = (heads.labels != answers[:, None]) & (heads.confidence > self.threshold)
        alerts = reports.any(axis=1) | (answers == NO_CLASS)
        return [Decision(int(label), bool(alert)) for label, alert in zip(answers, alerts, strict=True)]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        speaks = heads.wins(labels[:, None], self.margin) & (heads.confidence > self.threshold + self.margin)
        juries = votes.cover.districts.juries
        heard = np.asarray((speaks[:, juries] & (juries >= 0)).any(axis=2))
        return np.asarray(heard.all(axis=1))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": self.threshold}
