"""Blocks and figures about the paper's other methods, which have networks of their own: of bands, and of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from experiment_tables import NARROW, lined, table, trials_in
from runs import BEFORE

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.experiments.experiment import PHOTO
from certmask.experiments.measured import Entry, FinishedTrial
from certmask.experiments.paper_tables import CLEANSER, JURIES, TABLE1, TABLE1_PHOTO
from certmask.experiments.sheets import own
from certmask.experiments.zooming import SHIPPED, ZOOM
from certmask.results.clusters import difference
from certmask.results.columns import AttackFigures, Column, attack_figures
from certmask.results.kinds import EXTENT, NOTHING, WORDS
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share
from certmask.threat import Size
from certmask.training import Recipe
from certmask.zoo.card import Card, read_card
from certmask.zoo.models import SHIPPED as SHIPPED_FOLDER
from certmask.zoo.networks import BANDS, CELLS, MASKS, network_of

BESIDE = (CLEANSER.name, JURIES.name, SHIPPED)
"""What recovers on networks of masks: the same promise."""

CARDS = {"deit_tiny-cifar10": "cifar10-deit_tiny-random", "resmlp_24-imagenette": "imagenette-resmlp_24-taught",
         "resnetv2_50-imagenette": "imagenette-resnetv2_50-pairs",
         "told_resnet26-cifar10": "cifar10-told_resnet26w2-bands"}  # fmt: skip
"""Networks in tables whose cards are called otherwise."""

LOCAL = re.compile(r"local weights, sha256 (\w+)(?: \(ImageNet-1k\))?")
DS, FIRST, PUBLISHED = "DS", "DS, first classes, place by place", ("DS", "PG-DS")
SMOOTHED, TOLD, MASKED, MIDDLE = "smoothed_deit_tiny", "told_resnet26", "deit_tiny-imagenette", "2 %"
KEPT = ("reported_clean", "reported_robust", "clean_accuracy", "certified_recovery", "passes_to_answer",
        "passes_to_prove_if_proved", "estimated_milliseconds_to_answer")  # fmt: skip
OPTIONS = ("cutout", "band", "loss", "patch", "epochs", "batch", "optimizer", "rate", "weight_decay", "schedule",
           "warm_up", "zoom", "shift")  # fmt: skip
COLUMNS = [
    Column("network", WORDS, lambda entry: entry.trial.model, "network"),
    Column("defence", WORDS, lambda entry: entry.declared.name, "defence"),
    Column("patch", EXTENT, lambda entry: entry.measured.patch, "patch, px"),
    *(column for key in KEPT for column in NARROW if column.key == key),
    own("images", "photos"),
]
"""The figures of Table 1 that all of these have."""


@lru_cache
def cards(results: Path) -> dict[str, Card]:
    """Every card by the name of its network: those with results, and those of networks that come with certmask."""
    paths = [path for folder in ("models", "recipes", "networks") for path in sorted((results / folder).glob("*.json"))]
    return {path.stem: read_card(path) for path in (*paths, *sorted(SHIPPED_FOLDER.glob("*.json")))}


def history(card: Card, known: Iterable[Card]) -> list[Card]:
    """The card and those of the networks that its training began with, first ones first."""
    known, before = list(known), BEFORE.search(card.data["start"])
    if not before:
        return [card]
    earlier = [one for one in known if one.sha256.startswith(before[1])]
    if not earlier:
        raise ResultsError(f"expected the card of the network with sha256 {before[1]}, got none")
    return [*history(earlier[0], known), card]


def epochs(card: Card, known: Iterable[Card]) -> str:
    return " + ".join(str(one.recipe["epochs"]) for one in history(card, known))


def origin(card: Card, known: Iterable[Card]) -> str:
    """The network that a training's file of weights is of, by another card that names it; nothing without a file."""
    if not (local := LOCAL.search(card.data["start"])):
        return ""
    names = {one.architecture for one in known if f"sha256 {local[1]} (ImageNet-1k)" in one.data["start"]}
    if len(names) != 1:
        raise ResultsError(f"expected one network of ImageNet with weights {local[1]}, got {len(names)}")
    return names.pop()


