"""``certmask certify``."""

from __future__ import annotations

from pathlib import Path

from certmask.certify import certify_run, recorded, run_margin
from certmask.cli.choices import Choices
from certmask.cli.console import err, figures_table, out, progress_bar
from certmask.data import check_source, load_dataset
from certmask.errors import DataError
from certmask.results.columns import figures
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
