"""Threats beyond one square side by side: several patches, rectangles of any shape, patches of unknown size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certmask.experiments import paper_tables as paper
from certmask.experiments.experiment import DeclaredDefence, Experiment, LabelledPatch
from certmask.experiments.zooming import LEVELS, SHIPPED, SHIPPED_DETECTION

if TYPE_CHECKING:
    from certmask.covers.zoom import Level

TWO, SHAPES, SIZES = "two patches", "any rectangle of its area", "unknown size"
PAIRS: tuple[Level, ...] = (3, 6)
OF_SHAPES: tuple[Level, ...] = (2, 3, 4, 6)
OF_SIZES: tuple[Level, ...] = (2, 3, 6, 6)


def _pairs(lead: float) -> DeclaredDefence:
    """Recovery from two patches, where large masks settle what leads by more than this."""
    told = {"thresholds": lead, "claim_thresholds": lead}
    name = f"zoom, two patches, {lead:g}"
    return DeclaredDefence(name, "zoom", "zoom", levels=PAIRS, against=TWO, parameters=told)


def beyond_one_square(_: LabelledPatch) -> tuple[DeclaredDefence, ...]:
    return (
        DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6),
        DeclaredDefence(SHIPPED, "zoom", "zoom", levels=LEVELS),
        DeclaredDefence(SHIPPED_DETECTION, "zoom-detection", "zoom", levels=LEVELS),
        DeclaredDefence("zoom, two patches, 3×3 alone", "zoom", "zoom", levels=(3,), against=TWO),
        *map(_pairs, (0.2, 0.5, 0.8)),
        DeclaredDefence("zoom detection, two patches", "zoom-detection", "zoom", levels=LEVELS, against=TWO),
        DeclaredDefence("pair detection, two patches", "pair-detection", "zoom", levels=LEVELS, against=TWO),
        DeclaredDefence("zoom, any rectangle", "zoom", "zoom", levels=OF_SHAPES, against=SHAPES),
        DeclaredDefence("zoom detection, any rectangle", "zoom-detection", "zoom", levels=OF_SHAPES, against=SHAPES),
        DeclaredDefence("zoom, unknown size", "zoom", "zoom", levels=OF_SIZES, against=SIZES),
        DeclaredDefence("zoom detection, unknown size", "zoom-detection", "zoom", levels=OF_SIZES, against=SIZES),
    )


REACH = Experiment(
    "reach", "Several patches, any rectangle, unknown size", "beyond the paper",
    {"imagenet": (paper.PATCHES["2 %"],), "cifar10": (paper.PATCHES["2.4 %"],)}, beyond_one_square,
    notes=(
        "Each row says what its defence holds off. Unknown size: certified against the largest, half as large again as "
        "the patch; the run has the certified size of every image (certmask table). One patch, and detection of two, "
        "have levels of 2, 3, 6 and 12 masks per axis; unknown sizes 2, 3 and 6 for the largest, then 6 of their own; "
        "rectangles 2, 3, 4 and 6, masks as large as for a square of their area; recovery from two 3 and 6, with the "
        "lead that settles the former.",
    ),
)  # fmt: skip
