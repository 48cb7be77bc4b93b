"""``certmask plan``: integers only, no model and no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from certmask.cli.sizes import make_cover, make_patch, mask_and_fold, parse_size
from certmask.covers import Cover
from certmask.covers.default import FOLD, default_mask
from certmask.errors import CertmaskError, CoverError, GeometryError
from certmask.geometry import minimum_masks, smallest_mask
from certmask.geometry.paper import offset_count, replicated_count, theorem3_bound
from certmask.threat import Patch, Size

PER_AXIS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24)
"""Masks per axis and fold that are tried when no mask size is given."""


def run(
    image: str,
    patch: str | None,
    mask: str | None,
    tiling: str,
    fold: str | None,
    *,
    budget: int | None,
    as_json: bool,
    draw: Path | None,
) -> None:
    """Print what a cover costs; without a mask size, a choice of them."""
    size = parse_size(image, "image")
    threat = make_patch(patch, size)
    fold = "x".join(map(str, mask_and_fold(size, threat, mask, tiling, fold)[1]))
    if mask is None and budget is None and not as_json and draw is None:
        _print(_choice(size, threat, tiling, fold), size, threat)
        return
    if mask is None and budget is not None:
        cover = _within(budget, _choice(size, threat, tiling, fold))
    else:
        cover = make_cover(size, threat, mask, tiling, fold)
        if budget is not None and passes(cover) > budget:
            raise CertmaskError(f"expected at most {budget} passes for a certificate, got {passes(cover)} with {cover}")
    if as_json:
        Console().print_json(json.dumps(figures(cover)))
    else:
        _print([cover], size, threat)
    if draw:
        from certmask.report.drawing import draw_cover

        draw_cover(cover, draw)
        Console(stderr=True).print(f"drawn in {draw}")


def figures(cover: Cover) -> dict[str, Any]:
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


def passes(cover: Cover) -> int:
    """Passes of a recovery certificate: all masks, and the fewest pairs that the cover allows."""
    return len(cover) + cover.pairs("aligned" if cover.grids else "all")


def _paper(cover: Cover, which: str) -> int | None:
    try:
        if which == "bound":
            return theorem3_bound(cover.image, cover.patch, cover.mask, cover.k)
        if cover.tiling == "replicated":
            return replicated_count(cover.image, cover.patch, cover.mask, cover.k)
        return offset_count(cover.image, cover.patch, cover.mask, cover.fold)
    except GeometryError:
        return None


def _choice(image: Size, patch: Patch, tiling: str, fold: str) -> list[Cover]:
    """Covers with masks from large to small."""
    sizes = dict.fromkeys(smallest_mask(image, patch, (n, n)) for n in PER_AXIS)
    covers = []
    for height, width in sizes:
        try:
            covers.append(make_cover(image, patch, f"{height}x{width}", tiling, fold))
        except (CoverError, GeometryError):
            continue  # this mask is too small for the fold
    if not covers:
        raise CertmaskError(f"expected a fold that some mask can give, got {fold} with tiling {tiling}")
    return covers


def _within(budget: int, covers: list[Cover]) -> Cover:
    """The smallest masks whose certificate fits into the budget."""
    fitting = [cover for cover in covers if passes(cover) <= budget]
    if not fitting:
        least = min(passes(cover) for cover in covers)
        raise CertmaskError(f"expected a budget of at least {least} passes for this fold, got {budget}")
    return fitting[-1]


def _print(covers: list[Cover], image: Size, patch: Patch) -> None:
    first = covers[0]
    title = (
        f"{first.tiling} cover, fold {first.fold[0]}×{first.fold[1]}, of {image[0]}×{image[1]} "
        f"against any {patch.height}×{patch.width} patch"
    )
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in (
        "mask",
        "masks",
        "fold,\nverified",
        "districts",
        "pairs",
        "aligned\npairs",
        "exact\nminimum",
        "paper's\ncount",
    ):
        grid.add_column(heading, justify="right")
    for cover in covers:
        f = figures(cover)
        fold = str(f["min_fold"]) if f["min_fold"] == f["max_fold"] else f"{f['min_fold']}…{f['max_fold']}"
        numbers = (f["districts"], f["pairs"], f["aligned_pairs"], f["exact_minimum"], f["paper_count"])
        masks = f"{f['masks']:,}" if f["masks"] == f["placed"] else f"{f['masks']:,} (placed {f['placed']:,})"
        grid.add_row(
            f"{cover.mask[0]}×{cover.mask[1]}", masks, fold, *("–" if n is None else f"{n:,}" for n in numbers)
        )
    console = Console(highlight=False)
    console.print(grid)
    console.print("  detection takes one pass per mask; a recovery certificate also looks at the pairs", style="dim")
    if len(covers) > 1 and first.tiling == "spread" and first.fold in ((1, 1), FOLD):
        rules = "jury-recovery" if first.fold == FOLD else "the other rules"
        default = default_mask(image, patch, first.fold)
        console.print(f"  default for {rules}: {default[0]}×{default[1]}", style="dim")
