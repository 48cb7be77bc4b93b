"""``certmask certify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from certmask.certify import certify_run, photo_margin
from certmask.classifier import Classifier
from certmask.cli.choices import Choices
from certmask.cli.console import err, figures_table, out, progress_bar
from certmask.covers import Cover
from certmask.data import Dataset, check_source, load_dataset
from certmask.errors import DataError
from certmask.results.columns import figures
from certmask.results.file import Row, read_results
from certmask.results.run import read_run
from certmask.rules import Undefended
from certmask.zoo import class_aliases, framing_of


def run(source: str, choices: Choices, images: int | None, path: Path, *, skip_bad: bool) -> None:
    """Certify a data set with the chosen rules, then print the table."""
    fixed = choices.fixed_margin()
    check_source(source)
    classifier = choices.classifier()
    covers = choices.covers(classifier)
    dataset = load_dataset(source, class_aliases(classifier), framing_of(choices.model)).spread(images)
    if skip_bad:
        dataset, bad = dataset.readable()
        err.print(*(f"skipped: {line}" for line in bad), sep="\n", markup=False)
    before, done = recorded(path)
    margin, origin = (fixed, "as given") if fixed is not None else run_margin(classifier, covers, dataset, before)
    defences = choices.defences(covers, margin)
    out.print(f"{classifier.name}, {classifier.precision} on {classifier.device}; {len(dataset)} images")
    for defence in defences:
        if not isinstance(defence.rule, Undefended):
            out.print(f"  {defence.name}: {defence.cover}")
    if done:
        out.print(f"{path} has {len(done)} of {len(dataset)} images already", markup=False)
    with progress_bar(len(dataset)) as progress:
        try:
            certify_run(classifier, dataset, defences, path, progress=progress)
        except DataError as error:
            raise DataError(f"{error}; --skip-bad leaves such photos out (with an --out of its own)") from None
    found = read_run(path)
    out.print(figures_table(figures(found), f"{len(found.rows)} images, {classifier.name}"))
    for defence in defences:
        out.print(f"  {defence.name}: {defence.rule.guarantee.sentence}")
    out.print(f"margin {margin:.3g} ({origin}); saved in {path}", markup=False)


def recorded(path: Path) -> tuple[Row, list[Row]]:
    """Header and rows of a run to be continued; both empty where its file has not been begun."""
    begun = path.is_file() and b"\n" in path.read_bytes()
    return read_results(path) if begun else ({}, [])


def run_margin(classifier: Classifier, covers: Sequence[Cover], dataset: Dataset, header: Row) -> tuple[float, str]:
    """The margin that a run to be continued has recorded, else one measured on some of the images; and which it is."""
    if header:
        margins = (defence["rule"]["margin"] for defence in header.get("defences", {}).values())
        return max(margins, default=0.0), "as in the file"
    return photo_margin(classifier, covers, dataset), "measured"
