"""``certmask plan``: integers only, no model and no torch unless it is about a photo."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certmask.cli.options import (
    AlignOption,
    BeforeJpegOption,
    DrawOption,
    FoldOption,
    ImageOption,
    JsonOption,
    LevelsOption,
    MaskOption,
    PatchAreaOption,
    PatchesOption,
    PatchInPhotoOption,
    PatchOption,
    PatchSizesOption,
    TilingOption,
)
from certmask.cli.sizes import check_levels, check_mask, make_threat, optional_levels, optional_size, parse_size
from certmask.cli.usage import asked_rightly
from certmask.errors import CoverError, UsageError

if TYPE_CHECKING:
    from certmask.covers import Cover
    from certmask.covers.default import Wishes
    from certmask.data.sticker import Sticker
    from certmask.threat import Patch, PhotoPatch, Size, Threat


def plan(
    image: ImageOption = None,
    patch: PatchOption = None,
    patches: PatchesOption = 1,
    patch_area: PatchAreaOption = None,
    patch_sizes: PatchSizesOption = None,
    levels: LevelsOption = None,
    align: AlignOption = None,
    tiling: TilingOption = None,
    mask: MaskOption = None,
    fold: FoldOption = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Most passes that one recovery certificate may take.")
    ] = None,
    patch_in_photo: PatchInPhotoOption = None,
    before_jpeg: BeforeJpegOption = False,
    photo: Annotated[
        Path | None, typer.Option("--photo", help="The photo that --patch-in-photo is in, as --model takes it.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Whose input the photo becomes; default: efficientnet-lite0.")
    ] = None,
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """What a cover costs: zoom's levels; with --tiling, --mask or --fold one cover, beside the paper's count."""
    from certmask.cli.outputs import check_picture
    from certmask.cli.sticker import typed, wanted_patch
    from certmask.covers.default import Wishes

    size, sticker = parse_size(image or "224", "image"), None
    wanted = wanted_patch(patch_in_photo, before_jpeg, (patch, patches, patch_area, patch_sizes))
    if (wanted is None) != (photo is None):
        raise UsageError("expected --photo and --patch-in-photo together, got one of them")
    if wanted is None or photo is None:
        if model:
            raise UsageError("expected --model beside --photo, got it alone")
    elif image:
        raise UsageError("expected --model beside --photo, whose input is planned for, got --image")
    else:
        sticker = _sticker(wanted, photo, model or "efficientnet-lite0")
        size, patch = sticker.image, typed(sticker.threat)
    wishes = Wishes(tiling, optional_size(mask, "mask"), optional_size(fold, "fold"), optional_levels(levels), align)
    threat = make_threat(patch, patches, patch_area, patch_sizes, size)
    check_picture(draw)
    zoom = tiling == "zoom" or not wishes.single
    if zoom and (mask or fold):
        raise UsageError(f"expected --levels with the tiling zoom, got {'--mask' if mask else '--fold'}")
    if not zoom and (levels or align):
        raise UsageError(f"expected {'--levels' if levels else '--align'} with the tiling zoom, got another")
    if wishes.mask is not None:
        check_mask(wishes.mask, size)
    with asked_rightly():
        covers = _zoom(size, threat, wishes, budget) if zoom else _single(size, threat, wishes, budget, json or draw)
    _tell(covers, json, sticker)
    if draw:
        from rich.console import Console

        from certmask.report.drawing import draw_cover

        (cover,) = covers
        draw_cover(cover, cover.levels or _other_sizes(cover), draw)
        Console(stderr=True).print(f"drawn in {draw}", markup=False, soft_wrap=True)


def _sticker(wanted: PhotoPatch, photo: Path, model: str) -> Sticker:
    """The patch in a photo, as a model takes it."""
    from certmask.data import read_photo
    from certmask.data.reach import stored
    from certmask.data.sticker import checked_sticker
    from certmask.zoo import card_of, framing_of

    framing = framing_of(model)
    framing.check(read_photo(photo), str(photo))
    return checked_sticker(stored(photo, wanted.before_jpeg), wanted, framing, card_of(model).size, str(photo))


def _zoom(size: Size, threat: Threat, wishes: Wishes, budget: int | None) -> list[Cover]:
    """The cover of several levels, the finest left out as far as the budget asks."""
    from certmask.covers.costs import zoom_within
    from certmask.covers.default import suited_cover

    cover = suited_cover(size, threat, wishes)
    if wishes.levels is not None or wishes.align is not None:
        check_levels(cover)
    return [cover if budget is None else zoom_within(budget, cover)]


def _single(size: Size, against: Threat, wishes: Wishes, budget: int | None, one: object) -> list[Cover]:
    """The cover that was asked for, or one within the budget; a choice of several where neither was, nor ``one``."""
    from dataclasses import replace

    from certmask.covers.bands import BAND_TILINGS
    from certmask.covers.costs import certificate_passes, cover_choice, cover_within
    from certmask.covers.default import mask_and_fold, suited_cover
    from certmask.threat import checked_patch

    threat = checked_patch(against)
    if threat.count > 1:
        raise UsageError(f"expected zoom's levels against {threat}, got another cover")
    tiling = wishes.tiling or "spread"
    if tiling in BAND_TILINGS:
        if wishes.mask or wishes.fold:
            raise UsageError(f"expected neither --mask nor --fold with the tiling {tiling}, got one")
        return [suited_cover(size, threat, wishes)]
    folds = mask_and_fold(size, threat, tiling, wishes.mask, wishes.fold, many=True)[1]
    if wishes.mask is None and budget is not None:
        return [cover_within(budget, cover_choice(size, threat, tiling, folds))]
    if wishes.mask is None and not one:
        return cover_choice(size, threat, tiling, folds)
    cover = suited_cover(size, threat, replace(wishes, tiling=tiling, fold=folds))
    if budget is not None and certificate_passes(cover) > budget:
        passes = certificate_passes(cover)
        raise UsageError(f"expected at most {budget} passes for a certificate, got {passes} with {cover}")
    return [cover]


def _tell(covers: list[Cover], json: bool, sticker: Sticker | None) -> None:
    """Print the figures of covers, in JSON those of the only one, and what they are made for in a photo."""
    from rich.console import Console

    from certmask.covers.costs import cover_figures, zoom_figures

    first = covers[0]
    if json:
        figures = zoom_figures(first) if first.levels else cover_figures(first)
        Console().print_json(dumps({**figures, **({"patch_in_photo": sticker.describe()} if sticker else {})}))
        return
    if sticker:
        Console(highlight=False).print(str(sticker), markup=False, soft_wrap=True)
    if first.levels:
        _print_levels(first)
    else:
        _print(covers, first.image, first.patch)


def _other_sizes(cover: Cover) -> list[Cover]:
    """Covers of the same fold with other masks; none where only the cover's own mask can give the fold."""
    from certmask.covers.costs import cover_choice

    try:
        return cover_choice(cover.image, cover.patch, cover.tiling, cover.fold)
    except CoverError:
        return []


