"""Threats beyond one square side by side: several patches, rectangles of any shape, patches of unknown size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certmask.experiments import paper_tables as paper
from certmask.experiments.experiment import DeclaredDefence, Experiment, LabelledPatch
from certmask.experiments.paper_tables import LEVELS, ZOOM, ZOOM_DETECTION

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


def _ladder(levels: tuple[Level, ...], *leads: float) -> DeclaredDefence:
    """Recovery from two patches through these levels, all but the last with a lead that settles a question."""
    ladder = "-".join(map(str, levels))
    told = {"thresholds": leads, "claim_thresholds": leads} if leads else {}
    name = f"{ladder}, {', '.join(f'{lead:g}' for lead in leads)}" if leads else f"{ladder} alone"
    return DeclaredDefence(name, "zoom", "zoom", levels=levels, series=f"zoom {ladder}", against=TWO, parameters=told)


def from_two_patches(_: LabelledPatch) -> tuple[DeclaredDefence, ...]:
    return (
        DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6),
        _ladder((3,)),
        _ladder((4,)),
        *(_ladder(PAIRS, lead) for lead in (0.2, 0.5, 0.8, 0.95, 0.99, 0.999)),
        *(_ladder((4, 6), lead) for lead in (0.8, 0.95, 0.99)),
        *(_ladder((3, 4, 6), *leads) for leads in ((0.95, 0.8), (0.99, 0.95))),
    )


def beyond_one_square(_: LabelledPatch) -> tuple[DeclaredDefence, ...]:
    return (
        DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6),
        ZOOM,
        ZOOM_DETECTION,
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


TWO_PATCHES = Experiment(
    "two-patches", "Recovery from two patches: levels and leads", "beyond the paper",
    {"imagenet": (paper.PATCHES["2 %"],), "cifar10": (paper.PATCHES["2.4 %"],)}, from_two_patches,
    notes=("Masks per axis of each level, then the lead that settles a question on all but the last.",),
)  # fmt: skip
