"""Threats beyond one square side by side: several patches, rectangles of any shape, patches of unknown size."""

from __future__ import annotations

from certmask.experiments import paper_tables as paper
from certmask.experiments.experiment import DeclaredDefence, Experiment, LabelledPatch
from certmask.experiments.zooming import LEVELS, SHIPPED, SHIPPED_DETECTION

TWO, SHAPES, SIZES = "two patches", "any rectangle of its area", "unknown size"
FEWER = (2, 3, 6)


def beyond_one_square(_: LabelledPatch) -> tuple[DeclaredDefence, ...]:
    return (
        DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6),
        DeclaredDefence(SHIPPED, "zoom", "zoom", levels=LEVELS),
        DeclaredDefence(SHIPPED_DETECTION, "zoom-detection", "zoom", levels=LEVELS),
        DeclaredDefence("zoom, two patches, 3×3 alone", "zoom", "zoom", levels=(3,), against=TWO),
        DeclaredDefence("zoom, two patches", "zoom", "zoom", levels=FEWER, against=TWO),
        DeclaredDefence("zoom detection, two patches", "zoom-detection", "zoom", levels=LEVELS, against=TWO),
        DeclaredDefence("pair detection, two patches", "pair-detection", "zoom", levels=LEVELS, against=TWO),
        DeclaredDefence("zoom, any rectangle", "zoom", "zoom", levels=FEWER, against=SHAPES),
        DeclaredDefence("zoom detection, any rectangle", "zoom-detection", "zoom", levels=FEWER, against=SHAPES),
        DeclaredDefence("zoom, unknown size", "zoom", "zoom", levels=FEWER, against=SIZES),
        DeclaredDefence("zoom detection, unknown size", "zoom-detection", "zoom", levels=FEWER, against=SIZES),
    )


REACH = Experiment(
    "reach", "Several patches, any rectangle, unknown size", "beyond the paper",
    {"imagenet": (paper.PATCHES["2 %"],), "cifar10": (paper.PATCHES["2.4 %"],)}, beyond_one_square,
    notes=(
        "Each row says what its defence holds off. Unknown size: certified against the largest, half as large again as "
        "the patch; the run has the certified size of every image (certmask table). Two patches, rectangles and sizes "
        "have levels of 2, 3 and 6 masks per axis, detection of two and one patch also 12, each as large as for one "
        "square patch of the same area.",
    ),
)  # fmt: skip