def _print_levels(cover: Cover) -> None:
    """One row per level, and between what bounds the passes lie."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from certmask.covers.costs import zoom_figures

    found, (height, width) = zoom_figures(cover), cover.image
    title = f"zoom cover, {len(cover.levels)} levels, of {height}×{width} against {cover.threat}".rstrip(",")
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    together = "pairs" if cover.threat.count == 1 else "sets"
    for heading in ("level", "mask", "masks", together, "answer, if it\nends here", "proof, if it\nends here"):
        grid.add_column(heading, justify="right", overflow="fold")
    for number, level in enumerate(found["levels"], start=1):
        fold = "" if level["fold"] == [1, 1] else f" (fold {level['fold'][0]}×{level['fold'][1]})"
        size = f"{level['sizes']}{fold}"
        grid.add_row(str(number), size, *(f"{level[key]:,}" for key in ("masks", "pairs", "answer", "proof")))
    console = Console(highlight=False)
    console.print(grid)
    answer, proof = (f"{found[key]['least']:,} to {found[key]['most']:,}" for key in ("answer", "proof"))
    said = f"  {found['cells']:,} places{_hypotheses(found)}; passes to answer: {answer}, to prove recovery: {proof}"
    console.print(said, style="dim")
    if cover.threat.count > 1:
        console.print(f"  to prove detection, which takes no pairs: up to {found['detection']:,}", style="dim")
    console.print("  finer levels look only at places and pairs that leave coarser ones in doubt", style="dim")


def _hypotheses(figures: dict[str, Any]) -> str:
    """Sets of places, where several patches are at several places at once."""
    return "" if figures["hypotheses"] == figures["cells"] else f", {figures['hypotheses']:,} sets of them"


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