def start(card: Card, known: Iterable[Card]) -> str:
    """What the first training began with."""
    known = list(known)
    first = history(card, known)[0]
    return LOCAL.sub(f"{origin(first, known)}, ImageNet", first.data["start"])


def trained_on(card: Card) -> str:
    """What a network was shown: a band, all of the picture, or the picture with blanks."""
    kind, band = network_of(card)
    loss = card.recipe.get("loss", "plain")
    return {
        BANDS: f"bands of {band} px",
        CELLS: f"whole pictures, {loss} loss",
        MASKS: f"pictures with {card.recipe['cutout']} Cutout",
    }[kind]


def others_in(folder: Path) -> list[Path]:
    """The cards of networks of bands or cells in ``folder`` or among models; what begins with another comes last."""
    paths = sorted((*folder.glob("*.json"), *(folder.parent / "models").glob("*.json")))
    found = {path: card for path in paths if network_of(card := read_card(path)).kind != MASKS}
    if not found:
        raise ResultsError(f"expected cards of networks of bands or cells in {folder}, got none")
    return sorted(found, key=lambda path: bool(BEFORE.search(found[path].data["start"])))


def recipes_table(folder: Path) -> str:
    """One row per network of bands or cells, without the figures on its card: most are of a trial on a few photos."""
    known, lines = cards(folder.parent), []
    for path in others_in(folder):
        card, recipe = known[path.stem], known[path.stem].recipe
        lines.append(
            f"[{path.stem}](../results/{path.parent.name}/{path.name}) | {trained_on(card)} | "
            f"{start(card, known.values())} | {'×'.join(map(str, card.size))} | {card.data['train']['images']:,} | "
            f"{epochs(card, known.values())} | {recipe['batch']} | {recipe['optimizer']}, {recipe['rate']:g}"
        )
    return lined("card | trained on | start | input | photos | epochs | batch | optimizer, rate", lines, words=3)


def train_commands(folder: Path) -> str:
    """The command line of every training; words in capitals are the user's own paths."""
    known = cards(folder.parent)
    return "\n".join(f"    {_train_command(path.stem, known)}" for path in others_in(folder))


def _train_command(name: str, known: Mapping[str, Card]) -> str:
    card, plain = known[name], asdict(Recipe(rate=1.0))
    *before, _ = history(card, known.values())
    begun = [f"models/{other}/model.safetensors" for other, one in known.items() if one in before[-1:]]
    weights = origin(card, known.values())
    options = {key: card.recipe[key] for key in OPTIONS if card.recipe[key] not in (None, plain[key])}
    if "patch" in options:
        options["patch"] = card.recipe["patch"][0]
    said = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in options.items())
    return (
        f"certmask train TRAIN --validation HELD_OUT --model {(*begun, card.architecture)[0]} "
        f"{f'--weights {weights}.safetensors ' if weights else ''}--image {card.size[0]} --crop {card.crop:g} {said} "
        f"--out models/{name}"
    )


def kind_of(trial: FinishedTrial) -> str:
    return next(iter(trial.entries.values())).declared.network


def side_by_side(folder: Path) -> dict[tuple[str, Size], list[Entry]]:
    """By data set and by patch, on 32×32: the other methods, then what recovers on networks of masks.

    Beside patches in the photo stand the networks that take it as it is, for which Table 1 has the same patches.
    """
    beside = trials_in(folder.parent / ZOOM.name)
    if folder.name == TABLE1_PHOTO.name:
        both = (*trials_in(folder.parent / TABLE1.name), *beside)
        beside = tuple(trial for trial in both if tuple(trial.run.model["size"]) == PHOTO)
    found: dict[tuple[str, Size], list[Entry]] = {}
    every = [trial for trial in (*trials_in(folder), *beside) if not trial.few]
    for trial in sorted(every, key=lambda t: (t.data, t.patch.on(PHOTO).size, kind_of(t) == MASKS, t.model)):
        kept = [e for e in trial.entries.values() if e.declared.network != MASKS or e.declared.name in BESIDE]
        seen = found.setdefault((trial.data, trial.patch.on(PHOTO).size), [])
        there = {(entry.trial.model, entry.declared.name) for entry in seen}
        seen += [entry for entry in kept if (entry.trial.model, entry.declared.name) not in there]
    others = {key: seen for key, seen in found.items() if any(e.declared.network != MASKS for e in seen)}
    if not others:
        raise ResultsError(f"expected runs of networks of bands or cells in {folder}, got none")
    return others


