"""``certmask table``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from certmask.cli.console import figures_table, markdown_table, out
from certmask.report import summarize
from certmask.results import read_results


def run(paths: Sequence[Path], *, as_json: bool, markdown: bool) -> None:
    """Print one table per results file."""
    collected = []
    for path in paths:
        header, rows = read_results(path)
        lines = summarize(header, rows)
        model, data = header["model"], header["data"]
        title = (
            f"{path.name}: {len(rows)} of {data['images']} images, {data['name']}, {model['name']} {model['precision']}"
        )
        collected.append({"run": str(path), "lines": [line.describe() for line in lines]})
        if markdown:
            typer.echo(f"{title}\n\n{markdown_table(lines)}\n")
        elif not as_json:
            out.print(figures_table(lines, title))
    if as_json:
        typer.echo(json.dumps(collected, ensure_ascii=False, indent=2))
