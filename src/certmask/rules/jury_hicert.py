"""HiCert with juries and levels: a place in doubt to the last keeps a wrong answer from passing, as dissent does."""

from __future__ import annotations

from typing import Any

import numpy as np

from certmask.errors import CertmaskError
from certmask.rules.aggregates import Aggregate
from certmask.rules.jury import Thresholds
from certmask.rules.jury_detection import DETECTION_THRESHOLDS, JuryDetection


class JuryHiCert(JuryDetection):
    """Answer ``c`` if every place settles for ``c``, else raise an alert; the last level settles above ``threshold``.

    Certificate: no place of the clean image settles for another class than the label; it may stay in doubt, if not all
    of its votes are silent. A patch in ``t`` leaves the votes on ``t`` alone, so ``t`` settles for the label or for
    nobody, and no other class is answered without an alert. A certified clean image raises one where a place is in
    doubt.
    """

    name = "jury hicert"
    quiet = False

    def __init__(
        self,
        aggregate: Aggregate | str | None = None,
        thresholds: Thresholds = DETECTION_THRESHOLDS,
        pooled: bool = False,
        threshold: float = 0.5,
        margin: float = 0.0,
    ) -> None:
        super().__init__(aggregate, thresholds, pooled, margin)
        number = isinstance(threshold, (int, float, np.floating)) and not isinstance(threshold, bool)
        if not number or not 0 <= threshold < np.inf:
            raise CertmaskError(f"expected a threshold of at least 0, got {threshold!r}")
        self.last = float(threshold)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "threshold": self.last}
