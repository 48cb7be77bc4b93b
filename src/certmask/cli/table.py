"""``certmask table``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import JsonOption


def table(
    runs: Annotated[list[Path], typer.Argument(help="Results files of `certify`, `demo` or `attack`.")],
    json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Print the figures of results files."""
    from json import dumps

    from certmask.cli.console import out
    from certmask.errors import CertmaskError
    from certmask.report.report import Assault, Chapter, read_report
    from certmask.report.tables import markdown_grid, markdown_text, terminal_grid

    if json and markdown:
        raise CertmaskError("expected either --json or --markdown, got both")
    report = read_report(runs)
    parts: list[Chapter | Assault] = [*report.chapters, *report.assaults]
    parts.sort(key=lambda part: runs.index(part.run.path))
    if json:
        records = [{"run": str(p.run.path), "lines": p.records, "cautions": p.cautions} for p in parts]
        typer.echo(dumps(records, ensure_ascii=False, indent=2))
        return
    for part in parts:
        if markdown:
            covers = [f"- {line}" for line in part.covers]
            cautions = [f"\n{markdown_text(line)}" for line in part.cautions]
            typer.echo("\n".join([f"{part.brief.title}\n\n{markdown_grid(part.brief)}\n", *covers, *cautions, ""]))
        else:
            out.print(terminal_grid(part.brief))
            for line in (*part.covers, *part.cautions):
                out.print(f"  {line}", markup=False)
