"""The figure "effect of mask size": k = 6 Offset Tiling, ViT on ImageNet."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, published
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Reported, Threat
from certmask.experiments.threats import PAPER_FOLD, TWO_PERCENT

MASKS = (40, 48, 56, 64, 80, 96, 120)
PLACE = "Detailed Parameter Analysis, mask size (text)"


def cases(_: Threat) -> tuple[Case, ...]:
    unanimity = [published(f"published, mask {m}", "offset", m, PAPER_FOLD, paper=f"mask {m}") for m in MASKS]
    juries = [jury_detection(f"jury detection, mask {m}", "offset", m, PAPER_FOLD) for m in MASKS]
    return (*unanimity, *juries)


FIGURE_MASK_SIZE = Experiment(
    name="figure-mask-size",
    title="Effect of the mask size, k = 6",
    place="Figure: the effect of mask size on defense performance",
    threats=TWO_PERCENT,
    cases=cases,
    reported=(
        Reported("mask 40", "ViT", "imagenet", "2 %", PLACE, robust=76.0, robust_sign="about"),
        Reported("mask 120", "ViT", "imagenet", "2 %", PLACE, robust=62.0, robust_sign="about"),
    ),
    comparisons=(
        Comparison("published test: mask 40 against mask 120", "published, mask 40", "published, mask 120"),
        Comparison("juries against unanimity at mask 120", "jury detection, mask 120", "published, mask 120", THEOREM),
    ),
    plot=Plot.against("mask", "clean_accuracy", "published_test", "certified_detection", "false_alerts"),
    notes=(
        "The paper does not say which patch this figure is about; 2 % is our reading (a 3 % patch leaves a mask of 40 "
        "pixels an effective coverage of one pixel: 301,056 masks).",
    ),
)
