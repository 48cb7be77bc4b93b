"""``certmask table``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from certmask.cli.console import attack_table, figures_table, markdown_table, out
from certmask.errors import CertmaskError
from certmask.report import summarize
from certmask.report.attack_table import attack_lines, attack_markdown
from certmask.results.file import Row, read_results

Printed = tuple[str, Table, list[dict[str, Any]]]
"""The same figures as Markdown, for the terminal, and as records."""


def run(paths: Sequence[Path], *, as_json: bool, markdown: bool) -> None:
    """Print one table per results file."""
    if as_json and markdown:
        raise CertmaskError("expected either --json or --markdown, got both")
    collected = []
    for path in paths:
        header, rows = read_results(path)
        as_markdown, grid, lines = (_attacked if header.get("kind") == "attack" else _certified)(path, header, rows)
        collected.append({"run": str(path), "lines": lines})
        covers = [f"{line['defence']}: {line['cover']}" for line in lines if line.get("cover")]
        if markdown:
            typer.echo("\n".join([f"{grid.title}\n\n{as_markdown}\n", *(f"- {text}" for text in covers), ""]))
        elif not as_json:
            out.print(grid)
            for text in covers:
                out.print(f"  {text}", markup=False)
    if as_json:
        typer.echo(json.dumps(collected, ensure_ascii=False, indent=2))


def _certified(path: Path, header: Row, rows: list[Row]) -> Printed:
    lines = summarize(header, rows)
    model, data = header["model"], header["data"]
    title = f"{path.name}: {len(rows)} of {data['images']} images, {data['name']}, {model['name']} {model['precision']}"
    return markdown_table(lines), figures_table(lines, title), [line.describe() for line in lines]


def _attacked(path: Path, header: Row, rows: list[Row]) -> Printed:
    lines = attack_lines(header, rows)
    title = f"{path.name}: {len(rows):,} attempts, {header['model']['name']} {header['model']['precision']}"
    return attack_markdown(lines), attack_table(lines, title), [line.describe() for line in lines]
