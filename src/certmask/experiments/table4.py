"""Table 4: k = 1 … 6 with Offset Tiling, mask 56, patch 3 %, ViT on ImageNet."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, published
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Reported, Threat
from certmask.experiments.threats import LARGEST

PRINTED = {1: (82.0, 78.6), 2: (80.8, 77.0), 3: (82.5, 76.2), 4: (83.4, 74.9), 5: (83.8, 75.7), 6: (84.5, 74.0)}
"""Clean and robust."""

FOLDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3)}
"""k as (height, width). The paper says 3 × 2 for k = 6; the other factors are our reading."""

MASK = 56


def cases(_: Threat) -> tuple[Case, ...]:
    unanimity = [published(f"published k={k}", "offset", MASK, fold, paper=f"k={k}") for k, fold in FOLDS.items()]
    juries = [jury_detection(f"jury detection k={k}", "offset", MASK, fold) for k, fold in FOLDS.items()]
    return (*unanimity, *juries)


TABLE4 = Experiment(
    name="table4",
    title="Coverage k = 1 … 6, Offset Tiling",
    place="Table 4",
    threats=LARGEST,
    cases=cases,
    reported=tuple(
        Reported(f"k={k}", "ViT", "imagenet", "3 %", "Table 4", clean, robust) for k, (clean, robust) in PRINTED.items()
    ),
    comparisons=(
        Comparison("juries against unanimity at k = 6", "jury detection k=6", "published k=6", THEOREM),
        Comparison("published test: k = 1 against k = 6", "published k=1", "published k=6"),
        Comparison("juries: k = 6 against k = 1", "jury detection k=6", "jury detection k=1"),
    ),
    plot=Plot.against("k", "clean_accuracy", "published_test", "certified_detection", "false_alerts"),
    notes=("The paper gives k = 3 × 2 only for k = 6; here k is 1×1, 2×1, 3×1, 2×2, 5×1, 3×2 (x × y).",),
)
