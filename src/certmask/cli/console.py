"""Printing: rich tables and progress bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from certmask.report.tables import TerminalTable, brief_table
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, UNITS, AttackFigures, Figures

if TYPE_CHECKING:
    from certmask.certification import Progress as Listener

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def progress_bar(images: int) -> Iterator[Listener]:
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

        def listen(what: str, count: int) -> None:
            nonlocal passes
            passes += count if what == "passes" else 0
            bar.update(task, advance=count if what == "images" else 0, passes=passes)

        yield listen


def figures_table(found: Sequence[Figures], title: str) -> TerminalTable:
    """One row per defence, in percent; detection and recovery in columns of their own."""
    return TerminalTable(brief_table(f"{title}; {UNITS}", COLUMNS, found))


def attack_table(found: Sequence[AttackFigures], title: str) -> TerminalTable:
    """One row per defence, in attempts and images."""
    return TerminalTable(brief_table(title, ATTACK_COLUMNS, found))
