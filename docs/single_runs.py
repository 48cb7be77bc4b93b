"""Blocks about single runs: the demo, trained models and their Cutout, attacks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from certmask.certificate import Guarantee
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, attack_figures, figures
from certmask.results.run import read_run
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
        rows.append(" | ".join((
            f"[{card['architecture']}](../results/models/{path.name})", recipe["cutout"],
            next(short for word, short in STARTS.items() if word in card["data"]["start"]), str(recipe["epochs"]),
            f"{100 * metrics['validation_accuracy']:.1f}", f"{metrics['images']:,}",
            f"{100 * metrics['clean_accuracy']:.1f}", f"{100 * metrics['certified_detection_one_mask']:.1f}",
            f"{100 * metrics['certified_recovery_two_masks']:.1f}", metrics["precision"],
        )))  # fmt: skip
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
        f"{budget['steps']} steps with {budget['views']} masked views each. The bare model falls to "
        f"{bare.label_changed} of {bare.attempts}.\n\n{markdown_grid(brief_table('', ATTACK_COLUMNS, lines))}"
    )
