"""One table as HTML, Markdown or LaTeX; records as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from certmask.report.markup import Markup, joined, tag
from certmask.report.tables import Cell, Column, Table

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "–": "--", "<": r"\textless{}",
    ">": r"\textgreater{}", "…": r"\dots{}",
}  # fmt: skip
_MARKDOWN = {character: f"\\{character}" for character in "\\|*`[]#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def html_table(table: Table) -> Markup:
    """A table with a two-storey head, in a box that scrolls where the window is narrow."""
    body = [_html_row(row, table.columns) for row in table.rows]
    notes = [tag("p", note, class_="note") for note in table.notes]
    grid = tag("table", tag("caption", table.title), _html_head(table.columns), tag("tbody", *body))
    return joined(tag("div", grid, class_="scroll"), *notes)


def _html_head(columns: Sequence[Column]) -> Markup:
    if not any(column.group for column in columns):
        return tag("thead", tag("tr", *(_html_heading(column) for column in columns)))
    upper = [
        tag("th", group, colspan=str(len(members)), scope="colgroup", class_="group")
        if group
        else joined(*(_html_heading(column, rowspan="2") for column in members))
        for group, members in _groups(columns)
    ]
    lower = [_html_heading(column) for column in columns if column.group]
    return tag("thead", tag("tr", *upper), tag("tr", *lower))


def _html_heading(column: Column, **attributes: str) -> Markup:
    return tag("th", column.heading, scope="col", class_=_kind(column), **attributes)


def _html_row(row: Sequence[Cell], columns: Sequence[Column]) -> Markup:
    cells = []
    for cell, column in zip(row, columns, strict=True):
        note = tag("small", cell.note) if cell.note else Markup("")
        cells.append(tag("td", cell.text, note, class_=_kind(column)))
    return tag("tr", *cells)


def _kind(column: Column) -> str:
    return "words" if column.words else "figure"


def _groups(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    return [(group, list(members)) for group, members in groupby(columns, key=lambda column: column.group)]


def markdown_table(table: Table) -> str:
    """A Markdown table under its title; groups are written out in the heading."""
    heads = [f"{column.heading} ({column.group})" if column.group else column.heading for column in table.columns]
    rules = ["---" if column.words else "---:" for column in table.columns]
    rows = [[markdown_text(f"{cell.text} {cell.note}".strip()) for cell in row] for row in table.rows]
    grid = ["| " + " | ".join(row) + " |" for row in [[markdown_text(head) for head in heads], rules, *rows]]
    notes = [f"\n{markdown_text(note)}" for note in table.notes]
    return "\n".join([f"**{markdown_text(table.title)}**\n", *grid, *notes]) + "\n"


def latex_table(table: Table) -> str:
    """A ``table*`` for the packages booktabs and graphicx; as wide as the page at most."""
    heads = [f"\\textbf{{{latex_text(column.heading)}}}" for column in table.columns]
    rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows]
    lines = [
        r"\begin{table*}",
        r"\centering",
        f"\\caption{{{latex_text(table.title)}. {latex_text(' '.join(table.notes))}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join('l' if column.words else 'r' for column in table.columns)}}}",
        r"\toprule",
        *_latex_groups(table.columns),
        " & ".join(heads) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    if not any(column.group for column in columns):
        return []
    cells, rules, start = [], [], 1
    for group, members in _groups(columns):
        stop = start + len(members) - 1
        cells.append(f"\\multicolumn{{{len(members)}}}{{c}}{{{latex_text(group)}}}")
        rules += [f"\\cmidrule(lr){{{start}-{stop}}}"] if group else []
        start = stop + 1
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _latex_cell(cell: Cell) -> str:
    note = f" {{\\scriptsize {latex_text(cell.note)}}}" if cell.note else ""
    # A bracket after \\ or an empty cell would be read as an argument.
    return f"{{{latex_text(cell.text)}}}{note}"


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
