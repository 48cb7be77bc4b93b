"""A course: lessons, then the exam, then the checkpoint with its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends.devices import device_name
from certmask.certification import certify_run, photo_margin
from certmask.classifier import Classifier
from certmask.covers import Cover, band_cover, patchcleanser_cover
from certmask.data import Dataset
from certmask.defences import AnyDefence, LocalDefence, MaskedDefence, engine_covers
from certmask.deployed.tokens import cover_for
from certmask.engine import Engine
from certmask.evidence import LocalClassifier
from certmask.evidence.registry import LOCAL_REGISTER, UNDEFENDED
from certmask.report.drawing import draw_curves
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, PatchCleanser, Rule, Smoothing, Undefended
from certmask.rules.registry import listed
from certmask.threat import Patch
from certmask.training.lessons import Lessons
from certmask.training.recipe import Recipe
from certmask.training.teachers import Teachers
from certmask.training.trainer import Trainer
from certmask.votes import Margin
from certmask.zoo import Card, save_model

MASKS_PER_AXIS = 6
CLEAN, ONE, TWO, ZOOM, SMOOTHED = "undefended", "jury-detection", "patchcleanser", "zoom", "smoothing"


@dataclass(frozen=True)
class Exam:
    """What is measured at the end: a patch, on so many held-out photos, in one precision."""

    patch: Patch
    images: int = 500
    precision: str = "auto"


@dataclass(frozen=True)
class Questions:
    """What an exam asks: defences against a patch, for a margin, and the cover whose masks the card names, if any.

    The card's clean accuracy is that of the defence ``clean``; ``certified`` has its other figures and whose they are.
    """

    patch: Patch
    cover: Cover | None
    defences: Callable[[Margin], Sequence[AnyDefence]]
    clean: str
    certified: Mapping[str, str]


def train_and_examine(
    model: nn.Module,
    card: Card,
    recipe: Recipe,
    lessons: Lessons,
    held_out: Lessons,
    exam: Exam,
    folder: Path,
    *,
    device: str,
    half: bool = False,
    compiled: bool = False,
    progress: Callable[[dict[str, float]], None] = lambda _: None,
    teachers: Teachers | None = None,
) -> Card:
    """Train what is not trained yet, measure, and write ``model.safetensors`` with its card, curves and results.

    With ``half`` the weights are rounded to fp16 before they are measured and saved.
    """
    card = replace(card, crop=lessons.dataset.framing.crop)
    taught_by = {} if teachers is None else {"teachers": teachers.describe()}
    about = {**card.data, **taught_by, "train": lessons.dataset.describe(), "validation": held_out.dataset.describe()}
    origin = {"architecture": card.architecture, "classes": card.classes, "size": card.size, **about}
    trainer = Trainer(model, lessons, recipe, folder, mean=card.mean, std=card.std, device=device,
                      compiled=compiled, origin=origin, teachers=teachers)  # fmt: skip
    history = trainer.train(held_out, progress)
    model = trainer.trained.cpu()
    model = model.half().float() if half else model
    kind = LocalClassifier if hasattr(model, "local") else Classifier
    classifier = kind(model, card.size, mean=card.mean, std=card.std, class_names=card.classes, device=device,
                      precision=exam.precision, compiled=compiled or None, name=card.architecture)  # fmt: skip
    asked = questions(recipe, classifier, exam.patch)
    metrics = card_metrics(classifier, held_out.dataset.spread(exam.images), asked, folder / "figures.jsonl")
    metrics[trainer.loss.accuracy] = history[-1][trainer.loss.accuracy]
    metrics["training_passes"] = recipe.epochs * recipe.passes * len(lessons.labels)
    if teachers is not None:
        metrics["teacher_passes"] = recipe.epochs * recipe.shown * len(teachers.each) * len(lessons.labels)
    metrics["training_seconds"] = round(trainer.seconds, 1)
    finished = Card(**{**asdict(card), "recipe": asdict(recipe), "data": about, "metrics": metrics})
    draw_curves(history, f"{card.architecture}, Cutout: {recipe.cutout}", folder / "curves.png")
    return save_model(model, finished, folder / "model.safetensors", half=half)


def questions(recipe: Recipe, classifier: Classifier, patch: Patch) -> Questions:
    """What a network that was trained so is for: its cells, smoothing over its bands, or PatchCleanser's 6×6 masks.

    With masks it is one-mask (detection) and two-mask (recovery) certified accuracy.
    """
    if isinstance(classifier, LocalClassifier):
        return _of_cells(classifier, patch)
    if recipe.band is not None:
        cover = band_cover(classifier.size, patch, recipe.band)
        certified = {"certified_recovery_smoothing": SMOOTHED}
        return _of_masks(cover, lambda margin: {SMOOTHED: Smoothing(margin=margin)}, SMOOTHED, certified)
    return _of_masks(
        patchcleanser_cover(classifier.size, patch, MASKS_PER_AXIS),
        lambda margin: {CLEAN: Undefended(), ONE: JuryDetection(margin=margin), TWO: PatchCleanser(margin=margin)},
        CLEAN,
        {"certified_detection_one_mask": ONE, "certified_recovery_two_masks": TWO, "certified_recovery_zoom": ZOOM},
        cover_for(classifier, patch, ZOOM),
    )


def _of_masks(
    cover: Cover,
    rules: Callable[[float], Mapping[str, Rule]],
    clean: str,
    certified: Mapping[str, str],
    levels: Cover | None = None,
) -> Questions:
    def defences(margin: Margin) -> list[MaskedDefence]:
        found = [MaskedDefence(cover, rule, name) for name, rule in rules(margin.probability).items()]
        zoom = [] if levels is None else [MaskedDefence(levels, listed(ZOOM).made(margin), ZOOM)]
        return [*found, *zoom]

    return Questions(cover.patch, cover, defences, clean, certified)


def _of_cells(classifier: LocalClassifier, patch: Patch) -> Questions:
    def defences(margin: Margin) -> list[AnyDefence]:
        rules = {row.option: row.made(patch, margin.evidence) for row in (*LOCAL_REGISTER, UNDEFENDED)}
        return [LocalDefence(rule, classifier.fields, name) for name, rule in rules.items()]

    certified = {f"certified_recovery_{row.option.replace('-', '_')}": row.option for row in LOCAL_REGISTER}
    return Questions(patch, None, defences, CLEAN, certified)


def card_metrics(classifier: Classifier, dataset: Dataset, asked: Questions, path: Path) -> dict[str, Any]:
    """Clean and certified accuracy; the rows at ``path`` are those of ``certmask certify`` with the same rules."""
    masked = [own for own in asked.defences(Margin()) if isinstance(own, MaskedDefence)]
    engine = Engine(classifier, engine_covers(masked))
    margin = photo_margin(engine, dataset)
    path.unlink(missing_ok=True)
    certify_run(engine, dataset, asked.defences(margin), path)
    lines = {line.defence: line for line in figures(read_run(path))}
    return {
        "images": lines[asked.clean].images,
        "data": dataset.describe(),
        "patch": list(asked.patch.size),
        **({} if asked.cover is None else {"mask": list(asked.cover.mask)}),
        "margin": margin.probability if asked.cover else margin.evidence,
        "precision": classifier.precision,
        "compiled": classifier.compiled,
        "batch": classifier.batch,
        "device": device_name(classifier.device),
        "clean_accuracy": lines[asked.clean].clean.value,
        **{figure: _certified(lines[name]) for figure, name in asked.certified.items()},
    }


def _certified(line: Figures) -> float | None:
    return line.certified.value if line.certified else None
