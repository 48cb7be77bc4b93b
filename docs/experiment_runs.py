"""Blocks about the runs behind the experiments: on what they ran, where they lie, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiment_tables import entries_in, table, trials_in

from certmask.errors import ResultsError
from certmask.experiments import EXPERIMENTS
from certmask.experiments.measured import FinishedTrial, result_paths, unmeasured
from certmask.experiments.sheets import RUNS, reported_table
from certmask.report.tables import markdown_table
from certmask.results.columns import Column
from certmask.results.kinds import COUNT, WORDS
from certmask.zoo import DEFAULT_MODEL
from certmask.zoo.models import checkpoint_path
from certmask.zoo.timm_import import import_timm


def measured_folders(folder: Path) -> list[Path]:
    """The experiments under ``folder`` that have results, in the paper's order."""
    found = [folder / name for name, experiment in EXPERIMENTS.items() if result_paths(experiment, folder)]
    if not found:
        raise ResultsError(f"expected results of experiments in {folder}, got none")
    return found


def every_trial(folder: Path) -> list[FinishedTrial]:
    return [trial for path in measured_folders(folder) for trial in trials_in(path)]


def setting(folder: Path) -> str:
    """What the runs have in common, or where they differ."""
    trials = every_trial(folder)
    models, versions = [trial.run.model for trial in trials], [trial.run.header["versions"] for trial in trials]
    device, precision, batch = (_all(model[key] for model in models) for key in ("device", "precision", "batch"))
    compiled = _all("compiled" if model["compiled"] else "not compiled" for model in models)
    margins = _all(f"{margin:g}" for trial in trials for margin in _margins(trial))
    torch, timm = (f"{name} {_all(v[name] for v in versions)}" for name in ("torch", "timm"))
    return (
        f"- {len(trials)} runs on {device}: {precision}, {compiled}, batch {batch}, margin {margins}, {torch}, {timm}."
    )


def _all(values: Iterable[object]) -> str:
    return " or ".join(sorted({str(value) for value in values}))


def _margins(trial: FinishedTrial) -> set[float]:
    return {defence["rule"]["margin"] for defence in trial.run.defences.values()}


def commands(folder: Path) -> str:
    """The command lines that the runs took, with the user's own paths in capitals."""
    trials = every_trial(folder)
    few = {_place(trial): f" --few-images {len(trial.run.rows)}" for trial in trials if trial.few}
    groups: dict[str, list[str]] = {}
    for trial in trials:
        if not trial.few:
            groups.setdefault(_command(trial) + few.get(_place(trial), ""), []).append(trial.patch.number)
    ends = {command: f" --patch-share {','.join(p)}" for command, p in groups.items() if p != ["none"]}
    return "\n".join(f"    {command}{ends.get(command, '')}" for command in groups)


def _place(trial: FinishedTrial) -> tuple[Any, ...]:
    return trial.run.path.parent, trial.model, trial.data, trial.patch


def _command(trial: FinishedTrial) -> str:
    run = trial.run
    return (
        f"certmask reproduce {run.path.parent.name} --model {_model(trial.model)} --data {trial.data}={trial.data.upper()} "
        f"--images {run.data['images']} --precision {run.model['precision']} --batch {run.model['batch']} "
        f"--margin {max(_margins(trial)):g}"
    )


def _model(label: str) -> str:
    """A model that brings its weights, a timm model with a file of weights, or a checkpoint with a card."""
    if label == DEFAULT_MODEL or checkpoint_path(label) is not None:
        return label
    return f"{label}=WEIGHTS" if import_timm().is_model(label) else f"{label}.safetensors"


def runs_list(folder: Path) -> str:
    """One row per results file, which it links to."""
    columns: list[Column[FinishedTrial]] = [
        Column("file", WORDS, lambda trial: f"{trial.run.path.parent.name}/{trial.run.path.name}", "results"),
        Column("images", COUNT, lambda trial: len(trial.run.rows), "images"),
        *RUNS,
        Column("crop", WORDS, lambda trial: trial.run.data["crop"], "crop"),
    ]
    text = table("Runs", columns, every_trial(folder), unless="results model torch")
    return re.sub(r"^\| (\S+)(\.jsonl\S*)", r"| [\1](../results/reproduce/\1\2)", text, flags=re.MULTILINE)


def missing(folder: Path) -> str:
    """The paper's figures that no run stands beside; methods that certmask lacks aside."""
    measured, left = measured_folders(folder), []
    for name, experiment in EXPERIMENTS.items():
        found = entries_in(folder / name) if folder / name in measured else []
        left += [reported for reported in unmeasured(experiment, found) if reported.method in experiment.methods]
    return markdown_table(reported_table(left)).strip()
