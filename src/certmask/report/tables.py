"""The tables of a report, before they become HTML, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from certmask.certificate import Guarantee
from certmask.report.attack_table import ATTACK_HEADINGS, AttackLine
from certmask.report.findings import Findings
from certmask.report.intervals import Share
from certmask.report.paired import Contest, holm

NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A heading, what it has in common with its neighbours, and whether it holds words."""

    heading: str
    group: str = ""
    words: bool = False


@dataclass(frozen=True)
class Cell:
    """A figure and, smaller, what qualifies it."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells under a title; notes say what a reader must know."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())


SHARES = "share of images, %"
PASSES = "passes per image"
TIMES = "ms per image, estimated"
FIGURES = (
    Column("clean accuracy", SHARES),
    Column("certified recovery", SHARES),
    Column("certified detection", SHARES),
    Column("false alerts", SHARES),
    Column("published test", SHARES),
    Column("masks"),
    Column("to answer", PASSES),
    Column("to prove: proved", PASSES),
    Column("to prove: not proved", PASSES),
    Column("to answer", TIMES),
    Column("to prove", TIMES),
    Column("images"),
)


def figures_table(lines: Sequence[Findings], title: str, *, with_run: bool = False) -> Table:
    """One row per defence; each guarantee has its own column, false alerts stand beside detection."""
    first = (Column("run", words=True),) if with_run else ()
    rows = [[*([Cell(line.run)] if with_run else []), *_figures(line)] for line in lines]
    notes = (
        "In brackets: 95 % confidence intervals (Wilson). Milliseconds: passes × the run's mean time of one pass.",
    )
    return Table(title, (*first, Column("defence", words=True), *FIGURES), rows, notes)


def _figures(line: Findings) -> list[Cell]:
    kinds = (Guarantee.RECOVERY, Guarantee.DETECTION)
    shares = (line.clean, *map(line.certified_as, kinds), line.false_alerts, line.certified_as(Guarantee.PUBLISHED))
    passes = (line.answer_passes, line.proved_passes, line.unproved_passes)
    times = (line.milliseconds(line.answer_passes), line.milliseconds(line.proof_passes))
    return [
        Cell(line.defence),
        *map(share_cell, shares),
        Cell(NOTHING if line.masks is None else f"{line.masks:,}"),
        *(Cell(number(value)) for value in (*passes, *times)),
        Cell(f"{line.images:,}"),
    ]


def contests_table(found: Sequence[Contest]) -> Table:
    """One row per pair of defences, with the exact McNemar test and its correction."""
    columns = [Column(name, words=True) for name in ("certificate or test", "A", "B")]
    columns += [Column(name, "holds on images") for name in ("both", "only A", "only B", "neither")]
    columns += [Column("images"), Column("p", "McNemar, exact"), Column("p, Holm", "McNemar, exact")]
    rows = [
        [Cell(text) for text in (c.guarantee.value, c.first, c.second, *_counts(c), chance(c.chance), chance(adjusted))]
        for c, adjusted in zip(found, holm([c.chance for c in found]), strict=True)
    ]
    notes = (
        "Each row compares two defences on the very same images (same pixels, same label), same guarantee, same patch. "
        "p: how likely a split at least this uneven is by chance; Holm: corrected for the number of rows.",
    )
    return Table("Paired on the same images", columns, rows, notes)


def contest_records(found: Sequence[Contest]) -> list[dict[str, object]]:
    """The same as plain numbers."""
    adjusted = holm([contest.chance for contest in found])
    return [
        {
            "certificate": c.guarantee.value,
            "first": c.first,
            "second": c.second,
            "both": c.both,
            "only_first": c.only_first,
            "only_second": c.only_second,
            "neither": c.neither,
            "images": c.images,
            "p_mcnemar": c.chance,
            "p_holm": p,
        }
        for c, p in zip(found, adjusted, strict=True)
    ]


def attacks_table(lines: Sequence[AttackLine], title: str) -> Table:
    """One row per attacked defence, in attempts and images."""
    columns = [Column(heading, words=place < 2) for place, heading in enumerate(ATTACK_HEADINGS)]
    rows = [[Cell(text) for text in line.cells] for line in lines]
    notes = (
        "Images lost: at least one attempt broke the certificate or, where there is none, changed the label. "
        "That no attempt succeeds proves nothing by itself; the proofs do.",
    )
    return Table(title, columns, rows, notes)


def _counts(contest: Contest) -> list[str]:
    counts = (contest.both, contest.only_first, contest.only_second, contest.neither, contest.images)
    return [f"{count:,}" for count in counts]


def share_cell(share: Share | None) -> Cell:
    if share is None:
        return Cell(NOTHING)
    low, high = share.interval
    return Cell(percent(share.value), f"[{percent(low)}, {percent(high)}]")


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def number(value: float | None) -> str:
    """At most three digits after the point, fewer for larger numbers."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
