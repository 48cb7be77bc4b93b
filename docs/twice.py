"""A block on what was certified twice, in two processes: the same verdicts?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certmask.errors import ResultsError
from certmask.report.tables import Cell, Heading, Table, markdown_table
from certmask.results.file import read_results

Record = dict[str, Any]


def twice(folder: Path) -> str:
    """Every run in ``folder`` beside the gauntlet's and table1's of the same function with the same defences."""
    results = folder.parent
    again = [read_results(path) for path in sorted(folder.glob("*.jsonl.gz"))]
    paths = [*results.glob("attacks/*-certified.jsonl"), *results.glob("reproduce/table1/*.jsonl.gz")]
    firsts = [read_results(path) for path in sorted(paths)]
    rows = [_compared(one, other) for one in again for other in firsts if _same_defences(one[0], other[0])]
    if not rows:
        raise ResultsError(f"expected runs in {folder} that were made before, got none")
    words = (Heading("model", words=True), Heading("compiled", words=True))
    columns = (*words, *map(Heading, ("photos", "verdicts", "other answer", "other certificate")))
    return markdown_table(Table("The same defences on the same photos in two processes", columns, rows)).rstrip("\n")


def _same_defences(one: Record, other: Record) -> list[tuple[str, str]]:
    """Names of the defences that two headers have in common; none where the function is described differently."""
    if one["model"] != other["model"]:
        return []
    return [
        (mine, theirs)
        for mine, a in one["defences"].items()
        for theirs, b in other["defences"].items()
        if a["rule"] == b["rule"] and a["cover"]["digest"] == b["cover"]["digest"]
    ]


def _compared(one: tuple[Record, list[Record]], other: tuple[Record, list[Record]]) -> list[Cell]:
    theirs = {row["image"]: row for row in other[1]}
    shared = [(row, theirs[row["image"]]) for row in one[1] if row["image"] in theirs]
    if not shared:
        raise ResultsError(f"expected photos that both runs of {one[0]['model']['name']} have, got none")
    if any(a["input_sha256"] != b["input_sha256"] for a, b in shared):
        raise ResultsError(f"expected the same photos in both runs of {one[0]['model']['name']}, got others")
    names = _same_defences(one[0], other[0])
    pairs = [(a["defences"][mine], b["defences"][same]) for a, b in shared for mine, same in names]
    answers = sum((a["label"], a["alert"]) != (b["label"], b["alert"]) for a, b in pairs)
    certificates = sum(a["certified"] != b["certified"] for a, b in pairs)
    figures = (len(shared), len(pairs), answers, certificates)
    model = one[0]["model"]
    kernels = "deterministic" if model.get("compile_options") else "kernels timed"
    return [Cell(model["name"]), Cell(kernels), *(Cell(f"{figure:,}") for figure in figures)]
