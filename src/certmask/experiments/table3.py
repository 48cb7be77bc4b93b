"""Table 3: Replicated against Offset Tiling, k = 6, mask 56, patch 3 % (CIFAR-10: 2.4 %)."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, published
from certmask.experiments.experiment import Case, Comparison, Experiment, Reported, Threat
from certmask.experiments.threats import LARGEST, PAPER_FOLD

PRINTED = {
    ("ResNet", "Replicated"): (99.5, 99.3, 77.9, 73.7, 96.1, 94.9),
    ("ResNet", "Offset"): (99.7, 98.6, 81.7, 68.5, 98.0, 92.4),
    ("ViT", "Replicated"): (99.4, 99.2, 82.0, 78.6, 98.4, 97.8),
    ("ViT", "Offset"): (99.6, 98.9, 84.5, 74.0, 98.8, 96.4),
    ("MLP", "Replicated"): (99.2, 99.0, 76.7, 72.5, 95.7, 94.1),
    ("MLP", "Offset"): (99.4, 98.5, 79.8, 67.9, 97.1, 90.8),
}
"""Clean and robust for ImageNette, ImageNet, CIFAR-10."""

MASK = 56


def cases(_: Threat) -> tuple[Case, ...]:
    return (
        published("published, Replicated k=6", "replicated", MASK, PAPER_FOLD, paper="Replicated"),
        published("published, Replicated k=1", "replicated", MASK, (1, 1)),
        published("published, Offset k=6", "offset", MASK, PAPER_FOLD, paper="Offset"),
        jury_detection("jury detection, Replicated k=6", "replicated", MASK, PAPER_FOLD),
        jury_detection("jury detection, Offset k=6", "offset", MASK, PAPER_FOLD),
    )


TABLE3 = Experiment(
    name="table3",
    title="Replicated against Offset Tiling, k = 6",
    place="Table 3",
    threats=LARGEST,
    cases=cases,
    reported=tuple(
        Reported(tiling, model, data, threats[0].label, "Table 3", row[2 * column], row[2 * column + 1])
        for (model, tiling), row in PRINTED.items()
        for column, (data, threats) in enumerate(LARGEST.items())
    ),
    comparisons=(
        Comparison("published test: Replicated against Offset", "published, Replicated k=6", "published, Offset k=6"),
        Comparison("juries: Offset against Replicated", "jury detection, Offset k=6", "jury detection, Replicated k=6"),
        Comparison("juries against unanimity on the Offset cover",
                   "jury detection, Offset k=6", "published, Offset k=6", THEOREM),
    ),
    notes=("Copies of a mask vote alike: Replicated Tiling passes the test for k = 6 just where it does for k = 1.",),
)  # fmt: skip
