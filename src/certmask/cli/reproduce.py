"""``certmask reproduce``: plan, run or only report the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import typer

from certmask.classifier import Classifier
from certmask.cli.certify import recorded, run_margin
from certmask.cli.choices import Choices
from certmask.cli.console import out as screen
from certmask.cli.console import progress_bar
from certmask.data import Dataset, check_source, load_dataset
from certmask.errors import CertmaskError, ResultsError
from certmask.experiments import COUNTS, Experiment, chosen
from certmask.experiments.plan import Limits, Run, check_patches, planned, slug
from certmask.experiments.reading import result_paths
from certmask.experiments.running import perform
from certmask.experiments.writing import Written, report, report_counts
from certmask.report.tables import Cell, Heading, Table, markdown_table
from certmask.threat import Size
from certmask.zoo import DEFAULT_MODEL, class_aliases, framing_of
from certmask.zoo.card import read_card
from certmask.zoo.models import checkpoint_path
from certmask.zoo.timm_import import import_timm


@dataclass(frozen=True)
class Named:
    """What the user named: a label for files and tables, and the name, weights or path behind it."""

    label: str
    name: str
    weights: Path | None = None


def named_model(text: str) -> Named:
    """``NAME``, ``NAME=WEIGHTS`` or a checkpoint with a card; ``…/mine/model.safetensors`` is called mine."""
    name, _, weights = text.partition("=")
    path = Path(name)
    label = name
    if name.endswith(".safetensors"):
        label = path.resolve().parent.name if path.stem == "model" else path.stem
    return Named(slug(label), name, Path(weights) if weights else None)


def named_data(text: str) -> Named:
    """``NAME=SOURCE``, or a source that is called by its own name."""
    label, separator, source = text.partition("=")
    if not separator or Path(text).exists():
        return Named(slug(Path(text).name.split(".")[0]), text)
    return Named(slug(label), source)


def patches_from(text: str | None) -> frozenset[str] | None:
    """``1,2,3`` → the numbers, as text."""
    return None if text is None else frozenset(part.strip().removesuffix("%").strip() for part in text.split(","))


def run(
    name: str, models: Sequence[str], data: Sequence[str], choices: Choices, limits: Limits, out: Path, *, dry: bool
) -> None:
    """Run every model on every data set, then write and print the tables; with ``all``, a line for each."""
    experiments = chosen(name)
    named = [named_model(text) for text in models], [named_data(text) for text in data]
    if experiments and not data:
        raise CertmaskError("expected --data NAME=PATH with labelled photos (or --data demo), got none")
    for what, list_of in zip(("model", "data set"), named, strict=True):
        _check_labels(what, list_of)
    check_patches(experiments, [source.label for source in named[1]], limits.patches)
    if dry:
        _print_plan(experiments, *named, limits)
        return
    for source in named[1]:
        check_source(source.name)
    for model in named[0] if experiments else ():
        _run_model(experiments, model, named[1], choices, limits, out)
    _report(name, [experiment for experiment in experiments if result_paths(experiment, out)], out, out)
    screen.print(f"results, tables and plots in {out}", markup=False)


def run_report(name: str, results: Path, out: Path) -> None:
    """Tables and plots from results files alone; with ``all``, of every experiment that has some."""
    experiments = chosen(name)
    if name == "all":
        experiments = tuple(e for e in experiments if result_paths(e, results))
        if not experiments:
            raise ResultsError(f"expected a folder with results of experiments, got none in {results}")
    _report(name, experiments, results, out)
    screen.print(f"tables and plots in {out}", markup=False)


def _report(name: str, experiments: Sequence[Experiment], results: Path, out: Path) -> None:
    """Write all tables; print those of one experiment, or one line for each of ``all``."""
    if name in (COUNTS, "all"):
        _print(report_counts(out), name)
    for experiment in experiments:
        _print(report(experiment, results, out), name)


def _print(written: Written, name: str) -> None:
    typer.echo(written.line if name == "all" else written.markdown)


def _check_labels(what: str, named: Sequence[Named]) -> None:
    labels = [n.label for n in named]
    for label in labels:
        if labels.count(label) > 1:
            raise CertmaskError(f"expected every {what} under its own name, got {label!r} twice")


def _run_model(
    experiments: Sequence[Experiment],
    model: Named,
    data: Sequence[Named],
    choices: Choices,
    limits: Limits,
    out: Path,
) -> None:
    choices = replace(choices, model=model.name, weights=model.weights)
    fixed = choices.fixed_margin()
    torch.compiler.reset()  # torch stops compiling after a few models
    classifier = choices.classifier()
    for source in data:
        dataset = load_dataset(source.name, class_aliases(classifier), framing_of(model.name))
        measured: float | None = fixed
        for experiment in experiments:
            for one in planned(experiment, model.label, source.label, classifier.size, limits):
                margin, measured = _margin(one, classifier, dataset, out, measured, given=fixed is not None)
                _perform(one, classifier, dataset, out, margin, given=fixed is not None)


def _margin(
    one: Run, classifier: Classifier, dataset: Dataset, out: Path, known: float | None, *, given: bool
) -> tuple[float, float]:
    """The margin of a run, and the one to go on with: as given, as in its file, or measured once per data set."""
    if known is not None and (given or not one.path(out).exists()):
        return known, known
    header, _ = recorded(one.path(out))
    margin, origin = run_margin(classifier, [one.cases[0].cover(one.threat, one.image)], dataset, header)
    screen.print(f"margin {margin:.3g} ({origin})", markup=False)
    return margin, known if known is not None else margin


def _perform(one: Run, classifier: Classifier, dataset: Dataset, out: Path, margin: float, *, given: bool) -> None:
    left_out = [case.name for case in one.cases if case.in_logarithms and not given]
    if left_out:
        screen.print(f"left out without --margin NUMBER: {'; '.join(left_out)}", markup=False)
    count = len(dataset.spread(one.images))
    few = f" (only {count}: a cover has so many masks)" if one.few else ""
    screen.print(f"{one.path(out).stem}: {len(one.cases)} defences, {count:,} images{few}", markup=False)
    with progress_bar(count) as progress:
        perform(one, classifier, dataset, out, progress, margin, given=given)


def _print_plan(
    experiments: Sequence[Experiment], models: Sequence[Named], data: Sequence[Named], limits: Limits
) -> None:
    """What every run takes at most; a proof ends at the first wrong vote, so most images take far less."""
    runs = [
        one
        for experiment in experiments
        for model in models
        for source in data
        for one in planned(experiment, model.label, source.label, input_size(model), limits)
    ]
    columns = (Heading("run", words=True), *map(Heading, ("masks", "pairs", "images", "passes at most")))
    note = "Two-mask passes (pairs) are made only for images whose single masks leave a certificate possible."
    title = "Passes per image, and of the whole run where --images is given"
    typer.echo(markdown_table(Table(title, columns, [_plan_row(one) for one in runs], (note,))))


def _plan_row(one: Run) -> list[Cell]:
    singles, pairs = one.passes()
    images = "all" if one.images is None else f"{one.images:,}"
    total = f"{singles + pairs:,} each" if one.images is None else f"{(singles + pairs) * one.images:,}"
    return [Cell(str(one.path(Path()).with_suffix(""))), *map(Cell, (f"{singles:,}", f"{pairs:,}", images, total))]


def input_size(model: Named) -> Size:
    """The size of a model's input, without its weights."""
    checkpoint = checkpoint_path(model.name)
    if checkpoint is not None:
        return read_card(checkpoint).size
    timm = import_timm()
    name = f"tf_{DEFAULT_MODEL.replace('-', '_')}" if model.name == DEFAULT_MODEL else model.name
    if not timm.is_model(name):
        raise CertmaskError(f"expected a checkpoint with a card or a model name that timm knows, got {model.name!r}")
    height, width = timm.get_pretrained_cfg(name).input_size[1:]
    return height, width
