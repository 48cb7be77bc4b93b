"""The commands that compare and report: their options. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import (
    BackendOption,
    BatchOption,
    DeviceOption,
    MarginOption,
    PrecisionOption,
)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table4, figure-mask-size, figure-patch-size, appendix-d, fold, pareto, "
            "counts, or all."
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="As for `certify`, or NAME=WEIGHTS; repeatable. Default: the paper's three."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="NAME=SOURCE, a source as for `certify`; imagenet, imagenette and cifar10 are the paper's."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results, tables, plots; runs are continued.")] = Path(
        "runs/reproduce"
    ),
    from_: Annotated[
        Path | None, typer.Option("--from", help="Only report: read the results in this folder, run nothing.")
    ] = None,
    images: Annotated[int | None, typer.Option("--images", min=1, help="Only so many images, evenly spaced.")] = None,
    patch_share: Annotated[
        str | None, typer.Option("--patch-share", help="Only these patches: 1,2,3 (figure-patch-size: 30,50 pixels).")
    ] = None,
    most_masks: Annotated[
        int, typer.Option("--most-masks", min=1, help="A cover with more masks sees only a few images.")
    ] = 20_000,
    few_images: Annotated[int, typer.Option("--few-images", min=1, help="How many those are.")] = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many passes each run takes.")] = False,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
) -> None:
    """The paper's tables and figures, and what goes beyond them: run every model on every data set, then report."""
    from certmask.cli.choices import Choices
    from certmask.cli.reproduce import patches_from, run, run_report
    from certmask.errors import CertmaskError
    from certmask.experiments import PAPER_MODELS
    from certmask.experiments.plan import Limits

    if from_ is not None:
        if model or data or images or patch_share or dry_run:
            raise CertmaskError("expected no choice of models, data, images or patches with --from, got one")
        run_report(name, from_, from_ if out == Path("runs/reproduce") else out)
        return
    limits = Limits(images, few_images, most_masks, patches_from(patch_share))
    choices = Choices("", None, None, None, "spread", None, [], "aligned", "mean-probability", 0.5, margin)
    choices = choices.on(device, precision, batch, backend)
    run(name, model or PAPER_MODELS, data or [], choices, limits, out, dry=dry_run)
