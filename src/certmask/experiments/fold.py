"""Beyond the paper: what redundancy buys. Recovery and detection against the fold k."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, jury_recovery, published, two_mask_test
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Threat
from certmask.experiments.threats import TWO_PERCENT

FOLDS = {1: (1, 1), 2: (1, 2), 4: (2, 2), 6: (2, 3), 9: (3, 3)}
MASK = 80


def cases(_: Threat) -> tuple[Case, ...]:
    found: list[Case] = []
    for k, fold in FOLDS.items():
        found += [
            published(f"published k={k}", "spread", MASK, fold),
            jury_detection(f"jury detection k={k}", "spread", MASK, fold),
            two_mask_test(f"PatchCleanser's rule k={k}", MASK, fold),
            jury_recovery(f"jury recovery k={k}, all", fold, "all", mask=MASK, series="jury recovery, all pairs"),
            jury_recovery(f"jury recovery k={k}, aligned", fold, "aligned", mask=MASK,
                          series="jury recovery, aligned pairs"),
        ]  # fmt: skip
    return tuple(found)


def against_one_mask(k: int, pairs: str) -> Comparison:
    """At k = 1 PatchCleanser's test and the jury's are the same."""
    side = round(k**0.5)
    question = f"juries at fold {side}×{side} ({pairs} pairs) against PatchCleanser, same mask size"
    return Comparison(question, f"jury recovery k={k}, {pairs}", "PatchCleanser's rule k=1")


FOLD = Experiment(
    name="fold",
    title=f"Recovery and detection against the fold, mask {MASK}",
    place="beyond the paper",
    threats=TWO_PERCENT,
    cases=cases,
    comparisons=(
        *(against_one_mask(k, pairs) for k in (4, 9) for pairs in ("aligned", "all")),
        Comparison("juries against unanimity at k = 6", "jury detection k=6", "published k=6", THEOREM),
        Comparison("juries: k = 9 against k = 1", "jury detection k=9", "jury detection k=1"),
    ),
    plot=Plot.against("k", "published_test", "certified_detection", "false_alerts", "certified_recovery"),
)
