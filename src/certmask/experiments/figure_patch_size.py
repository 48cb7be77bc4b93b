"""The figures "clean" and "certified accuracy under different patch sizes": ViT on ImageNet, k = 6, 30 … 130 pixels."""

from __future__ import annotations

from certmask.experiments.defences import THEOREM, jury_detection, jury_recovery, patchcleanser, published
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Reported, Threat
from certmask.experiments.threats import PAPER_FOLD

SIDES = (30, 50, 70, 90, 110, 130)
PLACE = "Detailed Parameter Analysis, patch sizes (text)"
BEYOND = 16
"""How much larger the mask is than the patch: as for the 2 % patch of Table 1."""


def cases(threat: Threat) -> tuple[Case, ...]:
    mask = threat.side + BEYOND
    return (
        published("published k=6", "offset", mask, PAPER_FOLD, paper="CM"),
        jury_detection("jury detection k=6", "offset", mask, PAPER_FOLD),
        patchcleanser(6, paper="PC"),
        jury_recovery("jury recovery k=4, aligned", (2, 2), "aligned", per_axis=4),
    )


FIGURE_PATCH_SIZE = Experiment(
    name="figure-patch-size",
    title="Larger patches, k = 6",
    place="Figures: clean and certified robust accuracy under different patch sizes",
    threats={"imagenet": tuple(Threat(f"{side} px", side) for side in SIDES)},
    cases=cases,
    reported=(
        Reported("CM", "ViT", "imagenet", "130 px", PLACE, 80.0, 66.8, clean_sign="above", robust_sign="about"),
        Reported("PC", "ViT", "imagenet", "130 px", PLACE, robust=0.0, robust_sign="about"),
    ),
    comparisons=(
        Comparison("juries against unanimity", "jury detection k=6", "published k=6", THEOREM),
        Comparison("juries at fold 2×2 against PatchCleanser, at most 881 and 666 passes",
                   "jury recovery k=4, aligned", "PatchCleanser 6×6"),
    ),
    plot=Plot.against("patch", "clean_accuracy", "published_test", "certified_detection", "certified_recovery"),
    notes=("The paper does not give the masks of these figures; here the mask is 16 pixels larger than the patch.",),
)  # fmt: skip
