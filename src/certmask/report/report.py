"""A report: everything that is said about some results files, whatever form it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from certmask.certificate import BASES
from certmask.errors import ResultsError
from certmask.report import tables
from certmask.report.tables import Table, brief_table, full_table, markdown_text
from certmask.report.words import LIMITS, attacked, broken_proofs, caption, cautions, proved, setting
from certmask.results import columns
from certmask.results.columns import AttackFigures, Column, Figures, attack_figures, csv_record, figures
from certmask.results.run import Run, read_runs
from certmask.results.statistics import Contest, contests

T = TypeVar("T")

FIGURES_NOTE = (
    "In brackets: 95 % confidence intervals (Wilson). Milliseconds: passes × the run's mean time of one pass."
)
BASES_NOTE = " ".join(f"{basis.capitalize()}: {meaning}." for basis, meaning in BASES.items())
CONTESTS_NOTE = (
    "Each row compares two defences on the very same images (same pixels, same label), same guarantee, same patch. "
    "p: how likely a split at least this uneven is by chance; Holm: corrected for the number of rows."
)
ATTACKS_NOTE = (
    "Images lost: at least one attempt broke the certificate or, where there is none, changed the label. "
    "That no attempt succeeds proves nothing by itself; the proofs do."
)

SIZES_TITLE = "Certified for patches of each size, which the defence is not told"
SIZES_NOTE = "Each image counts up to the largest size for which it is certified: one defence, one run."


@dataclass(frozen=True)
class Chapter(Generic[T]):
    """One results file: its figures in tables for a page and for a terminal, what they say, what to beware of.

    ``more`` has tables of what answers rest on, and of certified sizes, where that is on record.
    """

    run: Run
    lines: list[T]
    columns: list[Column[T]]
    table: Table
    brief: Table
    sentences: list[str]
    cautions: list[str]
    more: Sequence[Table] = ()

    @property
    def tables(self) -> list[Table]:
        """All that a page shows."""
        return [self.table, *self.more]

    @property
    def record(self) -> dict[str, Any]:
        """Figures and cautions as JSON has them."""
        lines = [columns.json_record(self.columns, line) for line in self.lines]
        return {"run": str(self.run.path), "lines": lines, "cautions": self.cautions}

    @property
    def covers(self) -> list[str]:
        """The masks of each defence that certifies with some."""
        return [f"{line['defence']}: {line['cover']}" for line in self.record["lines"] if line.get("cover")]


def certified_chapter(run: Run) -> Chapter[Figures]:
    lines, shown, model, data = figures(run), columns.COLUMNS, run.model, run.data
    done = f"{len(run.rows)} of {data['images']} images, {data['name']}"
    title = f"{run.path.name}: {done}, {model['name']} {model['precision']}; {columns.UNITS}"
    table = full_table(caption(run, lines), shown, lines, [FIGURES_NOTE])
    brief = brief_table(title, shown, lines)
    return Chapter(run, lines, shown, table, brief, proved(lines), cautions(run), _more_tables(lines))


def _more_tables(lines: Sequence[Figures]) -> list[Table]:
    """The sizes that are certified, and what answers rest on, for the defences that recorded it."""
    found, sizes = list[Table](), [size for line in lines for size in line.sizes]
    if sizes:
        found.append(full_table(SIZES_TITLE, columns.SIZE_COLUMNS, sizes, [SIZES_NOTE]))
    known = [line for line in lines if line.bases]
    if known:
        shown = [*(column for column in columns.COLUMNS if column.key == "defence"), *columns.BASIS_COLUMNS]
        found.append(full_table("What answers rest on", shown, known, [BASES_NOTE]))
    return found


def attacked_chapter(run: Run) -> Chapter[AttackFigures]:
    lines, shown, model = attack_figures(run), columns.ATTACK_COLUMNS, run.model
    title = f"{len(run.rows):,} attempts, {model['name']}"
    table = full_table(f"{run.name}: {title}", shown, lines, [ATTACKS_NOTE])
    brief = brief_table(f"{run.path.name}: {title} {model['precision']}", shown, lines)
    return Chapter(run, lines, shown, table, brief, attacked(lines), broken_proofs(run.name, lines))


@dataclass(frozen=True)
class Report:
    """Certification runs and attacks, read from results files alone."""

    chapters: list[Chapter[Figures]]
    attacks: list[Chapter[AttackFigures]]

    @property
    def runs(self) -> list[Run]:
        return [chapter.run for chapter in self.chapters]

    @property
    def lines(self) -> list[Figures]:
        """The figures of every run."""
        return [line for chapter in self.chapters for line in chapter.lines]

    @cached_property
    def contests(self) -> list[Contest]:
        return contests(self.runs)

    @property
    def contests_table(self) -> Table:
        return full_table("Paired on the same images", columns.CONTEST_COLUMNS, self.contests, [CONTESTS_NOTE])

    @property
    def broken(self) -> list[str]:
        """One sentence per proved certificate that an attack broke."""
        return [line for attack in self.attacks for line in attack.cautions]

    def price_groups(self) -> list[list[Figures]]:
        """Defences of one proved guarantee for one model, data set and threat: at least two, so that prices compare."""
        groups: dict[tuple[object, ...], list[Figures]] = {}
        for chapter in self.chapters:
            model, data = chapter.run.model, chapter.run.data
            same = (model["name"], str(model.get("weights_sha256")), data["name"], str(data.get("digest")))
            for line in chapter.lines:
                if line.guarantee.proved and line.proof_passes:
                    groups.setdefault((line.guarantee, line.threat, line.image, *same), []).append(line)
        return [group for group in groups.values() if len(group) > 1]


def read_report(paths: Sequence[Path]) -> Report:
    """Read results files of ``certify`` and ``attack``."""
    certified, attacks = read_runs(paths)
    return Report([*map(certified_chapter, certified)], [*map(attacked_chapter, attacks)])


def markdown(report: Report) -> str:
    """Sentences and tables as Markdown."""
    parts = ["# What was proved\n", *(f"**{markdown_text(line)}**\n" for line in report.broken)]
    for chapter in report.chapters:
        words = [setting(chapter.run, chapter.lines), *chapter.sentences, *chapter.cautions]
        parts += _markdown_section(chapter.run, words, chapter.tables)
    if report.contests:
        parts.append(tables.markdown_table(report.contests_table))
    for attack in report.attacks:
        parts += _markdown_section(attack.run, attack.sentences, attack.tables)
    return "\n".join([*parts, f"{markdown_text(LIMITS)}\n"])


def _markdown_section(run: Run, words: Sequence[str], shown: Sequence[Table]) -> list[str]:
    paragraphs = [f"{markdown_text(line)}\n" for line in words]
    return [f"## {markdown_text(run.name)}\n", *paragraphs, *map(tables.markdown_table, shown)]


def latex(report: Report) -> str:
    """The tables, to be put in with ``\\input``."""
    needs = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}."
    warnings = [f"\\textbf{{{tables.latex_text(line)}}}\n" for line in report.broken]
    paired = [report.contests_table] if report.contests else []
    shown = [*(table for c in report.chapters for table in c.tables), *paired, *(a.table for a in report.attacks)]
    return "\n".join([needs, *warnings, *map(tables.latex_table, shown)])


def csv_files(report: Report, path: Path) -> dict[Path, str]:
    """One file per kind of table, machine-readable: figures in ``path``, the others beside it."""
    attacks = [line for attack in report.attacks for line in attack.lines]
    records = {
        path: [csv_record(columns.COLUMNS, line) for line in report.lines],
        path.with_name(f"{path.stem}-paired.csv"): [csv_record(columns.CONTEST_COLUMNS, c) for c in report.contests],
        path.with_name(f"{path.stem}-attacks.csv"): [csv_record(columns.ATTACK_COLUMNS, line) for line in attacks],
    }
    return {name: tables.csv_text(rows) for name, rows in records.items() if rows}


def write_files(files: Mapping[Path, str], sources: Sequence[Path]) -> None:
    """Write the files of a report; an error if one would take the place of its sources."""
    for path in files:
        if path.resolve() in {source.resolve() for source in sources}:
            raise ResultsError(f"expected another file for the report than its results, got {path}")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ResultsError(f"expected a file that can be written, got {path} ({error.strerror})") from None
