"""``certmask certify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import (
    AggregateOption,
    BackendOption,
    BatchOption,
    DeviceOption,
    FoldOption,
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
    votes: Annotated[
        Path | None,
        typer.Option("--votes", help="Folder to keep votes in; what it has of this model and photo is not made again."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/certify.jsonl"
    ),
) -> None:
    """Certify labelled photos: one row per image in a results file, then the table. Repeat --rule for several rules."""
    from certmask.certificate import Guarantee
    from certmask.certify import certify_run, recorded, run_margin
    from certmask.cli.choices import Choices
    from certmask.cli.console import err, figures_table, progress_bar
    from certmask.cli.console import out as screen
    from certmask.data import check_source, load_dataset
    from certmask.engine import Engine
    from certmask.errors import DataError
    from certmask.results.columns import figures
    from certmask.results.run import read_run
    from certmask.zoo import class_aliases, framing_of

    rules = rule or ["undefended", "jury-recovery"]
    choices = Choices(model, weights, patch, mask, tiling, fold, rules, pairs, aggregate, threshold, margin)
    choices = choices.on(device, precision, batch, backend)
    fixed = choices.fixed_margin()
    check_source(data)
    classifier = choices.classifier()
    covers = choices.covers(classifier)
    dataset = load_dataset(data, class_aliases(classifier), framing_of(model)).spread(images)
    if skip_bad:
        dataset, bad = dataset.readable()
        err.print(*(f"skipped: {line}" for line in bad), sep="\n", markup=False)
    engine = Engine(classifier, covers)
    before, done = recorded(out)
    lead, origin = (fixed, "as given") if fixed is not None else run_margin(engine, dataset, before)
    defences = choices.defences(covers, lead)
    screen.print(f"{classifier.name}, {classifier.precision} on {classifier.device}; {len(dataset)} images")
    for defence in defences:
        if defence.guarantee is not Guarantee.NONE:
            screen.print(f"  {defence.name}: {defence.cover}")
    if done:
        screen.print(f"{out} has {len(done)} of {len(dataset)} images already", markup=False)
    with progress_bar(len(dataset)) as progress:
        try:
            certify_run(engine, dataset, defences, out, votes=votes, progress=progress)
        except DataError as error:
            raise DataError(f"{error}; --skip-bad leaves such photos out (with an --out of its own)") from None
    found = read_run(out)
    screen.print(figures_table(figures(found), f"{len(found.rows)} images, {classifier.name}"))
    for defence in defences:
        screen.print(f"  {defence.name}: {defence.guarantee.sentence}")
    kept = f"; {sum(row['passes'] for row in found.rows):,} passes made, votes kept in {votes}" if votes else ""
    told = ", ".join(f"{own:.3g}" for own in sorted({defence.rule.margin for defence in defences if defence.covers}))
    screen.print(f"margin {told} ({origin}); saved in {out}{kept}", markup=False)