def other_methods(folder: Path) -> str:
    """The networks and how each was trained, then one table per data set and patch."""
    found = side_by_side(folder)
    title = {key: next(e.trial.patch.label for e in seen if e.trial.experiment.name == folder.name)
             for key, seen in found.items()}  # fmt: skip
    blocks = [
        table(f"{key[0]}, any patch of {title[key]}, by every method", COLUMNS, seen) for key, seen in found.items()
    ]
    return "\n\n".join([_networks([e.trial for seen in found.values() for e in seen], folder.parent.parent), *blocks])


def _networks(trials: Sequence[FinishedTrial], results: Path) -> str:
    known, lines = cards(results), []
    for model in dict.fromkeys(trial.model for trial in trials):
        if (name := CARDS.get(model, model)) not in known:
            raise ResultsError(f"expected a card of {model} in {results / 'networks'}, got none")
        card = known[name]
        devices = sorted({trial.run.model["device"] for trial in trials if trial.model == model})
        lines.append(
            f"{model} | {trained_on(card)} | {start(card, known.values())} | {' / '.join(devices)} | "
            f"{'×'.join(map(str, card.size))} | {epochs(card, known.values())}"
        )
    headings = "network | trained on | start | device | input | epochs"
    return f"**The networks in the tables below**\n\n{lined(headings, lines, words=4)}"


def attacked(folder: Path) -> list[tuple[Run, Run, list[AttackFigures]]]:
    """The attacks on networks of bands and cells: what was certified, the attempts, and their figures."""
    found = []
    for run in filter(_other, map(read_run, sorted(folder.glob("*-attempts.jsonl.gz")))):
        path = run.path.with_name(run.path.name.replace("-attempts", "-certified"))
        found.append((read_run(path), run, attack_figures(run)))
    if not found:
        raise ResultsError(f"expected attempts on networks of bands or cells in {folder}/*-attempts.jsonl.gz, got none")
    return found


def _other(run: Run) -> bool:
    """Whether a run is of a network of bands or cells."""
    return all("fields" in own or own["cover"]["tiling"] == "bands" for own in run.defences.values())


def attacks_table(folder: Path) -> str:
    """One row per network and defence, also where a defence certified nothing or a run did not reach it; the sums."""
    lines, budgets = [], set()
    for certified, run, found in attacked(folder):
        budgets.add((run.header["budget"]["steps"], run.header["budget"]["images"], run.header["budget"]["locations"]))
        for one in found:
            bare = one.guarantee is Guarantee.NONE
            held = sum(row["defences"][one.defence]["certified"] is True for row in certified.rows)
            lines.append(
                f"{run.model['name']} | {one.defence} | {run.model['precision']} | "
                f"{run.threat(one.defence).label} | "
                f"{NOTHING if bare else f'{held} of {len(certified.rows):,}'} | {one.attempts} | {one.label_changed} | "
                f"{NOTHING if bare else one.broken} | {one.images_lost} of {one.images}"
            )
    (steps, images, places), *others = budgets
    if others:
        raise ResultsError(f"expected attacks with the same budget in {folder}, got {len(budgets)}")
    headings = "network | defence | precision | patch | certified | attempts | label changed | certificate broken | "
    return f"{steps} steps, up to {images} photos of each defence at {places} places\n\n" + lined(
        f"{headings}photos lost", lines, words=3
    )


def beside_paper(entries: Iterable[Entry], what: str) -> list[tuple[float, Share]]:
    """What the paper prints as ``clean`` or ``robust``, and the share here."""
    found = []
    for entry in entries:
        told = getattr(entry.reported, what, None)
        share = entry.measured.clean if what == "clean" else entry.measured.certified
        if told is not None and share is not None:
            found.append((told, share))
    return found


