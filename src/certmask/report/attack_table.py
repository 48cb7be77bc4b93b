"""The table of a gauntlet: what attempts did to each defence, from the attempts file alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.results.file import Row

ATTACK_HEADINGS = (
    "defence",
    "certificate",
    "attempts",
    "label changed",
    "alerted",
    "certificate broken",
    "images",
    "images lost",
)


@dataclass(frozen=True)
class AttackLine:
    """One defence over all attempts on it; ``broken`` is None where nothing was certified.

    ``images_lost`` counts images with at least one broken certificate or, without certificates, one changed label.
    """

    defence: str
    guarantee: str
    attempts: int
    label_changed: int
    alerted: int
    broken: int | None
    images: int
    images_lost: int

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def cells(self) -> list[str]:
        figures = (self.attempts, self.label_changed, self.alerted, self.broken, self.images, self.images_lost)
        return [self.defence, self.guarantee, *("–" if figure is None else f"{figure:,}" for figure in figures)]


def attack_lines(header: Row, rows: Sequence[Row]) -> list[AttackLine]:
    """One line per defence of an attempts file."""
    if header.get("kind") != "attack":
        raise ResultsError(f"expected a file of attack attempts, got one of kind {header.get('kind')!r}")
    return [_line(name, defence, [row for row in rows if row["defence"] == name])
            for name, defence in header["defences"].items()]  # fmt: skip


def _line(name: str, defence: Row, rows: Sequence[Row]) -> AttackLine:
    guarantee = defence["rule"]["guarantee"]
    broken = sum(row["broken"] for row in rows)
    return AttackLine(
        defence=name,
        guarantee=guarantee,
        attempts=len(rows),
        label_changed=sum(row["answer"] != row["label"] for row in rows),
        alerted=sum(row["alert"] for row in rows),
        broken=None if guarantee == Guarantee.NONE.value else broken,
        images=len({row["image"] for row in rows}),
        images_lost=len({row["image"] for row in rows if row["broken"]}),
    )


def attack_markdown(lines: Sequence[AttackLine]) -> str:
    """The same figures as Markdown."""
    rules = ["---", "---", *["---:"] * (len(ATTACK_HEADINGS) - 2)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [ATTACK_HEADINGS, rules, *(line.cells for line in lines)])
