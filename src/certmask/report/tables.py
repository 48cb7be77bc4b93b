"""Tables and their forms: terminal, Markdown, HTML, LaTeX; records as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from certmask.report.markup import Markup, joined, tag
from certmask.results.columns import Column

T = TypeVar("T")
WIDEST = 10_000
"""Wider than any terminal: what a grid would take if it were asked."""


@dataclass(frozen=True)
class Heading:
    """What stands above a column, what it has in common with its neighbours, and whether the column holds words."""

    text: str
    group: str = ""
    words: bool = False

    @property
    def style(self) -> str:
        return "words" if self.words else "figure"


@dataclass(frozen=True)
class Cell:
    """A figure and, smaller, what qualifies it."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Headings and rows of cells under a title; notes say what a reader must know."""

    title: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def full_table(
    title: str, columns: Sequence[Column[T]], items: Sequence[T], notes: Sequence[str] = (), also: Collection[str] = ()
) -> Table:
    """One row per item, as a page shows it; ``also`` names columns that are mostly left out."""
    shown = _known([column for column in columns if column.heading or column.key in also], items)
    headings = [Heading(column.heading or column.key, column.group, column.kind.words) for column in shown]
    return Table(title, headings, [[Cell(*column.long(item)) for column in shown] for item in items], notes)


def brief_table(title: str, columns: Sequence[Column[T]], items: Sequence[T]) -> Table:
    """One row per item, as a terminal shows it."""
    shown = _known([column for column in columns if column.brief], items)
    headings = [Heading(column.brief, words=column.kind.words) for column in shown]
    return Table(title, headings, [[Cell(column.short(item)) for column in shown] for item in items])


def _known(columns: Sequence[Column[T]], items: Sequence[T]) -> list[Column[T]]:
    """The columns, without the optional ones that no item has a figure for."""
    return [one for one in columns if not one.optional or any(one.value(item) is not None for item in items)]


@dataclass(frozen=True)
class TerminalTable:
    """A table for a terminal: a grid where it fits, names broken; else a block per row. No figure is ever cut off."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = self._grid()
        wide = options.update(width=WIDEST, max_width=WIDEST)
        if Measurement.get(console, wide, grid).minimum <= options.max_width:
            yield grid
            return
        yield Text(self.table.title, style="italic")
        for first, *others in self.table.rows:
            yield Text(f"\n{first.text}")
            for heading, cell in zip(self.table.headings[1:], others, strict=True):
                yield Text(f"  {' '.join(heading.text.split())}: {cell.text}")
        yield Text()

    def _grid(self) -> Grid:
        grid = Grid(title=self.table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        for number, heading in enumerate(self.table.headings):
            justify = "left" if heading.words else "right"
            grid.add_column(heading.text, justify=justify, no_wrap=number > 0, min_width=0 if number else 13)  # type: ignore[arg-type]
        for row in self.table.rows:
            grid.add_row(*(cell.text for cell in row))
        return grid


def markdown_grid(table: Table) -> str:
    """The bare grid; groups are written out in the heading."""
    heads = [f"{heading.text} ({heading.group})" if heading.group else heading.text for heading in table.headings]
    rules = ["---" if heading.words else "---:" for heading in table.headings]
    rows = [[markdown_text(f"{cell.text} {cell.note}".strip()) for cell in row] for row in table.rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [[markdown_text(head) for head in heads], rules, *rows])


def markdown_table(table: Table) -> str:
    """The grid under its title, with its notes."""
    notes = [f"\n{markdown_text(note)}" for note in table.notes]
    return "\n".join([f"**{markdown_text(table.title)}**\n", markdown_grid(table), *notes]) + "\n"


def html_table(table: Table) -> Markup:
    """A table with a two-storey head, in a box that scrolls where the window is narrow."""
    body = [tag("tr", *map(_html_cell, row, table.headings)) for row in table.rows]
    notes = [tag("p", note, class_="note") for note in table.notes]
    grid = tag("table", tag("caption", table.title), _html_head(table.headings), tag("tbody", *body))
    return joined(tag("div", grid, class_="scroll"), *notes)


def _html_head(headings: Sequence[Heading]) -> Markup:
    if not any(heading.group for heading in headings):
        return tag("thead", tag("tr", *map(_html_heading, headings)))
    upper = [
        tag("th", group, colspan=str(len(members)), scope="colgroup", class_="group")
        if group
        else joined(*(_html_heading(heading, rowspan="2") for heading in members))
        for group, members in _groups(headings)
    ]
    lower = [_html_heading(heading) for heading in headings if heading.group]
    return tag("thead", tag("tr", *upper), tag("tr", *lower))


def _html_heading(heading: Heading, **attributes: str) -> Markup:
    return tag("th", heading.text, scope="col", class_=heading.style, **attributes)


def _html_cell(cell: Cell, heading: Heading) -> Markup:
    return tag("td", cell.text, *([tag("small", cell.note)] if cell.note else []), class_=heading.style)


def _groups(headings: Sequence[Heading]) -> list[tuple[str, list[Heading]]]:
    return [(group, list(members)) for group, members in groupby(headings, key=lambda heading: heading.group)]


def latex_table(table: Table) -> str:
    """A ``table*`` for the packages booktabs and graphicx; as wide as the page at most."""
    heads = [f"\\textbf{{{latex_text(heading.text)}}}" for heading in table.headings]
    lines = [
        r"\begin{table*}",
        r"\centering",
        f"\\caption{{{latex_text(table.title)}. {latex_text(' '.join(table.notes))}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join('l' if heading.words else 'r' for heading in table.headings)}}}",
        r"\toprule",
        *_latex_groups(table.headings),
        " & ".join(heads) + r" \\",
        r"\midrule",
        *(" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_groups(headings: Sequence[Heading]) -> list[str]:
    if not any(heading.group for heading in headings):
        return []
    cells, rules, start = [], [], 1
    for group, members in _groups(headings):
        stop = start + len(members) - 1
        cells.append(f"\\multicolumn{{{len(members)}}}{{c}}{{{latex_text(group)}}}")
        rules += [f"\\cmidrule(lr){{{start}-{stop}}}"] if group else []
        start = stop + 1
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _latex_cell(cell: Cell) -> str:
    note = f" {{\\scriptsize {latex_text(cell.note)}}}" if cell.note else ""
    # A bracket after \\ or an empty cell would be read as an argument.
    return f"{{{latex_text(cell.text)}}}{note}"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "–": "--", "<": r"\textless{}",
    ">": r"\textgreater{}", "…": r"\dots{}",
}  # fmt: skip
_MARKDOWN = {character: f"\\{character}" for character in "\\|*`[]#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def markdown_text(text: str) -> str:
    """Text that Markdown prints as it stands, on one line; an underscore within a word needs no help."""
    escaped = "".join(_MARKDOWN.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\_", escaped)


def csv_text(records: Sequence[Mapping[str, object]]) -> str:
    """Records with one heading line; what does not apply is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()
