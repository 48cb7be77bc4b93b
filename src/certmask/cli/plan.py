"""``certmask plan``: integers only, no model and no torch."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import (
    DrawOption,
    FoldOption,
    ImageOption,
    JsonOption,
    MaskOption,
    PatchOption,
    TilingOption,
)
from certmask.cli.sizes import check_mask, make_patch, optional_size, parse_size
from certmask.cli.usage import asked_rightly
from certmask.errors import CoverError, UsageError

if TYPE_CHECKING:
    from certmask.covers import Cover
    from certmask.threat import Patch, Size


def plan(
    image: ImageOption = "224",
    patch: PatchOption = None,
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Most passes that one recovery certificate may take.")
    ] = None,
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """What a cover costs: masks, verified fold, districts, pairs, beside the exact minimum and the paper's count."""
    from rich.console import Console

    from certmask.cli.outputs import check_picture
    from certmask.covers.costs import certificate_passes, cover_choice, cover_figures, cover_within
    from certmask.covers.default import mask_and_fold, suited_cover

    size, asked = parse_size(image, "image"), optional_size(mask, "mask")
    threat, folds = make_patch(patch, size), optional_size(fold, "fold")
    check_picture(draw)
    if asked is not None:
        check_mask(asked, size)
    with asked_rightly():
        folds = mask_and_fold(size, threat, tiling, asked, folds, many=True)[1]
        if asked is None and budget is None and not json and draw is None:
            _print(cover_choice(size, threat, tiling, folds), size, threat)
            return
        if asked is None and budget is not None:
            cover = cover_within(budget, cover_choice(size, threat, tiling, folds))
        else:
            cover = suited_cover(size, threat, tiling, asked, folds)
    passes = certificate_passes(cover)
    if budget is not None and passes > budget:
        raise UsageError(f"expected at most {budget} passes for a certificate, got {passes} with {cover}")
    if json:
        Console().print_json(dumps(cover_figures(cover)))
    else:
        _print([cover], size, threat)
    if draw:
        from certmask.report.drawing import draw_cover

        draw_cover(cover, _other_sizes(cover), draw)
        Console(stderr=True).print(f"drawn in {draw}", markup=False, soft_wrap=True)


def _other_sizes(cover: Cover) -> list[Cover]:
    """Covers of the same fold with other masks; none where only the cover's own mask can give the fold."""
    from certmask.covers.costs import cover_choice

    try:
        return cover_choice(cover.image, cover.patch, cover.tiling, cover.fold)
    except CoverError:
        return []


def _print(covers: list[Cover], image: Size, patch: Patch) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from certmask.covers.costs import cover_figures
    from certmask.covers.default import DEFAULT_FOLD, default_mask

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
        f = cover_figures(cover)
        fold = str(f["min_fold"]) if f["min_fold"] == f["max_fold"] else f"{f['min_fold']}…{f['max_fold']}"
        numbers = (f["districts"], f["pairs"], f["aligned_pairs"], f["exact_minimum"], f["paper_count"])
        masks = f"{f['masks']:,}" if f["masks"] == f["placed"] else f"{f['masks']:,} (placed {f['placed']:,})"
        grid.add_row(
            f"{cover.mask[0]}×{cover.mask[1]}", masks, fold, *("–" if n is None else f"{n:,}" for n in numbers)
        )
    console = Console(highlight=False)
    console.print(grid)
    console.print("  detection takes one pass per mask; a recovery certificate also looks at the pairs", style="dim")
    if len(covers) > 1 and first.tiling == "spread" and first.fold in ((1, 1), DEFAULT_FOLD):
        rules = "jury-recovery" if first.fold == DEFAULT_FOLD else "the other rules"
        default = default_mask(image, patch, first.fold)
        console.print(f"  default for {rules}: {default[0]}×{default[1]}", style="dim")
