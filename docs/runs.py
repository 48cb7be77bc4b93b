"""Blocks about runs: how to make and where to find those of the experiments, the demo, trained models, attacks."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from experiment_tables import entries_in, lined, table, trials_in

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.experiments import EXPERIMENTS
from certmask.experiments.experiment import Reported
from certmask.experiments.measured import FinishedTrial, result_paths, unmeasured
from certmask.experiments.sheets import RUNS, reported_table
from certmask.experiments.zooming import TUNED
from certmask.report.tables import brief_table, markdown_grid, markdown_table
from certmask.results.columns import ATTACK_COLUMNS, Column, attack_figures
from certmask.results.kinds import COUNT, NOTHING, WORDS
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share, mcnemar
from certmask.zoo import DEFAULT_MODEL
from certmask.zoo.models import checkpoint_path
from certmask.zoo.timm_import import import_timm

CUTOUTS = ("none", "random", "greedy", "pairs")
BEFORE = re.compile(r"with a card, sha256 (\w+)")
PROVED = ("certified_detection_one_mask", "certified_recovery_two_masks", "certified_recovery_zoom")
STARTS = {"ImageNet-1k": "ImageNet", "random weights": "random", "with a card": "an earlier training"}


def measured_folders(folder: Path) -> list[Path]:
    """The experiments under ``folder`` that have results, in the paper's order."""
    found = [folder / name for name, experiment in EXPERIMENTS.items() if result_paths(experiment, folder)]
    if not found:
        raise ResultsError(f"expected results of experiments in {folder}, got none")
    return found


def every_trial(folder: Path) -> list[FinishedTrial]:
    return [trial for path in measured_folders(folder) for trial in trials_in(path)]


def commands(folder: Path) -> str:
    """The command lines that the runs took, with the user's own paths in capitals."""
    trials, groups = every_trial(folder), defaultdict(list)
    few = {_place(trial): f" --few-images {len(trial.run.rows)}" for trial in trials if trial.few}
    for trial in trials:
        if not trial.few:
            groups[_command(trial) + few.get(_place(trial), "")].append(trial.patch.number)
    ends = {command: f" --patch-share {','.join(p)}" for command, p in groups.items() if p != ["none"]}
    return "\n".join(f"    {command}{ends.get(command, '')}" for command in groups)


def _place(trial: FinishedTrial) -> tuple[Any, ...]:
    return trial.experiment.name, trial.model, trial.data, trial.patch


def _command(trial: FinishedTrial) -> str:
    """A model brings its weights, is one of timm's with a file of weights, or a checkpoint with a card."""
    run, model, data = trial.run, trial.model, f"{trial.data}={trial.data.upper()}"
    if model != DEFAULT_MODEL and checkpoint_path(model) is None:
        model += "=WEIGHTS" if import_timm().is_model(model) else ".safetensors"
    margin = max(defence["rule"].get("margin", 0.0) for defence in run.defences.values())
    return (
        f"certmask reproduce {trial.experiment.name} --model {model} --data {data} "
        f"--images {run.data['images']} --precision {run.model['precision']} --batch {run.model['batch']} "
        f"--margin {'auto' if margin else '0'}{_tuned(run)}"
    )


def _tuned(run: Run) -> str:
    """The file of the defence that was tuned for the run's network, where the run has one."""
    if TUNED not in run.defences:
        return ""
    folder = run.path.parent.parent.parent / "tuned"
    for path in sorted(folder.glob("*.json")):
        about = json.loads(path.read_text())["about"]["model"]
        if all(about[key] == run.model[key] for key in ("name", "weights_sha256")):
            return f" --defence results/tuned/{path.name}"
    raise ResultsError(f"expected a defence in {folder} that was tuned for {run.model['name']}, got none")


def runs_list(folder: Path) -> str:
    """One row per results file, which it links to from a page of the appendix."""
    columns: list[Column[FinishedTrial]] = [
        Column("file", WORDS, lambda trial: f"{trial.experiment.name}/{trial.run.path.name}", "results"),
        Column("images", COUNT, lambda trial: len(trial.run.rows), "images"),
        *RUNS,
        Column("crop", WORDS, lambda trial: trial.run.data["crop"], "crop"),
    ]
    text = table("Runs", columns, every_trial(folder), unless="results model")
    return re.sub(r"^\| (\S+)(\.jsonl\S*)", r"| [\1](../../results/reproduce/\1\2)", text, flags=re.MULTILINE)


def unmeasured_figures(folder: Path) -> list[Reported]:
    """The paper's figures that no run stands beside; methods that certmask lacks aside."""
    measured, left = measured_folders(folder), []
    for name, experiment in EXPERIMENTS.items():
        found = entries_in(folder / name) if folder / name in measured else []
        left += [reported for reported in unmeasured(experiment, found) if reported.method in experiment.methods]
    return left


WHY_MISSING = {
    ("imagenet", "MLP"): "no ResMLP-S24 with ImageNet weights was at hand",
    ("imagenet", ""): "no network of this kind with ImageNet weights was at hand, nor the photos to train one",
    ("imagenette", "MLP"): "ResMLP-S24 was run at 2 and 3 % alone",
    ("cifar10", "MLP"): "ResMLP-S24 was not trained on CIFAR-10: job row-cifar-resmlp",
}
"""By data set and the paper's family of networks; other methods have networks of their own, and no family."""


