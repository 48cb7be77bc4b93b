"""A report: everything that is said about some results files, whatever form it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from certmask.errors import ResultsError
from certmask.report.attack_table import AttackLine, attack_lines
from certmask.report.findings import Findings, findings
from certmask.report.paired import Contest, contests
from certmask.report.run_files import RunFile, read_runs
from certmask.report.table_forms import csv_text, latex_table, latex_text, markdown_table, markdown_text
from certmask.report.tables import Table, attacks_table, contest_records, contests_table, figures_table
from certmask.report.words import LIMITS, PROVED, attacked, broken_proofs, caption, cautions, proved, setting


@dataclass(frozen=True)
class Chapter:
    """One certification run with its figures."""

    run: RunFile
    lines: list[Findings]

    @property
    def sentences(self) -> list[str]:
        return proved(self.lines)

    @property
    def table(self) -> Table:
        return figures_table(self.lines, caption(self.run, self.lines))


@dataclass(frozen=True)
class Assault:
    """One attack run with its figures."""

    run: RunFile
    lines: list[AttackLine]

    @property
    def table(self) -> Table:
        return attacks_table(self.lines, f"{self.run.name}: {len(self.run.rows):,} attempts, {self.run.model['name']}")


@dataclass(frozen=True)
class Report:
    """Certification runs and attacks, read from results files alone."""

    chapters: list[Chapter] = field(default_factory=list)
    assaults: list[Assault] = field(default_factory=list)

    @property
    def runs(self) -> list[RunFile]:
        return [chapter.run for chapter in self.chapters]

    @cached_property
    def contests(self) -> list[Contest]:
        return contests(self.runs)

    @property
    def broken(self) -> list[str]:
        """One sentence per proved certificate that an attack broke."""
        return [line for assault in self.assaults for line in broken_proofs(assault.run.name, assault.lines)]

    @property
    def tables(self) -> list[Table]:
        paired = [contests_table(self.contests)] if self.contests else []
        return [*(c.table for c in self.chapters), *paired, *(a.table for a in self.assaults)]

    def price_groups(self) -> list[list[Findings]]:
        """Schemes of one proved guarantee for one model, data set and threat: at least two, so that prices compare."""
        groups: dict[tuple[object, ...], list[Findings]] = {}
        for chapter in self.chapters:
            model, data = chapter.run.model, chapter.run.header["data"]
            same = (model["name"], str(model.get("weights_sha256")), data["name"], str(data.get("digest")))
            for line in chapter.lines:
                if line.guarantee in PROVED and line.proof_passes:
                    groups.setdefault((line.guarantee, line.patch, line.image, *same), []).append(line)
        return [group for group in groups.values() if len(group) > 1]


def read_report(paths: Sequence[Path]) -> Report:
    """Read results files of ``certify`` and ``attack``."""
    runs, attacks = read_runs(paths)
    return Report(
        [Chapter(run, findings(run)) for run in runs],
        [Assault(run, attack_lines(run.header, run.rows)) for run in attacks],
    )


def markdown(report: Report) -> str:
    """Sentences and tables as Markdown."""
    parts = ["# What was proved\n", *(f"**{markdown_text(line)}**\n" for line in report.broken)]
    for chapter in report.chapters:
        words = [setting(chapter.run, chapter.lines), *chapter.sentences, *cautions(chapter.run)]
        parts += [f"## {markdown_text(chapter.run.name)}\n", *(f"{markdown_text(line)}\n" for line in words)]
        parts.append(markdown_table(chapter.table))
    if report.contests:
        parts.append(markdown_table(contests_table(report.contests)))
    for assault in report.assaults:
        parts += [
            f"## {markdown_text(assault.run.name)}\n",
            *(f"{markdown_text(line)}\n" for line in attacked(assault.lines)),
        ]
        parts.append(markdown_table(assault.table))
    return "\n".join([*parts, f"{markdown_text(LIMITS)}\n"])


def latex(report: Report) -> str:
    """The tables, to be put in with ``\\input``."""
    warnings = [f"\\textbf{{{latex_text(line)}}}\n" for line in report.broken]
    return "\n".join(["% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.", *warnings,
                      *map(latex_table, report.tables)])  # fmt: skip


def csv_files(report: Report, path: Path) -> dict[Path, str]:
    """One file per kind of table, machine-readable: figures in ``path``, the others beside it."""
    defences = [line.describe() for chapter in report.chapters for line in chapter.lines]
    attacks = [{"run": a.run.name, **line.describe()} for a in report.assaults for line in a.lines]
    named = {
        path: defences,
        path.with_name(f"{path.stem}-paired.csv"): contest_records(report.contests),
        path.with_name(f"{path.stem}-attacks.csv"): attacks,
    }
    return {name: csv_text(records) for name, records in named.items() if records}


def write_text(path: Path, text: str) -> None:
    """Write a file of the report."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"expected a file that can be written, got {path} ({error.strerror})") from None
