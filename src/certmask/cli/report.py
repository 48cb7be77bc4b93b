"""``certmask report``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from certmask.cli.console import out
from certmask.data import load_dataset
from certmask.errors import ResultsError
from certmask.report.page import page
from certmask.report.report import Report, csv_files, latex, markdown, read_report, write_text
from certmask.report.sections import Album
from certmask.zoo import imagenet_names, imagenet_synsets

IMAGENET = 1000


@dataclass(frozen=True)
class Forms:
    """Which tables are written beside the page."""

    markdown: bool = False
    csv: bool = False
    latex: bool = False


def run(paths: Sequence[Path], path: Path, forms: Forms, photos: str | None, gallery: int) -> None:
    """Write the page and, if asked for, its tables in other forms."""
    if path.suffix in (".md", ".tex", ".csv"):
        raise ResultsError(f"expected an HTML file for the page, got {path}")
    report = read_report(paths)
    files = {path: page(report, _album(report, photos, gallery))}
    files |= {path.with_suffix(".md"): markdown(report)} if forms.markdown else {}
    files |= {path.with_suffix(".tex"): latex(report)} if forms.latex else {}
    files |= csv_files(report, path.with_suffix(".csv")) if forms.csv else {}
    read = {source.resolve() for source in paths}
    for file in files:
        if file.resolve() in read:
            raise ResultsError(f"expected another file for the report than its results, got {file}")
    for file, text in files.items():
        write_text(file, text)
        out.print(f"saved {file} ({len(text.encode()) / 1000:,.0f} kB)", markup=False, soft_wrap=True)
    for line in report.broken:
        out.print(line, markup=False)


def _album(report: Report, source: str | None, cards: int) -> Album:
    """The photos by name; an error if no run knows any of them."""
    classes = {chapter.run.model.get("classes") for chapter in report.chapters}
    if source is None:
        return Album(cards=cards)
    is_imagenet = classes == {IMAGENET}
    aliases: Sequence[Sequence[str]] | None = None
    if is_imagenet:
        aliases = list(zip(imagenet_synsets(), imagenet_names(), strict=True))
    elif Path(source).is_file() and ".tar" not in source:
        aliases = [()] * max((c for c in classes if isinstance(c, int)), default=0)
    samples = {sample.name: sample for sample in load_dataset(source, aliases, 1.0).samples}
    if not any(row["image"] in samples for run in report.runs for row in run.rows):
        raise ResultsError(f"expected photos of these runs, got none of their names in {source}")
    return Album(samples, imagenet_names() if is_imagenet else (), cards)
