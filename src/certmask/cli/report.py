"""``certmask report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Results files of `certify`, `demo` or `attack`.")],
    out: Annotated[Path, typer.Option("--out", help="The page; tables in other forms go beside it.")] = Path(
        "report.html"
    ),
    photos: Annotated[
        str | None, typer.Option("--photos", help="The photos of the runs, as `certify` takes them, for a gallery.")
    ] = None,
    gallery: Annotated[int, typer.Option("--gallery", min=0, help="Most pictures in the gallery.")] = 12,
    markdown: Annotated[bool, typer.Option("--markdown", help="Also write the tables as Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Also write the figures as CSV, shares from 0 to 1.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also write the tables for LaTeX with booktabs.")] = False,
) -> None:
    """One HTML page from results files: what was proved in words, tables, plots, a gallery, provenance; no network."""
    from certmask.cli.console import out as screen
    from certmask.cli.outputs import check_file
    from certmask.errors import UsageError
    from certmask.report import report as forms
    from certmask.report.gallery import read_album
    from certmask.report.page import page

    if out.suffix in (".md", ".tex", ".csv"):
        raise UsageError(f"expected an HTML file for the page, got {out}")
    check_file(out)
    found = forms.read_report(runs)
    files = {out: page(found, read_album(found, photos, gallery))}
    files |= {out.with_suffix(".md"): forms.markdown(found)} if markdown else {}
    files |= {out.with_suffix(".tex"): forms.latex(found)} if latex else {}
    files |= forms.csv_files(found, out.with_suffix(".csv")) if csv else {}
    forms.write_files(files, runs)
    for file, text in files.items():
        screen.print(f"saved {file} ({len(text.encode()) / 1000:,.0f} kB)", markup=False, soft_wrap=True)
    for line in found.broken:
        screen.print(line, markup=False)