def missing(folder: Path) -> str:
    """The paper's figures that nothing stands beside, each with the reason."""
    left = unmeasured_figures(folder)
    title, _, head, rule, *rows = markdown_table(reported_table(left)).strip().splitlines()
    reasons = [WHY_MISSING.get((reported.data, reported.model), "not run") for reported in left]
    lines = [f"{head} why |", f"{rule} --- |", *(f"{row} {why} |" for row, why in zip(rows, reasons, strict=True))]
    return "\n".join([title, "", *lines])


def cards_table(folder: Path) -> str:
    """One row per model for masks whose name begins with the last part of the path."""
    rows = []
    for path, card in _cards(folder):
        metrics, recipe = card["metrics"], card["recipe"]
        if PROVED[0] in metrics:
            rows.append(
                f"[{card['architecture']}](../results/models/{path.name}) | {_cutout(recipe)} | {_start(card)} | "
                f"{_epochs(card, folder.parent.parent)} | {100 * metrics['validation_accuracy']:.1f} | "
                f"{metrics['images']:,} | "
                f"{_counted(metrics, 'clean_accuracy', *PROVED)} | {metrics['precision']}"
            )
    headings = "model | Cutout | start | epochs | clean, all | photos | clean | certified detection, one mask | "
    return lined(f"{headings}certified recovery, two masks | certified recovery, zoom | precision", rows)


def _cutout(recipe: dict[str, Any]) -> str:
    """What is hidden in training; of several tries the worst; whether there was a teacher."""
    tries, taught = recipe.get("tries", 1), recipe.get("taught", 0)
    worst = f"{recipe['cutout']}, worst of {tries}" if tries > 1 else str(recipe["cutout"])
    return f"{worst}, taught" if taught else worst


def _epochs(card: dict[str, Any], results: Path) -> str:
    """Of all trainings, one after the other, that led to a network."""
    before = BEFORE.search(card["data"]["start"])
    if not before:
        return str(card["recipe"]["epochs"])
    known = (
        json.loads(path.read_text()) for place in ("models", "recipes") for path in (results / place).glob("*.json")
    )
    earlier = next(one for one in known if one["sha256"].startswith(before[1]))
    return f"{_epochs(earlier, results)} + {card['recipe']['epochs']}"


def _cards(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [
        (path, json.loads(path.read_text())) for path in sorted(folder.parent.glob(f"{folder.name}-*.json"), key=_order)
    ]


def _start(card: dict[str, Any]) -> str:
    """What the training began with, in a word or two; as the card says where there is none for it."""
    told = str(card["data"]["start"])
    return next((short for word, short in STARTS.items() if word in told), told)


def _counted(metrics: dict[str, Any], *names: str) -> str:
    """Shares of the card's photos, a dash where it has none."""
    images = metrics["images"]
    shares = (metrics.get(name) for name in names)
    return " | ".join(NOTHING if own is None else Share(round(own * images), images).percent for own in shares)


def cutout_table(folder: Path) -> str:
    """Two-mask certificates of two models on the same photos, one trained with more Cutout than the other."""
    found = [read_run(path) for path in sorted(folder.parent.glob(f"{folder.name}-*.jsonl.gz"), key=_order)]
    runs = [run for run in found if "patchcleanser" in run.defences and _order(run.path)[1] < CUTOUTS.index("pairs")]
    rows = []
    for less, more in pairwise(runs):
        (name, before), (other, after) = _order(less.path), _order(more.path)
        one, two = ({r["image"]: r["defences"]["patchcleanser"]["certified"] for r in run.rows} for run in (less, more))
        alike = all(_asked(run) == _asked(less) for run in (less, more))
        if name == other and one.keys() == two.keys() and alike:
            gained, lost = sum(two[i] > one[i] for i in one), sum(two[i] < one[i] for i in one)
            change = f"{name}, {CUTOUTS[before]} → {CUTOUTS[after]}"
            rows.append(f"{change} | {len(one):,} | {gained} | {lost} | {mcnemar(gained, lost):.2g}")
    return lined("model, Cutout | photos | gained | lost | p (McNemar)", rows)


def _asked(run: Run) -> tuple[Any, Any]:
    """In which precision two-mask certificates are, and against what."""
    return run.model["precision"], run.defences["patchcleanser"]["cover"]["digest"]


def _order(path: Path) -> tuple[str, int]:
    """By network, then by how much Cutout there was; other ways to train come last."""
    name, _, cutout = path.name.split(".")[0].rpartition("-")
    return name, CUTOUTS.index(cutout) if cutout in CUTOUTS else len(CUTOUTS)


def attack_tables(path: Path) -> str:
    """What attempts did to each defence, with the attack's success against the bare model above it."""
    run = read_run(path)
    lines, budget = attack_figures(run), run.header["budget"]
    bare = next(line for line in lines if line.guarantee is Guarantee.NONE)
    return (
        f"{run.model['name']}, {run.model['precision']} on {run.model['device']}: {len(run.rows):,} attempts of "
        f"{budget['steps']} steps with {budget['views']} masked views each. The bare model falls to "
        f"{bare.label_changed} of {bare.attempts}.\n\n{markdown_grid(brief_table('', ATTACK_COLUMNS, lines))}"
    )
