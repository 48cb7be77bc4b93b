"""``certmask table``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    from certmask.errors import UsageError
    from certmask.report.report import Chapter, read_report
    from certmask.report.tables import TerminalTable, markdown_grid, markdown_text

    if json and markdown:
        raise UsageError("expected either --json or --markdown, got both")
    found = read_report(runs)
    chapters: list[Chapter[Any]] = [*found.chapters, *found.attacks]
    chapters.sort(key=lambda chapter: runs.index(chapter.run.path))
    if json:
        typer.echo(dumps([chapter.record for chapter in chapters], ensure_ascii=False, indent=2))
        return
    for chapter in chapters:
        if markdown:
            covers = [f"- {line}" for line in chapter.covers]
            cautions = [f"\n{markdown_text(line)}" for line in chapter.cautions]
            grid = f"{chapter.brief.title}\n\n{markdown_grid(chapter.brief)}\n"
            typer.echo("\n".join([grid, *covers, *cautions, ""]))
        else:
            out.print(TerminalTable(chapter.brief))
            for line in (*chapter.covers, *chapter.cautions):
                out.print(f"  {line}", markup=False)
