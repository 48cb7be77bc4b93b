"""What covers cost: masks, pairs, passes, beside the exact minimum and the paper's counts."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from certmask.covers.cover import Cover, mask_text
from certmask.covers.default import Wishes, suited_cover
from certmask.covers.zoom import stacked_cover
from certmask.errors import CoverError, GeometryError
from certmask.geometry import minimum_masks, smallest_mask
from certmask.geometry.paper import offset_count, replicated_count, theorem3_bound
from certmask.threat import Patch, Size

PER_AXIS_TRIED = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24)
"""Masks per axis and fold that are tried when no mask size is given."""


def cover_figures(cover: Cover) -> dict[str, Any]:
    """The cover in numbers; ``paper_count`` is None where the paper's formulas do not apply."""
    return {
        "tiling": cover.tiling,
        "image": list(cover.image),
        "patch": list(cover.patch.size),
        "mask": list(cover.mask),
        "fold": list(cover.fold),
        "masks": len(cover),
        "placed": cover.placed,
        "min_fold": cover.min_fold,
        "max_fold": cover.max_fold,
        "min_jury": cover.min_jury,
        "districts": len(cover.districts),
        "pairs": cover.pairs(),
        "aligned_pairs": cover.pairs("aligned") if cover.grids else None,
        "exact_minimum": minimum_masks(cover.image, cover.patch, cover.mask, cover.k),
        "paper_count": _paper(cover, "count"),
        "paper_bound": _paper(cover, "bound"),
    }


def zoom_figures(cover: Cover) -> dict[str, Any]:
    """A cover of several levels in numbers.

    Each level's ``answer`` and ``proof`` are the passes if every place, and every pair, is settled there at the latest;
    an answer takes at least those of the first level and at most, with all duels and the bare picture, ``most``.
    """
    levels: list[dict[str, Any]] = []
    patches = cover.threat.count
    for count, level in enumerate(cover.levels, 1):
        so_far = stacked_cover(cover.levels[:count])
        told = {"mask": list(level.mask), "sizes": mask_text(level.describe()), "fold": list(level.fold)}
        passes = {"answer": so_far.sets(patches), "proof": certificate_passes(so_far)}
        together = level.sets(2 * patches) - level.sets(1)
        levels.append({**told, "masks": len(level), "pairs": together, **passes})
    return {
        "tiling": cover.tiling,
        "image": list(cover.image),
        "threat": cover.threat.describe(),
        "patches": [list(patch.size) for patch in cover.patches],
        "patch": list(cover.threat.boxes_on(cover.image)[0]),
        "align": cover.align,
        "masks": len(cover),
        "min_fold": cover.min_fold,
        "max_fold": cover.max_fold,
        "cells": len(cover.cells),
        "hypotheses": comb(len(cover.cells), min(patches, len(cover.cells))),
        "detection": cover.sets(patches),
        "levels": levels,
        "answer": {"least": _least(cover, 1), "most": levels[-1]["proof"] + 1},
        "proof": {"least": _least(cover, 2), "most": levels[-1]["proof"]},
    }


def _least(cover: Cover, rounds: int) -> int:
    """Passes if the first level settles everything: an answer in one round, in two a proof against the whole threat.

    Masks are asked about together if there are places for all patches under them. Of patches of unknown size, a proof
    asks about pairs with one of the largest.
    """
    patches, level, asked = cover.threat.count, cover.levels[0], set[tuple[int, ...]]()
    if patches > 1 and len(level) == len(cover.cells):
        return level.sets(rounds * patches) - level.sets(patches - 1)
    for own in cover.cells.masks[:, cover.level_columns[0]].T:
        masks, places = np.unique(own, return_counts=True)
        for size in range(1, min(rounds * patches, len(masks)) + 1):
            chosen = combinations(range(len(masks)), size)
            asked |= {tuple(masks[list(c)]) for c in chosen if places[list(c)].sum() >= min(patches, len(own))}
    if rounds == 2 and cover.threat.steps:
        others = len(level) - len(level.parts[cover.patches.index(cover.threat.steps[-1])])
        return len(asked) - others - comb(others, 2)
    return len(asked)


def zoom_within(budget: int, cover: Cover) -> Cover:
    """The cover's levels down to the finest one whose most expensive certificate fits into the budget."""
    proofs = [level["proof"] for level in zoom_figures(cover)["levels"]]
    if proofs[0] > budget:
        raise CoverError(f"expected a budget of at least {proofs[0]} passes for these levels, got {budget}")
    return stacked_cover(cover.levels[: sum(proof <= budget for proof in proofs)])


def certificate_passes(cover: Cover) -> int:
    """Passes of a recovery certificate: all masks, and the fewest pairs (sets, of patches) that the cover allows."""
    return cover.sets(2 * cover.threat.count) if cover.grids else len(cover) + cover.pairs("all")


def _paper(cover: Cover, which: str) -> int | None:
    try:
        if which == "bound":
            return theorem3_bound(cover.image, cover.patch, cover.mask, cover.k)
        if cover.tiling == "replicated":
            return replicated_count(cover.image, cover.patch, cover.mask, cover.k)
        return offset_count(cover.image, cover.patch, cover.mask, cover.fold)
    except GeometryError:
        return None


def cover_choice(image: Size, patch: Patch, tiling: str, fold: Size) -> list[Cover]:
    """Covers with masks from large to small."""
    sizes = dict.fromkeys(smallest_mask(image, patch, (n, n)) for n in PER_AXIS_TRIED)
    covers = []
    for height, width in sizes:
        try:
            covers.append(suited_cover(image, patch, Wishes(tiling, (height, width), fold)))
        except (CoverError, GeometryError):
            continue  # this mask is too small for the fold
    if not covers:
        raise CoverError(f"expected a fold that some mask can give, got {fold[0]}x{fold[1]} with tiling {tiling}")
    return covers


def cover_within(budget: int, covers: list[Cover]) -> Cover:
    """The smallest masks whose certificate fits into the budget."""
    fitting = [cover for cover in covers if certificate_passes(cover) <= budget]
    if not fitting:
        least = min(certificate_passes(cover) for cover in covers)
        raise CoverError(f"expected a budget of at least {least} passes for this fold, got {budget}")
    return fitting[-1]
