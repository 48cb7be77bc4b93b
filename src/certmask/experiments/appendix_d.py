"""Appendix D: larger masks on a convolutional network, and MSGreedyCutout beside CertMask on a transformer."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, published
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Reported, Threat
from certmask.experiments.threats import MASKS, PAPER_FOLD, share

PRINTED = {56: (81.7, 68.5), 88: (79.9, 61.4), 120: (79.5, 54.3)}
"""Mask side: clean and robust, ResNet."""

CNN, VIT = "Appendix D, convolutional networks", "Appendix D, vision transformers"


def cases(threat: Threat) -> tuple[Case, ...]:
    masks = (MASKS[threat.label], *PRINTED) if threat.label == "2 %" else tuple(PRINTED)
    unanimity = [published(f"published, mask {m}", "offset", m, PAPER_FOLD, paper=f"mask {m}") for m in masks]
    juries = [jury_detection(f"jury detection, mask {m}", "offset", m, PAPER_FOLD) for m in masks]
    return (*unanimity, *juries)


APPENDIX_D = Experiment(
    name="appendix-d",
    title="Larger masks, k = 6",
    place="Appendix D",
    threats={"imagenet": (share("2 %"), share("3 %"))},
    cases=cases,
    reported=(
        *(Reported(f"mask {m}", "ResNet", "imagenet", "2 %", CNN, *figures) for m, figures in PRINTED.items()),
        Reported("mask 48", "ViT", "imagenet", "2 %", VIT, 84.5, 75.5),
        Reported("MSGreedyCutout", "ViT", "imagenet", "2 %", VIT, 82.4, 64.9),
    ),
    comparisons=(
        Comparison("published test: mask 56 against mask 120", "published, mask 56", "published, mask 120"),
        Comparison("juries against unanimity at mask 120", "jury detection, mask 120", "published, mask 120", THEOREM),
    ),
    plot=Plot.against("mask", "clean_accuracy", "published_test", "certified_detection", "false_alerts"),
    notes=(
        'The paper says "2 % patch", but its figures for mask 56 are those of Table 1 for 3 %: both patches are run.',
        "The ViT figures are those of Table 1 for 2 % (mask 48). MSGreedyCutout is a way to train: its figure is given "
        "alone.",
    ),
)
