"""The commands that defend: their options. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import (
    AggregateOption,
    BackendOption,
    BatchOption,
    DeviceOption,
    DrawOption,
    FoldOption,
    ImageOption,
    JsonOption,
    MarginOption,
    MaskOption,
    ModelOption,
    PairsOption,
    PatchOption,
    PrecisionOption,
    RuleOption,
    ThresholdOption,
    TilingOption,
    WeightsOption,
)
from certmask.data.sources import sources_help


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
    from certmask.cli.plan import run

    run(image, patch, mask, tiling, fold, budget=budget, as_json=json, draw=draw)


def predict(
    photos: Annotated[list[Path], typer.Argument(help="Photos of any size.")],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = None,
    rule: Annotated[str, typer.Option("--rule", help="One of the rules that `certify` knows.")] = "jury-recovery",
    pairs: PairsOption = "aligned",
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = 0.5,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """Label each photo, say whether an alert is raised, and what is guaranteed. Exit code 3 if one raised an alert."""
    from certmask.cli.choices import Choices
    from certmask.cli.predict import run

    choices = Choices(model, weights, patch, mask, tiling, fold, [rule], pairs, aggregate, threshold, margin)
    alerted = run(photos, choices.on(device, precision, batch, backend), as_json=json, draw=draw)
    if alerted:
        raise typer.Exit(3)


def certify(
    data: Annotated[str, typer.Argument(help=sources_help())],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = None,
    rule: RuleOption = None,
    pairs: PairsOption = "aligned",
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = 0.5,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    images: Annotated[int | None, typer.Option("--images", min=1, help="Only so many images, evenly spaced.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/certify.jsonl"
    ),
) -> None:
    """Certify labelled photos: one row per image in a results file, then the table. Repeat --rule for several rules."""
    from certmask.cli.certify import run
    from certmask.cli.choices import Choices

    rules = rule or ["undefended", "jury-recovery"]
    choices = Choices(model, weights, patch, mask, tiling, fold, rules, pairs, aggregate, threshold, margin)
    run(data, choices.on(device, precision, batch, backend), images, out, skip_bad=skip_bad)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/demo.jsonl"
    ),
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
) -> None:
    """Certify 20 real photos with a real ImageNet model under several defences: one to two minutes on 2 cores."""
    from certmask.cli.demo import run

    run(out, device, precision, backend)
