"""Figures of a run, from its results file alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from certmask.covers import cover_text
from certmask.errors import ResultsError
from certmask.results.file import Row


@dataclass(frozen=True)
class Line:
    """One defence over all images of a run; shares from 0 to 1, None where the rule gives no such figure."""

    defence: str
    images: int
    clean_accuracy: float
    certified_recovery: float | None
    certified_detection: float | None
    published_test: float | None
    false_alerts: float
    passes: float
    certificate_passes: float
    guarantee: str
    patch: tuple[int, int]
    cover: str | None

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def summarize(header: Row, rows: Sequence[Row]) -> list[Line]:
    """One line per defence of the run."""
    if not rows:
        raise ResultsError("expected at least one image in the results, got none")
    if "defences" not in header or not all({"label", "defences"} <= row.keys() for row in rows):
        raise ResultsError("expected rows of a certification run, got others")
    try:
        return [_line(name, defence, rows) for name, defence in header["defences"].items()]
    except KeyError as error:
        raise ResultsError(f"expected {error} for every defence of a run and in its rows, got none") from None


def _line(name: str, defence: Row, rows: Sequence[Row]) -> Line:
    found = [(row["label"], row["defences"][name]) for row in rows]
    guarantee = defence["rule"]["guarantee"]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def certified(kind: str) -> float | None:
        return mean([bool(o["certified"]) for _, o in found]) if kind == guarantee else None

    return Line(
        defence=name,
        images=len(rows),
        clean_accuracy=mean([o["label"] == label and not o["alert"] for label, o in found]),
        certified_recovery=certified("recovery"),
        certified_detection=certified("detection"),
        published_test=certified("published test"),
        false_alerts=mean([o["alert"] for _, o in found]),
        passes=mean([o["passes"] for _, o in found]),
        certificate_passes=mean([o["certificate_passes"] for _, o in found]),
        guarantee=guarantee,
        patch=tuple(defence["cover"]["patch"]),
        cover=None if guarantee == "none" else cover_text(defence["cover"]),
    )
