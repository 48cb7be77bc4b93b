"""Reporting: from results files to tables (Markdown, CSV, JSON) and plots. Never a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError
from certmask.experiments.catalogue import COUNTS
from certmask.experiments.counts import count_records, counts_table
from certmask.experiments.drawing import draw
from certmask.experiments.experiment import Experiment
from certmask.experiments.pairing import paired, paired_records, paired_table
from certmask.experiments.reading import entries, read_done, unmeasured, unstarted
from certmask.experiments.sheets import entry_record, measured_table, reported_table, runs_table
from certmask.report.tables import Table, csv_text, markdown_table


@dataclass(frozen=True)
class Written:
    """The tables of an experiment as Markdown, where they lie, and how much is in them."""

    title: str
    contents: str
    path: Path
    markdown: str

    @property
    def line(self) -> str:
        return f"{self.title}: {self.contents} in {self.path}"


def report(experiment: Experiment, results: Path, out: Path) -> Written:
    """Write table.md, table.csv, table.json and the plots of an experiment."""
    done = read_done(experiment, results)
    measured = [entry for run in done for entry in entries(experiment, run)]
    alone = unmeasured(experiment, measured)
    found = [pair for run in done if not run.few for pair in paired(experiment.comparisons, run)]
    tables = [measured_table(experiment, measured)]
    tables += [paired_table(found)] if found else []
    tables += [reported_table(alone)] if alone else []
    tables.append(runs_table(done, unstarted(experiment, results)))
    records = [entry_record(entry) for entry in measured]
    content = {
        "experiment": experiment.name,
        "title": experiment.title,
        "place": experiment.place,
        "rows": records,
        "paired": paired_records(found),
        "reported_only": [asdict(reported) for reported in alone],
    }
    draw(experiment, measured, out / experiment.name)
    contents = f"{_number(len(done), 'run')}, {_number(len(records), 'row')} of defences"
    return _written(out / experiment.name, contents, tables, [_flat(record) for record in records], content)


def report_counts(out: Path) -> Written:
    """The same for the experiment that measures nothing."""
    records = count_records()
    contents = f"no runs, {_number(len(records), 'row')} of arithmetic"
    return _written(out / COUNTS, contents, [counts_table()], records, {"experiment": COUNTS, "rows": records})


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _written(
    folder: Path, contents: str, tables: Sequence[Table], records: Sequence[dict[str, Any]], content: dict[str, Any]
) -> Written:
    markdown = "\n".join(map(markdown_table, tables))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.md").write_text(markdown, encoding="utf-8")
        (folder / "table.csv").write_text(csv_text(records), encoding="utf-8")
        (folder / "table.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"expected a folder for tables, got {folder} ({error.strerror})") from None
    return Written(tables[0].title, contents, folder / "table.md", markdown)


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """One CSV record: the paper's figures keep the prefix ``reported_``."""
    reported = record["reported"] or {}
    own = {key: value for key, value in record["measured"].items() if key not in record}
    return {
        **{key: record[key] for key in ("model", "data", "patch", "defence", "k")},
        **{f"reported_{key}_percent": reported.get(key) for key in ("clean", "robust")},
        **own,
    }
