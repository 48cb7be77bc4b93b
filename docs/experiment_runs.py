"""Blocks about the runs behind the experiments: on what they ran, where they lie, their plots, what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from experiment_tables import experiment_of, measured_tables, paired_tables, runs_of

from certmask.errors import ResultsError
from certmask.experiments import EXPERIMENTS, Experiment, Reported
from certmask.experiments.drawing import draw, pictures
from certmask.experiments.experiment import Threat
from certmask.experiments.reading import Done, Entry, result_paths, unmeasured
from certmask.report.tables import markdown_text
from certmask.results.kinds import NOTHING
from certmask.zoo import DEFAULT_MODEL
from certmask.zoo.models import checkpoint_path
from certmask.zoo.timm_import import import_timm

Header = dict[str, Any]


def measured_folders(folder: Path) -> list[Path]:
    """The experiments under ``folder`` that have results, in the paper's order."""
    found = [folder / name for name, experiment in EXPERIMENTS.items() if result_paths(experiment, folder)]
    if not found:
        raise ResultsError(f"expected results of experiments in {folder}, got none")
    return found


def setting(folder: Path) -> str:
    """One line per device: what its runs have in common, or where they differ."""
    headers = [run.file.header for path in measured_folders(folder) for run, _ in runs_of(path)]
    devices = dict.fromkeys(header["model"]["device"] for header in headers)
    return "\n".join(f"- {_common([h for h in headers if h['model']['device'] == device])}" for device in devices)


def _common(headers: list[Header]) -> str:
    models = [header["model"] for header in headers]
    versions = ", ".join(f"{name} {_all(h['versions'][name] for h in headers)}" for name in ("torch", "timm"))
    compiled = _all({True: "compiled", False: "not compiled"}[m["compiled"]] for m in models)
    device, precision, batch = (_all(m[key] for m in models) for key in ("device", "precision", "batch"))
    margins = _all(f"{margin:g}" for header in headers for margin in _margins(header))
    return f"{len(headers)} runs on {device}: {precision}, {compiled}, batch {batch}, margin {margins}, {versions}."


def _all(values: Iterable[object]) -> str:
    return " or ".join(sorted({str(value) for value in values}))


def _margins(header: Header) -> set[float]:
    return {defence["rule"]["margin"] for defence in header["defences"].values()}


def commands(folder: Path) -> str:
    """The command lines that the runs took, with the user's own paths in capitals."""
    runs = [run for path in measured_folders(folder) for run, _ in runs_of(path)]
    few = {_place(run): f" --few-images {len(run.file.rows)}" for run in runs if run.few}
    groups: dict[str, list[str]] = {}
    for run in runs:
        if not run.few:
            groups.setdefault(_command(run) + few.get(_place(run), ""), []).append(run.threat.number)
    lines = [f"    {command}{_patches(numbers)}" for command, numbers in groups.items()]
    return "\n".join(lines)


def _place(run: Done) -> tuple[str, str, str, Threat]:
    return run.file.path.parent.name, run.model, run.data, run.threat


def _command(run: Done) -> str:
    header, experiment = run.file.header, run.file.path.parent.name
    model = header["model"]
    return (
        f"certmask reproduce {experiment} --model {_model(run.model)} --data {run.data}={run.data.upper()} "
        f"--images {header['data']['images']} --precision {model['precision']} --batch {model['batch']} "
        f"--margin {max(_margins(header)):g}"
    )


def _model(label: str) -> str:
    """A model that brings its weights, a timm model with a file of weights, or a checkpoint with a card."""
    if label == DEFAULT_MODEL or checkpoint_path(label) is not None:
        return label
    return f"{label}=WEIGHTS" if import_timm().is_model(label) else f"{label}.safetensors"


def _patches(numbers: list[str]) -> str:
    return "" if numbers == ["none"] else f" --patch-share {','.join(numbers)}"


def runs_list(folder: Path) -> str:
    """One row per results file, which it links to."""
    heads = ("results", "images", "weights, sha256", "list of photos", "crop", "precision", "device", "batch", "margin")
    rows = [_run_row(run) for path in measured_folders(folder) for run, _ in runs_of(path)]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _run_row(run: Done) -> list[str]:
    path, header = run.file.path, run.file.header
    model, data = header["model"], header["data"]
    place = Path("..", *path.parts[path.parts.index("results") :])
    texts = (
        f"{len(run.file.rows):,}",
        str(model.get("weights_sha256", NOTHING))[:12],
        f"{Path(data['name']).name}, {data.get('digest', NOTHING)}",
        *(str(value) for value in (data["crop"], model["precision"], model["device"], model["batch"])),
        _all(f"{margin:g}" for margin in _margins(header)),
    )
    name = f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.jsonl')}"
    return [f"[{markdown_text(name)}]({place})", *map(markdown_text, texts)]


def plots(path: Path) -> str:
    """The pictures that draw_plots makes of an experiment."""
    experiment = experiment_of(path)
    if experiment.plot is None:
        raise ResultsError(f"expected an experiment with a plot, got {experiment.name}")
    names = pictures(experiment, _entries(path))
    return "\n\n".join(f"![{experiment.title}: {Path(name).stem}](images/{name})" for name in names)


def draw_plots(folder: Path, images: Path) -> None:
    """Draw every experiment that has results and declares a plot."""
    for path in measured_folders(folder):
        draw(experiment_of(path), _entries(path), images)


def _entries(path: Path) -> list[Entry]:
    return [entry for _, found in runs_of(path) for entry in found]


def missing(folder: Path) -> str:
    """Which of the paper's figures have no run beside them, one line per table or figure; methods we lack aside."""
    measured = measured_folders(folder)
    lines = []
    for name, experiment in EXPERIMENTS.items():
        found = _entries(folder / name) if folder / name in measured else []
        left = [r for r in unmeasured(experiment, found) if r.method in _methods(experiment)]
        if left:
            lines.append(f"- {experiment.place}: {_left(left) if found else 'no run'}.")
    return "\n".join(lines) or "None: a run stands beside every figure of the paper."


def _methods(experiment: Experiment) -> set[str]:
    threats = {threat for threats in experiment.threats.values() for threat in threats}
    return {case.paper for threat in threats for case in experiment.cases(threat)}


def _left(left: list[Reported]) -> str:
    """Data set, patch and the families of models without a run: ``imagenet 1 % (ResNet, MLP); …``"""
    settings = groupby(sorted(left, key=_setting), key=_setting)
    return "; ".join(
        f"{data}{'' if threat == 'none' else f' {threat}'} ({', '.join(dict.fromkeys(r.model for r in group))})"
        for (data, _, threat), group in settings
    )


def _setting(reported: Reported) -> tuple[str, float, str]:
    number = reported.threat.split()[0]
    return reported.data, 0.0 if number == "none" else float(number), reported.threat


def other_sections(folder: Path, named: Collection[str]) -> str:
    """Tables, comparisons and plots of the experiments with results that the page has no section for."""
    paths = [path for path in measured_folders(folder) if path.name not in named]
    return "\n\n".join(_section(experiment_of(path), path) for path in paths)


def _section(experiment: Experiment, path: Path) -> str:
    parts = [f"## {experiment.place[0].upper()}{experiment.place[1:]}: {experiment.title}", measured_tables(path)]
    parts += [paired_tables(path)] if experiment.comparisons and any(not run.few for run, _ in runs_of(path)) else []
    parts += [plots(path)] if experiment.plot else []
    return "\n\n".join(parts)
