"""The declared comparisons, answered on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from certmask.experiments.experiment import Comparison
from certmask.experiments.reading import Done
from certmask.report.tables import Cell, Heading, Table
from certmask.results.statistics import holm, mcnemar


@dataclass(frozen=True)
class Paired:
    """A declared comparison on the images of one run."""

    question: str
    first: str
    second: str
    model: str
    data: str
    patch: str
    images: int
    first_certified: int
    second_certified: int
    gained: int
    lost: int
    note: str

    @property
    def chance(self) -> float:
        """McNemar's exact test: how likely a split at least this uneven is if neither is better."""
        return mcnemar(self.gained, self.lost)


def paired(comparisons: Sequence[Comparison], done: Done) -> list[Paired]:
    """The comparisons whose two defences are both in this run."""
    return [_paired(c, done) for c in comparisons if {c.first, c.second} <= done.file.defences.keys()]


def _paired(comparison: Comparison, done: Done) -> Paired:
    held = [
        tuple(row["defences"][name]["certified"] is True for name in (comparison.first, comparison.second))
        for row in done.file.rows
    ]
    return Paired(
        comparison.question,
        comparison.first,
        comparison.second,
        done.model,
        done.data,
        done.threat.label,
        len(held),
        sum(first for first, _ in held),
        sum(second for _, second in held),
        held.count((True, False)),
        held.count((False, True)),
        comparison.note,
    )


def paired_table(found: Sequence[Paired]) -> Table:
    """Gained: certified by the first defence only; lost: by the second only."""
    words = ("question", "model", "data", "patch", "first", "second")
    figures = ("images", "first certifies", "second certifies", "gained", "lost", "p", "p, Holm")
    columns = (*(Heading(word, words=True) for word in words), *(Heading(figure) for figure in figures))
    adjusted = holm([p.chance for p in found])
    rows = [
        [*map(Cell, (p.question, p.model, p.data, p.patch, p.first, p.second)),
         *(Cell(f"{n:,}") for n in (p.images, p.first_certified, p.second_certified, p.gained, p.lost)),
         Cell(f"{p.chance:.2g}"), Cell(f"{holm_p:.2g}")]
        for p, holm_p in zip(found, adjusted, strict=True)
    ]  # fmt: skip
    notes = (
        "Gained: images that only the first certifies; lost: only the second. p: exact McNemar test; "
        "Holm: corrected for the number of rows.",
        *dict.fromkeys(f"{p.question}: {p.note}" for p in found if p.note),
    )
    return Table("Paired on the same images", columns, rows, notes)


def paired_records(found: Sequence[Paired]) -> list[dict[str, Any]]:
    adjusted = holm([p.chance for p in found])
    return [{**asdict(p), "p_mcnemar": p.chance, "p_holm": h} for p, h in zip(found, adjusted, strict=True)]
