"""Printing: rich tables and progress bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from certmask.certify import Progress as Report
from certmask.report import Line
from certmask.report.attack_table import ATTACK_HEADINGS, AttackLine

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def progress_bar(images: int) -> Iterator[Report]:
    """A bar over images with the number of passes beside it."""
    columns = (
        TextColumn("certifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images · {task.fields[passes]:,} passes ·"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=images, passes=0)
        passes = 0

        def report(what: str, count: int) -> None:
            nonlocal passes
            passes += count if what == "passes" else 0
            bar.update(task, advance=count if what == "images" else 0, passes=passes)

        yield report


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


HEADINGS = (
    "defence",
    "clean",
    "certified\nrecovery",
    "certified\ndetection",
    "false\nalerts",
    "published\ntest",
    "passes,\nanswer",
    "passes,\nproof",
)


def plain_table(title: str, headings: Sequence[str], words: int) -> Table:
    """A table that fits a terminal of 80 columns: the names in the first column are broken, figures never cut off.

    ``words`` columns are aligned to the left, the others to the right.
    """
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for number, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if number < words else "right"
        grid.add_column(heading, justify=justify, no_wrap=number > 0, min_width=0 if number else 13)
    return grid


def figures_table(lines: Sequence[Line], title: str) -> Table:
    """One row per defence, in percent; detection and recovery in columns of their own."""
    grid = plain_table(f"{title}; shares in %, passes per image", HEADINGS, words=1)
    for line in lines:
        grid.add_row(*cells(line))
    return grid


def cells(line: Line) -> list[str]:
    return [
        line.defence,
        percent(line.clean_accuracy),
        percent(line.certified_recovery),
        percent(line.certified_detection),
        percent(line.false_alerts),
        percent(line.published_test),
        f"{line.passes:,.0f}",
        f"{line.certificate_passes:,.0f}" if line.certificate_passes else "–",
    ]


def markdown_table(lines: Sequence[Line]) -> str:
    """The same figures as Markdown."""
    heads = [heading.replace("\n", " ") for heading in HEADINGS]
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *(cells(line) for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def attack_table(lines: Sequence[AttackLine], title: str) -> Table:
    """One row per defence, in attempts and images."""
    grid = plain_table(title, [heading.replace(" ", "\n", 1) for heading in ATTACK_HEADINGS], words=2)
    for line in lines:
        grid.add_row(*line.cells)
    return grid
