"""The block about faults put in on purpose: how many attempts it took to notice each, from benchmarks/sabotage.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from experiment_tables import lined

from certmask.errors import ResultsError
from certmask.results.file import Row, read_results


def sabotage_table(path: Path) -> str:
    """One row per fault and way to look for it, one column per defence: the median number of attempts to notice."""
    header, rows = read_results(path)
    if header.get("kind") != "sabotage" or not rows:
        raise ResultsError(f"expected what benchmarks/sabotage.py has written, got {path}")
    model, budget, names = header["model"], header["budget"], list(header["defences"])
    names = [name for name in names if any(row["defence"] == name for row in rows)]
    looked = dict.fromkeys((row["fault"], row["way"]) for row in rows)
    lines = []
    for fault, way in looked:
        mine = [row for row in rows if (row["fault"], row["way"]) == (fault, way)]
        cells = [cell([row for row in mine if row["defence"] == name]) for name in names]
        lines.append(" | ".join([fault, way, *cells]))
    seeds, photos = len({row["seed"] for row in rows}), header["data"]["images"]
    return (
        f"{model['name']}, {model['precision']} on {model['device']}, {photos} photos, {seeds} seeds; attempts of "
        f"{budget['steps']} steps with {budget['views']} masked views each.\n\n"
        f"{lined(' | '.join(['fault', 'looked for in', *names]), lines, words=2)}"
    )


def cell(rows: Sequence[Row]) -> str:
    """The median over the seeds that noticed, and how many those are unless all; if none, the attempts it was given."""
    rows = [row for row in rows if row["certified"]]
    first = [row["first"] for row in rows if row["first"] is not None]
    if not rows:
        return "–"
    if not first:
        return f"not in {min(row['attempts'] for row in rows):,}"
    share = "" if len(first) == len(rows) else f" ({len(first)} of {len(rows)} seeds)"
    return f"{median(first):,.0f}{share}"
