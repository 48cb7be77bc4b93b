"""``certmask tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import (
    BackendOption,
    BatchOption,
    DeviceOption,
    ModelOption,
    PatchOption,
    PrecisionOption,
    ViewsOption,
    WeightsOption,
)
from certmask.data.sources import sources_help

if TYPE_CHECKING:
    from certmask.tuning import Choice

SPENT = ("prove", "answer")


def tune(
    data: Annotated[str, typer.Argument(help=sources_help())],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    passes: Annotated[float, typer.Option("--passes", min=1, help="Most passes, on average over photos.")] = 250,
    to: Annotated[str, typer.Option("--to", help="What they are spent on: prove (a certificate) or answer.")] = "prove",
    detection: Annotated[bool, typer.Option("--detection", help="Tune detection instead of recovery.")] = False,
    judge: Annotated[
        str | None, typer.Option("--judge", help="Other photos to judge on; default: every other one of DATA.")
    ] = None,
    images: Annotated[int | None, typer.Option("--images", min=2, help="Only so many images, evenly spaced.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    views: ViewsOption = "plain",
    out: Annotated[Path, typer.Option("--out", help="The defence, for --defence of other commands.")] = Path(
        "runs/tuned.json"
    ),
) -> None:
    """Find levels and thresholds for your model: chosen on some photos under a budget of passes, judged on others."""
    from certmask.certificate import Guarantee
    from certmask.certification import photo_margin
    from certmask.cli.choices import Choices, photos_for
    from certmask.cli.console import figures_table, progress_bar, waiting
    from certmask.cli.console import images as counted
    from certmask.cli.console import out as screen
    from certmask.cli.outputs import check_continued, check_file
    from certmask.defences import MaskedDefence, engine_covers
    from certmask.engine import Engine
    from certmask.errors import UsageError
    from certmask.results.columns import figures
    from certmask.rules.registry import listed
    from certmask.tuning import FIRST, PARTS, check_apart, halves, settings
    from certmask.tuning import tune as tuned

    if to not in SPENT:
        raise UsageError(f"expected --to to be prove or answer, got {to!r}")
    check_file(out)
    for part in PARTS:
        check_continued(out.with_suffix(f".{part}.jsonl"))
    rule, promise = ("zoom-detection", Guarantee.DETECTION) if detection else ("zoom", Guarantee.RECOVERY)
    choices = Choices(
        model, weights, [rule], patch=patch, device=device, precision=precision, batch=batch, backend=backend,
        views=views,
    )  # fmt: skip
    choices.check()
    dataset = photos_for(model, data).spread(images)
    choosing, judging = halves(dataset) if judge is None else (dataset, photos_for(model, judge).spread(images))
    check_apart(choosing, judging)
    with waiting("loading the model and measuring the margin"):
        classifier = choices.classifier()
        (shipped,) = choices.covers(classifier.grid)
        about = classifier.size, shipped.patch, shipped.align, promise
        engine = Engine(classifier, [*engine_covers(list(settings(*about))), shipped])
        margin = photo_margin(engine, choosing)
    beside = [
        MaskedDefence(shipped, listed(own).made(lead), own) for own, lead in (("undefended", None), (rule, margin))
    ]
    screen.print(f"{classifier.name}; {counted(len(choosing))} to choose on, {counted(len(judging))} to judge on")
    with progress_bar(min(FIRST, len(choosing)) + len(choosing) + len(judging)) as progress:
        found = tuned(
            engine, choosing, judging, list(settings(*about, margin)), beside, out, budget=passes, spent=to,
            progress=progress,
        )  # fmt: skip
    _print_front(found.choice)
    title = f"judged on {counted(len(found.judged.rows))} that it was not chosen on"
    screen.print(figures_table(figures(found.judged), title))
    screen.print(f"{found.defence.name} saved in {out}: certmask certify … --defence {out}", markup=False)


def _print_front(choice: Choice) -> None:
    from certmask.cli.console import figures_table
    from certmask.cli.console import images as counted
    from certmask.cli.console import out as screen

    on = counted(choice.taken.images)
    title = f"{len(choice.front)} of {len(choice.tried)} settings that no other beats, on {on} to choose on"
    screen.print(figures_table(list(choice.front), title))
    screen.print(f"taken: {choice.taken.defence}", markup=False)
