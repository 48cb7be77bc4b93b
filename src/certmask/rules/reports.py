"""What rules of single masks that report have in common: the majority answers, and a report is an alert."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, Rule, majority
from certmask.votes import BoolArray, Heads, Votes


class ReportingRule(Rule):
    """Answer the majority of the masks; alert if some mask reports.

    Certificate: in every jury some mask ``warns``: whatever class but the label is answered, it reports. A patch there
    leaves its vote alone. A certified clean image may raise an alert.
    """

    guarantee = Guarantee.DETECTION
    quiet = False
    takes_one: ClassVar[bool] = False
    """Whether a threshold of 1 makes sense."""

    def __init__(self, threshold: float = 0.5, margin: float = 0.0) -> None:
        super().__init__(margin)
        number = isinstance(threshold, (int, float, np.floating))
        if not number or not (0 <= threshold < 1 or (self.takes_one and threshold == 1)):
            raise CertmaskError(
                f"expected a threshold from 0 to {'' if self.takes_one else 'below '}1, got {threshold!r}"
            )
        self.threshold = threshold

    @abstractmethod
    def reports(self, heads: Heads, answers: IntArray) -> BoolArray:
        """Which masks report where ``answers [pictures]`` are given, ``[pictures, masks]``."""

    @abstractmethod
    def warns(self, heads: Heads, labels: IntArray) -> BoolArray:
        """Which masks report any other answer than the labels, however votes move, ``[pictures, masks]``."""

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads, copies = votes.heads(singles), np.array(votes.cover.copies)
        answers = np.array([majority(labels, copies) for labels in heads.labels], dtype=np.int64)
        alerts = self.reports(heads, answers).any(axis=1) | (answers == NO_CLASS)
        return [Decision(int(label), bool(alert)) for label, alert in zip(answers, alerts, strict=True)]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        warns, juries = self.warns(votes.heads(singles), labels), votes.cover.districts.juries
        heard = np.asarray((warns[:, juries] & (juries >= 0)).any(axis=2))
        return np.asarray(heard.all(axis=1))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": self.threshold}
