"""Printing: rich tables and progress bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from certmask.report.tables import TerminalTable, brief_table
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, SIZE_COLUMNS, UNITS, AttackFigures, Figures

if TYPE_CHECKING:
    from certmask.certification import Progress as Listener

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


EVERY = 20.0
"""Seconds between two lines about work whose bar nobody would see."""


@contextmanager
def progress_bar(total: int) -> Iterator[Listener]:
    """Progress over images with the number of passes beside it; where that is told, the certified ones and the rest."""
    made, pace = Counter[str](), Pace(total)

    def aside() -> str:
        certified = f", {made['certified']:,} certified so far" if "certified" in made else ""
        return f"{passes(made['passes'])}{certified}{pace.left() if certified else ''}"

    with working("certifying", total, "images", aside) as advance:

        def listen(what: str, count: int) -> None:
            made[what] += count
            if what == "images":
                pace.done(count)
            advance(count if what == "images" else 0)

        yield listen


class Pace:
    """How long the rest will take, at the pace since the first that were done, which were done before."""

    def __init__(self, total: int) -> None:
        self._total, self._before, self._done, self._began = total, 0, 0, 0.0

    def done(self, count: int) -> None:
        """So many more; those of the first call are not the work of this run."""
        if not self._began:
            self._before, self._began = count, monotonic()
        self._done += count

    def left(self) -> str:
        own, rest = self._done - self._before, self._total - self._done
        if not own or not rest:
            return ""
        return f", about {timedelta(seconds=round((monotonic() - self._began) * rest / own))} left"


@contextmanager
def working(
    what: str, total: int, unit: str, aside: Callable[[], str] | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, elsewhere a plain line now and then with the share that is done; yields what advances it."""
    beside = f"{unit} · {{task.fields[aside]}} ·" if aside else f"{unit} ·"
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(beside), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total, aside=aside() if aside else "")
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(task, advance=count, aside=aside() if aside else "")

        def line() -> str:
            share = f"{100 * done // max(total, 1)} %, {done:,} of {total:,} {unit}"
            return f"{what}: {share}{f', {aside()}' if aside else ''}"

        with telling(line):
            yield advance


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Work of which no share is known: it is named while it lasts."""
    if err.is_terminal:
        with err.status(what):
            yield
    else:
        with telling(lambda: what):
            yield


@contextmanager
def telling(line: Callable[[], str]) -> Iterator[None]:
    """Where there is no terminal: a line about the work on stderr now and then, with the time it has taken."""
    if err.is_terminal:
        yield
        return
    over, began = Event(), monotonic()

    def tell() -> None:
        while not over.wait(EVERY):
            err.print(f"{line()}, {monotonic() - began:.0f} s", markup=False, soft_wrap=True)

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def passes(count: int) -> str:
    """So many forward passes, in words."""
    return f"{count:,} {'pass' if count == 1 else 'passes'}"


def images(count: int) -> str:
    """So many images, in words."""
    return f"{count} {'image' if count == 1 else 'images'}"


def figures_table(found: Sequence[Figures], title: str) -> TerminalTable:
    """One row per defence, in percent; detection and recovery in columns of their own."""
    return TerminalTable(brief_table(f"{title}; {UNITS}", COLUMNS, found))


def print_figures(found: Sequence[Figures], title: str) -> None:
    """The table and, where defences are not told the size of a patch, what they certify for each."""
    out.print(figures_table(found, title))
    sizes = [size for line in found for size in line.sizes]
    if sizes:
        out.print(TerminalTable(brief_table("certified for a size, which is not told; %", SIZE_COLUMNS, sizes)))


def attack_table(found: Sequence[AttackFigures], title: str) -> TerminalTable:
    """One row per defence, in attempts and images."""
    return TerminalTable(brief_table(title, ATTACK_COLUMNS, found))