def apart(entries: Iterable[Entry], what: str) -> str:
    """The least and the most points from a figure of the paper to that here; "–" where nothing was measured."""
    return _ends((100 * share.value - told for told, share in beside_paper(entries, what)), "+.1f")


def _within(entries: Sequence[Entry]) -> str:
    """How many of the paper's figures lie within the intervals here."""
    found = [pair for what in ("clean", "robust") for pair in beside_paper(entries, what)]
    held = sum(share.interval[0] <= told / 100 <= share.interval[1] for told, share in found)
    return f"{held} of {len(found)}"


def _ends(values: Iterable[float], form: str) -> str:
    low_to_high = dict.fromkeys(f"{value:{form}}".replace("-", "−") for value in sorted(values))
    return " to ".join([*low_to_high][:: max(1, len(low_to_high) - 1)]) or NOTHING


def _robust(entries: Iterable[Entry], model: str, defence: str) -> str:
    (entry,) = [one for one in entries if (one.trial.model, one.declared.name) == (model, defence)]
    return entry.measured.certified.percent if entry.measured.certified else NOTHING


def _lost_to_photos(folder: Path) -> Iterable[float]:
    """What the published methods on bands certify with the patch in the photo, minus what they do in the input."""
    here = {(e.trial.model, e.declared.name, key): e for key, seen in side_by_side(folder).items() for e in seen}
    for key, seen in side_by_side(folder.parent / TABLE1_PHOTO.name).items():
        for entry in (one for one in seen if one.trial.experiment == TABLE1_PHOTO and one.declared.name in PUBLISHED):
            before, after = (
                here[entry.trial.model, entry.declared.name, key].measured.certified,
                entry.measured.certified,
            )
            if before and after:
                yield 100 * (after.value - before.value)


def others(results: Path) -> dict[str, str]:
    """Figures in sentences about the other methods."""
    folder = results / "reproduce/table1"
    every = [entry for seen in side_by_side(folder).values() for entry in seen]
    bands = [entry for entry in every if entry.declared.network == BANDS]
    cleanser = [entry for entry in every if entry.declared.name == CLEANSER.name]
    middle = [entry for entry in every if (entry.trial.data, entry.trial.patch.label) == ("imagenette", MIDDLE)]
    figures = [one for *_, found in attacked(results / "attacks") for one in found]
    proved = [one for one in figures if one.guarantee is not Guarantee.NONE]
    groups = {
        "smoothed cifar10": [entry for entry in bands if entry.trial.model == f"{SMOOTHED}-cifar10"],
        "smoothed imagenette": [entry for entry in bands if entry.trial.model == f"{SMOOTHED}-imagenette"],
        "told": [entry for entry in bands if entry.trial.model.startswith(TOLD)],
        "cells": [entry for entry in every if entry.declared.network == CELLS],
    }
    runs = [trial.run for trial in trials_in(folder) if kind_of(trial) == BANDS]
    return {
        **{f"{name} {what}": apart(group, what) for name, group in groups.items() for what in ("clean", "robust")},
        "smoothed cifar10 within": _within(groups["smoothed cifar10"]),
        "photo": _ends(_lost_to_photos(folder), "+.1f"),
        "first classes": str(difference(runs, FIRST, DS)),
        "band passes": " or ".join(f"{passes:.0f}" for passes in sorted({e.measured.answer_passes for e in bands})),
        "cleanser passes": _ends((entry.measured.answer_passes for entry in cleanser), ".0f"),
        "cleanser proof": _ends((entry.measured.proved_passes or 0 for entry in cleanser), ".0f"),
        "imagenette smoothing": _robust(middle, f"{SMOOTHED}-imagenette", DS),
        "imagenette cleanser": _robust(middle, MASKED, CLEANSER.name),
        "attempts": f"{sum(one.attempts for one in proved):,}",
        "broken": str(sum(one.broken or 0 for one in proved)),
        "bare": _ends((one.label_changed for one in figures if one.guarantee is Guarantee.NONE), ".0f"),
    }
