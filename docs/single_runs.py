"""Blocks about single runs: the demo, trained models and their Cutout, attacks, and what was certified twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, attack_figures, figures
from certmask.results.run import Run, read_run
from certmask.results.statistics import mcnemar

CUTOUTS = ("none", "random", "greedy")
STARTS = {"ImageNet-1k": "ImageNet", "random weights": "random", "with a card": "random Cutout"}


def run_table(path: Path) -> str:
    return markdown_grid(brief_table("", COLUMNS, figures(read_run(path))))


def lined(headings: str, rows: Iterable[str], words: int = 1) -> str:
    """A Markdown table from its headings and rows, cells between bars; the first ``words`` columns hold words."""
    rule = " | ".join(["---"] * words + ["---:"] * (headings.count(" | ") + 1 - words))
    return "\n".join(f"| {line} |" for line in (headings, rule, *rows))


def cards_table(folder: Path) -> str:
    """One row per trained model whose name begins with the last part of the path."""
    rows = []
    for path in sorted(folder.parent.glob(f"{folder.name}-*.json"), key=_order):
        card = json.loads(path.read_text())
        metrics, recipe = card["metrics"], card["recipe"]
        shares = {name: f"{100 * value:.1f}" for name, value in metrics.items() if isinstance(value, float)}
        start = next(short for word, short in STARTS.items() if word in card["data"]["start"])
        rows.append(
            f"[{card['architecture']}](../results/models/{path.name}) | {recipe['cutout']} | {start} | {recipe['epochs']} | "
            f"{shares['validation_accuracy']} | {metrics['images']:,} | {shares['clean_accuracy']} | "
            f"{shares['certified_detection_one_mask']} | {shares['certified_recovery_two_masks']} | {metrics['precision']}"
        )
    headings = "model | Cutout | start | epochs | clean, all | photos | clean | certified detection, one mask | "
    return lined(f"{headings}certified recovery, two masks | precision", rows)


def cutout_table(folder: Path) -> str:
    """Two-mask certificates of two models on the same photos, one trained with more Cutout than the other."""
    runs = [read_run(path) for path in sorted(folder.parent.glob(f"{folder.name}-*.jsonl.gz"), key=_order)]
    rows = []
    for less, more in pairwise(runs):
        (name, before), (other, after) = _order(less.path), _order(more.path)
        one, two = ({r["image"]: r["defences"]["patchcleanser"]["certified"] for r in run.rows} for run in (less, more))
        if name == other and one.keys() == two.keys() and less.model["precision"] == more.model["precision"]:
            gained, lost = sum(two[i] > one[i] for i in one), sum(two[i] < one[i] for i in one)
            change = f"{name}, {CUTOUTS[before]} → {CUTOUTS[after]}"
            rows.append(f"{change} | {len(one):,} | {gained} | {lost} | {mcnemar(gained, lost):.2g}")
    return lined("model, Cutout | photos | gained | lost | p (McNemar)", rows)


def _order(path: Path) -> tuple[str, int]:
    name, _, cutout = path.name.split(".")[0].rpartition("-")
    return name, CUTOUTS.index(cutout)


def attack_tables(path: Path) -> str:
    """What attempts did to each defence, with the attack's success against the bare model above it."""
    run = read_run(path)
    lines, budget = attack_figures(run), run.header["budget"]
    bare = next(line for line in lines if line.guarantee is Guarantee.NONE)
    return (
        f"{run.model['name']}, {run.model['precision']} on {run.model['device']}: {len(run.rows):,} attempts of "
        f"{budget['steps']} steps with {budget['views']} masked views each. The bare model falls to {bare.label_changed} of "
        f"{bare.attempts}.\n\n{markdown_grid(brief_table('', ATTACK_COLUMNS, lines))}"
    )


def twice(folder: Path) -> str:
    """Every run in ``folder`` beside the gauntlet's and table1's of the same function with the same defences."""
    results = folder.parent
    paths = [*results.glob("attacks/*-certified.jsonl"), *results.glob("reproduce/table1/*.jsonl.gz")]
    firsts = [read_run(path) for path in sorted(paths)]
    again = [read_run(path) for path in sorted(folder.glob("*.jsonl.gz"))]
    rows = [_compared(one, other) for one in again for other in firsts if _same_defences(one, other)]
    if not rows:
        raise ResultsError(f"expected runs in {folder} that were made before, got none")
    headings = "model | compiled | photos | verdicts | other answer | other certificate"
    return f"**The same defences on the same photos in two processes**\n\n{lined(headings, rows, words=2)}"


def _same_defences(one: Run, other: Run) -> list[tuple[str, str]]:
    """Names of the defences that two runs have in common; none where the function is described differently."""
    if one.model != other.model:
        return []
    return [
        (mine, theirs)
        for mine, a in one.defences.items()
        for theirs, b in other.defences.items()
        if a["rule"] == b["rule"] and a["cover"]["digest"] == b["cover"]["digest"]
    ]


def _compared(one: Run, other: Run) -> str:
    theirs: dict[str, Any] = {row["image"]: row for row in other.rows}
    shared = [(row, theirs[row["image"]]) for row in one.rows if row["image"] in theirs]
    if not shared or any(a["input_sha256"] != b["input_sha256"] for a, b in shared):
        raise ResultsError(f"expected the same photos in both runs of {one.model['name']}, got none or others")
    names = _same_defences(one, other)
    pairs = [(a["defences"][mine], b["defences"][same]) for a, b in shared for mine, same in names]
    answers = sum((a["label"], a["alert"]) != (b["label"], b["alert"]) for a, b in pairs)
    certificates = sum(a["certified"] != b["certified"] for a, b in pairs)
    kernels = "deterministic" if one.model.get("compile_options") else "kernels timed"
    return f"{one.model['name']} | {kernels} | {len(shared)} | {len(pairs):,} | {answers} | {certificates}"
