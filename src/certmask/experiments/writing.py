"""From results files to tables (Markdown, CSV, JSON) and plots in a folder. Never a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError
from certmask.experiments import sheets
from certmask.experiments.experiment import Experiment
from certmask.experiments.measured import Entry, finished_trials, paired, result_paths, unmeasured
from certmask.experiments.panels import draw
from certmask.report.tables import Table, csv_text, markdown_table
from certmask.results.columns import COLUMNS, csv_record, json_record


@dataclass(frozen=True)
class Written:
    """The tables of an experiment as Markdown, and one line that says what is in them and where they lie."""

    line: str
    markdown: str


def reportable(experiments: Sequence[Experiment], results: Path) -> list[Experiment]:
    """Those with results under the folder; what is arithmetic needs none and comes first."""
    found = [experiment for experiment in experiments if not experiment.patches or result_paths(experiment, results)]
    return sorted(found, key=lambda experiment: bool(experiment.patches))


def write_tables(experiment: Experiment, results: Path, out: Path) -> Written:
    """Write table.md, table.csv, table.json and the plots of an experiment."""
    folder, content = out / experiment.name, dict[str, Any](experiment=experiment.name)
    if not experiment.patches:
        records, table = sheets.mask_counts(), sheets.counts_table(experiment.title)
        contents = f"no runs, {_number(len(records), 'row')} of arithmetic"
        return _written(folder, contents, [table], records, content | {"rows": records})
    found = finished_trials(experiment, results)
    done = {trial.run.path for trial in found}
    unstarted = [path for path in result_paths(experiment, results) if path not in done]
    measured = [entry for trial in found for entry in trial.entries.values()]
    pairs, alone = paired(experiment.comparisons, found), unmeasured(experiment, measured)
    tables = [
        sheets.measured_table(experiment, measured),
        *([sheets.paired_table(pairs)] if pairs else []),
        *([sheets.reported_table(alone)] if alone else []),
        sheets.runs_table(found, unstarted),
    ]
    records = [_record(entry) for entry in measured]
    content |= {
        "title": experiment.title,
        "place": experiment.place,
        "rows": records,
        "paired": [json_record(sheets.PAIRED, pair) for pair in pairs],
        "reported_only": [asdict(reported) for reported in alone],
    }
    draw(experiment, measured, folder)
    contents = f"{_number(len(found), 'run')}, {_number(len(records), 'row')} of defences"
    return _written(folder, contents, tables, [_flat(record) for record in records], content)


def _record(entry: Entry) -> dict[str, Any]:
    """Plain data: ``reported`` in percent as printed, ``measured`` from 0 to 1; never mixed."""
    costs = [column for column in sheets.MEASURED if "joules" in column.key]
    extra = {"masks_placed": entry.placed, "few_images_only": entry.trial.few, **csv_record(costs, entry)}
    return {
        "model": entry.trial.model,
        "data": entry.trial.data,
        "patch": entry.trial.patch.label,
        "defence": entry.declared.name,
        "k": entry.declared.k,
        "reported": asdict(entry.reported) if entry.reported else None,
        "measured": {**csv_record(COLUMNS, entry.measured), **extra},
    }


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """One CSV record: the paper's figures keep the prefix ``reported_``."""
    reported, measured = record["reported"] or {}, record["measured"]
    return {
        **{key: record[key] for key in ("model", "data", "patch", "defence", "k")},
        **{f"reported_{key}_percent": reported.get(key) for key in ("clean", "robust")},
        **{key: value for key, value in measured.items() if key not in record},
    }


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
    return Written(f"{tables[0].title}: {contents} in {folder / 'table.md'}", markdown)
