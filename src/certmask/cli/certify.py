"""``certmask certify``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import (
    AddressOption,
    AggregateOption,
    AlignOption,
    BackendOption,
    BandOption,
    BatchOption,
    BeforeJpegOption,
    ClaimThresholdsOption,
    DefenceOption,
    DeviceOption,
    EngineOption,
    FoldOption,
    LastResortOption,
    LevelsOption,
    MarginOption,
    MaskOption,
    ModelOption,
    PairsOption,
    PatchAreaOption,
    PatchesOption,
    PatchInPhotoOption,
    PatchOption,
    PatchSizesOption,
    PooledOption,
    PrecisionOption,
    RuleOption,
    ShardOption,
    ShareOption,
    SlopeOption,
    StrideOption,
    ThetaOption,
    ThresholdOption,
    ThresholdsOption,
    TilingOption,
    ViewsOption,
    VotesOption,
    WeightsOption,
    WorkerCpusOption,
    WorkerGpusOption,
    WorkersOption,
)
from certmask.data.sources import sources_help
from certmask.rules.registry import DEFAULT_PAIRS

if TYPE_CHECKING:
    from certmask.data import Dataset
    from certmask.results.run import Run


def certify(
    data: Annotated[str, typer.Argument(help=sources_help())],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    patches: PatchesOption = 1,
    patch_area: PatchAreaOption = None,
    patch_sizes: PatchSizesOption = None,
    patch_in_photo: PatchInPhotoOption = None,
    before_jpeg: BeforeJpegOption = False,
    rule: RuleOption = None,
    defence: DefenceOption = None,
    levels: LevelsOption = None,
    thresholds: ThresholdsOption = None,
    claim_thresholds: ClaimThresholdsOption = None,
    pooled: PooledOption = False,
    last_resort: LastResortOption = None,
    align: AlignOption = None,
    tiling: TilingOption = None,
    mask: MaskOption = None,
    fold: FoldOption = None,
    pairs: PairsOption = DEFAULT_PAIRS,
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = None,
    band: BandOption = None,
    stride: StrideOption = None,
    theta: ThetaOption = None,
    share: ShareOption = None,
    slope: SlopeOption = None,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    views: ViewsOption = "plain",
    images: Annotated[int | None, typer.Option("--images", min=1, help="Only so many images, evenly spaced.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
    votes: VotesOption = None,
    shard: ShardOption = None,
    engine: EngineOption = "here",
    address: AddressOption = None,
    workers: WorkersOption = None,
    worker_cpus: WorkerCpusOption = None,
    worker_gpus: WorkerGpusOption = None,
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/certify.jsonl"
    ),
) -> None:
    """Certify labelled photos: one row per image in a results file, then the table. Repeat --rule for several rules.

    With --patch-in-photo each photo has a defence against what such a patch reaches in the model's input. --engine ray
    has many machines make the same rows; --shard and `certmask merge` do without Ray.
    """
    from certmask.cli.choices import Choices
    from certmask.cli.console import err, passes, print_figures
    from certmask.cli.console import images as counted
    from certmask.cli.console import out as screen
    from certmask.cli.engines import Task, certified_here, certified_on_ray, chosen_pool, shard_of
    from certmask.cli.outputs import check_continued, check_folder
    from certmask.cli.sticker import chosen_for, reached, wanted_patch
    from certmask.errors import DataError
    from certmask.results.columns import figures
    from certmask.results.run import read_run

    pool = chosen_pool(engine, address, workers, worker_cpus, worker_gpus, device)
    wanted = wanted_patch(patch_in_photo, before_jpeg, (patch, patches, patch_area, patch_sizes), defence)
    rules = rule or (["undefended", "zoom"] if defence is None else ["undefended"])
    choices = Choices(
        model, weights, rules, defence, patch, mask, tiling, fold, levels, align, thresholds, claim_thresholds,
        pooled, last_resort, pairs, aggregate, threshold, margin, device, precision, batch, backend, views, band,
        stride, theta, share, slope, patches, patch_area, patch_sizes,
    )  # fmt: skip
    draft = choices if pool is None else replace(choices, device="auto")  # workers may have what is not here
    if not wanted:
        draft.check()
    check_continued(out)
    if votes is not None:
        check_folder(votes)
    whole = _photos(model, data, images, skip_bad)
    dataset = whole if shard is None else whole.shard(*shard_of(shard, len(whole)))
    stickers = whole.stickers(wanted, choices.card.size) if wanted else []
    family = [replace(one, device=device) for one in chosen_for(draft, stickers)] if wanted else [choices]
    task = Task(family, wanted, whole, dataset, out, votes, reached(wanted, stickers, family) if wanted else None)
    done = certified_here(task) if pool is None else certified_on_ray(task, pool)
    for reason in done.set_aside.values():
        err.print(f"set aside: {reason}", markup=False, soft_wrap=True)
    found = read_run(out)
    lines = figures(found)
    print_figures(lines, f"{counted(len(found.rows))}, {found.model['name']}")
    for name, line in zip(found.defences, lines, strict=True):
        screen.print(f"  {name}: {found.guarantee(name).sentence}")
        if line.photo_share is not None:
            screen.print(
                f"    in the stored photo: any patch of up to {line.photo_share:.1f} % of its shorter side (median)"
            )
    kept = f"; {passes(sum(row['passes'] for row in found.rows))} made, votes kept in {votes}" if votes else ""
    margins = {float(one["rule"].get("margin", 0.0)) for one in found.defences.values()}
    told = ", ".join(f"{own:.3g}" for own in sorted(margins))
    screen.print(f"margin {told} ({done.origin}); saved in {out}{kept}", markup=False)
    _tell_silence(found)
    if done.set_aside:
        raise DataError(
            f"expected a row of every photo, got none of {counted(len(done.set_aside))} that were set aside"
        )


def _photos(model: str, data: str, images: int | None, skip_bad: bool) -> Dataset:
    """The photos that were asked for, without those that cannot be read where that is wanted."""
    from certmask.cli.choices import photos_for
    from certmask.cli.console import err, waiting

    dataset = photos_for(model, data).spread(images)
    if not skip_bad:
        return dataset
    with waiting("looking for photos that cannot be read"):
        dataset, bad = dataset.readable()
    for line in bad:
        err.print(f"skipped: {line}", markup=False, soft_wrap=True)
    return dataset


def _tell_silence(run: Run) -> None:
    """Say which photos have votes that are no numbers; an error if one has no others."""
    from certmask.cli.console import err, images
    from certmask.errors import ClassifierError

    some = [row["image"] for row in run.rows if row.get("silent") and "error" not in row]
    if some:
        err.print(
            f"{images(len(some))} with votes that are no numbers and count for no class: {some[0]} …", markup=False
        )
    lost = [row for row in run.rows if "error" in row]
    if lost:
        raise ClassifierError(f"{lost[0]['error']}: {lost[0]['image']}, {len(lost)} of {images(len(run.rows))}")
