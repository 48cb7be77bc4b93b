"""The experiment that measures nothing: how many masks are needed, exactly, beside the paper's own counts."""

from __future__ import annotations

from typing import Any

from certmask.experiments.experiment import PAPER_SIDE
from certmask.experiments.paper_tables import MASKS, PAPER_FOLD, SIDES
from certmask.geometry import minimum_masks
from certmask.geometry.paper import offset_count, replicated_count, theorem3_bound
from certmask.threat import Patch

K = PAPER_FOLD[0] * PAPER_FOLD[1]


def mask_counts() -> list[dict[str, Any]]:
    """Masks for every patch and mask of the paper's Table 1 on a 224×224 input."""
    return [_mask_count(label, side, MASKS[label]) for label, side in SIDES.items()]


def _mask_count(label: str, side: int, mask: int) -> dict[str, Any]:
    setting = (PAPER_SIDE, PAPER_SIDE), Patch(side, side), (mask, mask)
    return {
        "patch": label,
        "side": side,
        "mask": mask,
        "paper_once": replicated_count(*setting, 1),
        "exact_once": minimum_masks(*setting, 1),
        "paper_offset": offset_count(*setting, PAPER_FOLD),
        "paper_bound": theorem3_bound(*setting, K),
        "exact_k": minimum_masks(*setting, K),
    }
