"""A report: everything that is said about some results files, whatever form it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError
from certmask.report.tables import (
    Table,
    brief_table,
    csv_text,
    full_table,
    latex_table,
    latex_text,
    markdown_table,
    markdown_text,
)
from certmask.report.words import LIMITS, PROVED, attacked, broken_proofs, caption, cautions, proved, setting
from certmask.results.columns import (
    ATTACK_COLUMNS,
    COLUMNS,
    CONTEST_COLUMNS,
    UNITS,
    AttackFigures,
    Figures,
    attack_figures,
    csv_record,
    figures,
    json_record,
)
from certmask.results.run import Run, read_runs
from certmask.results.statistics import Contest, contests

FIGURES_NOTE = (
    "In brackets: 95 % confidence intervals (Wilson). Milliseconds: passes × the run's mean time of one pass."
)
CONTESTS_NOTE = (
    "Each row compares two defences on the very same images (same pixels, same label), same guarantee, same patch. "
    "p: how likely a split at least this uneven is by chance; Holm: corrected for the number of rows."
)
ATTACKS_NOTE = (
    "Images lost: at least one attempt broke the certificate or, where there is none, changed the label. "
    "That no attempt succeeds proves nothing by itself; the proofs do."
)


@dataclass(frozen=True)
class Chapter:
    """One certification run with its figures."""

    run: Run
    lines: list[Figures]

    @property
    def sentences(self) -> list[str]:
        return proved(self.lines)

    @property
    def cautions(self) -> list[str]:
        return cautions(self.run)

    @property
    def covers(self) -> list[str]:
        """The masks of each defence in words."""
        return [f"{line.defence}: {line.cover}" for line in self.lines if line.cover]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The figures for JSON; passes also under their former names."""
        former = [{"passes": x.answer_passes, "certificate_passes": x.proof_passes or 0.0} for x in self.lines]
        return [{**json_record(COLUMNS, x), **names} for x, names in zip(self.lines, former, strict=True)]

    @property
    def brief(self) -> Table:
        """The table for a terminal."""
        model, data = self.run.model, self.run.data
        done = f"{len(self.run.rows)} of {data['images']} images, {data['name']}"
        title = f"{self.run.path.name}: {done}, {model['name']} {model['precision']}; {UNITS}"
        return brief_table(title, COLUMNS, self.lines)

    @property
    def table(self) -> Table:
        return full_table(caption(self.run, self.lines), COLUMNS, self.lines, [FIGURES_NOTE])


@dataclass(frozen=True)
class Assault:
    """One attack run with its figures."""

    run: Run
    lines: list[AttackFigures]

    @property
    def cautions(self) -> list[str]:
        return broken_proofs(self.run.name, self.lines)

    @property
    def covers(self) -> list[str]:
        return []

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json_record(ATTACK_COLUMNS, line) for line in self.lines]

    @property
    def brief(self) -> Table:
        """The table for a terminal."""
        model = self.run.model
        title = f"{self.run.path.name}: {len(self.run.rows):,} attempts, {model['name']} {model['precision']}"
        return brief_table(title, ATTACK_COLUMNS, self.lines)

    @property
    def table(self) -> Table:
        title = f"{self.run.name}: {len(self.run.rows):,} attempts, {self.run.model['name']}"
        return full_table(title, ATTACK_COLUMNS, self.lines, [ATTACKS_NOTE])


@dataclass(frozen=True)
class Report:
    """Certification runs and attacks, read from results files alone."""

    chapters: list[Chapter] = field(default_factory=list)
    assaults: list[Assault] = field(default_factory=list)

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
        return full_table("Paired on the same images", CONTEST_COLUMNS, self.contests, [CONTESTS_NOTE])

    @property
    def broken(self) -> list[str]:
        """One sentence per proved certificate that an attack broke."""
        return [line for assault in self.assaults for line in assault.cautions]

    @property
    def tables(self) -> list[Table]:
        paired = [self.contests_table] if self.contests else []
        return [*(c.table for c in self.chapters), *paired, *(a.table for a in self.assaults)]

    def price_groups(self) -> list[list[Figures]]:
        """Defences of one proved guarantee for one model, data set and threat: at least two, so that prices compare."""
        groups: dict[tuple[object, ...], list[Figures]] = {}
        for chapter in self.chapters:
            model, data = chapter.run.model, chapter.run.data
            same = (model["name"], str(model.get("weights_sha256")), data["name"], str(data.get("digest")))
            for line in chapter.lines:
                if line.guarantee in PROVED and line.proof_passes:
                    groups.setdefault((line.guarantee, line.threat, line.image, *same), []).append(line)
        return [group for group in groups.values() if len(group) > 1]


def read_report(paths: Sequence[Path]) -> Report:
    """Read results files of ``certify`` and ``attack``."""
    runs, attacks = read_runs(paths)
    return Report([Chapter(run, figures(run)) for run in runs], [Assault(run, attack_figures(run)) for run in attacks])


def markdown(report: Report) -> str:
    """Sentences and tables as Markdown."""
    parts = ["# What was proved\n", *(f"**{markdown_text(line)}**\n" for line in report.broken)]
    for chapter in report.chapters:
        words = [setting(chapter.run, chapter.lines), *chapter.sentences, *chapter.cautions]
        parts += _markdown_section(chapter.run, words, chapter.table)
    if report.contests:
        parts.append(markdown_table(report.contests_table))
    for assault in report.assaults:
        parts += _markdown_section(assault.run, attacked(assault.lines), assault.table)
    return "\n".join([*parts, f"{markdown_text(LIMITS)}\n"])


def _markdown_section(run: Run, words: Sequence[str], table: Table) -> list[str]:
    paragraphs = [f"{markdown_text(line)}\n" for line in words]
    return [f"## {markdown_text(run.name)}\n", *paragraphs, markdown_table(table)]


def latex(report: Report) -> str:
    """The tables, to be put in with ``\\input``."""
    warnings = [f"\\textbf{{{latex_text(line)}}}\n" for line in report.broken]
    needs = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}."
    return "\n".join([needs, *warnings, *map(latex_table, report.tables)])


def csv_files(report: Report, path: Path) -> dict[Path, str]:
    """One file per kind of table, machine-readable: figures in ``path``, the others beside it."""
    attacks = [line for assault in report.assaults for line in assault.lines]
    named = {
        path: [csv_record(COLUMNS, line) for line in report.lines],
        path.with_name(f"{path.stem}-paired.csv"): [csv_record(CONTEST_COLUMNS, line) for line in report.contests],
        path.with_name(f"{path.stem}-attacks.csv"): [csv_record(ATTACK_COLUMNS, line) for line in attacks],
    }
    return {name: csv_text(records) for name, records in named.items() if records}


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
