"""``certmask reproduce``: plan, run or only report the experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import (
    BackendOption,
    BatchOption,
    DeviceOption,
    MarginOption,
    PrecisionOption,
    ViewsOption,
    VotesOption,
)
from certmask.experiments import EXPERIMENTS

if TYPE_CHECKING:
    from certmask.classifier import Classifier
    from certmask.cli.choices import Choices
    from certmask.experiments.campaign import Campaign, Named
    from certmask.votes import Margin

OUT = Path("runs/reproduce")


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)}, or all.")],
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
    out: Annotated[Path, typer.Option("--out", help="Folder for results, tables, plots; runs are continued.")] = OUT,
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
    defence: Annotated[
        list[Path] | None,
        typer.Option("--defence", help="A model's own, from `tune`, beside those of the experiment; repeatable."),
    ] = None,
    votes: VotesOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many passes each run takes.")] = False,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    views: ViewsOption = "plain",
) -> None:
    """The paper's tables and figures, and what goes beyond them: run models on data sets, then report.

    A network of ImageNet, Imagenette or CIFAR-10 runs on that, where it is given, and not on the other two; else every
    model runs on every data set.
    """
    from certmask.cli.choices import Choices, pick_views
    from certmask.cli.outputs import check_folder
    from certmask.cli.usage import asked_rightly
    from certmask.errors import UsageError
    from certmask.experiments import PAPER_MODELS, chosen
    from certmask.experiments.campaign import Campaign, named_data, named_model, patch_numbers
    from certmask.experiments.sheets import plan_table
    from certmask.experiments.trials import Limits
    from certmask.report.tables import markdown_table

    with asked_rightly():
        experiments = chosen(name)
    check_folder(out)
    if votes is not None:
        check_folder(votes)
    if from_ is not None:
        if model or data or images or patch_share or defence or dry_run:
            raise UsageError("expected no choice of models, data, images, patches or defence with --from, got one")
        _report(name, from_, from_ if out == OUT else out)
        return
    cost, limits = (
        len(pick_views(views)),
        Limits(images, few_images, most_masks, patch_numbers(patch_share), votes=votes),
    )
    with asked_rightly():
        models, sources = (
            [named_model(text) for text in model or PAPER_MODELS],
            [named_data(text) for text in data or []],
        )
        campaign = Campaign(experiments, models, sources, limits, out, defence or [])
        campaign.check()
    if dry_run:
        typer.echo(markdown_table(plan_table(campaign.planned(), cost)))
        return
    choices = Choices("", margin=margin, device=device, precision=precision, batch=batch, backend=backend, views=views)
    _run(campaign, choices)
    _report(name, out, out, ran=True)


def _run(campaign: Campaign, choices: Choices) -> None:
    """Run models on data sets; all that can be checked without weights is checked for all of them first."""
    from dataclasses import replace

    from certmask.cli.choices import local_rules, photos_for
    from certmask.cli.console import out as screen
    from certmask.cli.console import progress_bar, waiting
    from certmask.data import check_source

    if not any(experiment.patches for experiment in campaign.experiments):
        return
    for source in campaign.data:
        check_source(source.name)
    chosen = {
        model: replace(choices, model=model.name, weights=model.weights, rules=local_rules(model.name))
        for model in campaign.models
    }
    for own in chosen.values():
        own.check()
    sets = {(model, source): photos_for(model.name, source.name) for model, source in campaign.pairs}
    _check_trials(campaign, choices.fixed_margin())

    def loaded(model: Named) -> Classifier:
        with waiting(f"loading {model.label}"):
            return chosen[model].classifier()

    campaign.run(
        loaded,
        lambda model, source: sets[model, source],
        choices.fixed_margin(),
        lambda line: screen.print(line, markup=False),
        progress_bar,
    )


def _check_trials(campaign: Campaign, margin: Margin | None) -> None:
    """An error for a margin that proves nothing, results that cannot be continued, a tuned defence of another kind."""
    from certmask.cli.choices import check_margin
    from certmask.cli.outputs import check_continued
    from certmask.cli.usage import asked_rightly

    for trial in campaign.planned():
        check_continued(trial.path(campaign.folder))
        if margin is not None or trial.tuned is not None:
            with asked_rightly():
                defences = trial.defences(margin)
            for defence in defences:
                check_margin(defence)


def _report(name: str, results: Path, out: Path, *, ran: bool = False) -> None:
    """Write all tables; print those of one experiment, or one line for each of ``all``."""
    from certmask.cli.console import out as screen
    from certmask.errors import ResultsError
    from certmask.experiments import chosen
    from certmask.experiments.writing import reportable, write_tables

    experiments = list(chosen(name))
    if ran or name == "all":
        experiments = reportable(experiments, results)
        if not ran and not any(experiment.patches for experiment in experiments):
            raise ResultsError(f"expected a folder with results of experiments, got none in {results}")
    for experiment in experiments:
        written = write_tables(experiment, results, out)
        typer.echo(written.line if name == "all" else written.markdown)
    screen.print(f"{'results, tables' if ran else 'tables'} and plots in {out}", markup=False)
