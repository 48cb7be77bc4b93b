"""A course: lessons, then the exam, then the checkpoint with its card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends.devices import device_name
from certmask.certification import certify_run, photo_margin
from certmask.classifier import Classifier
from certmask.covers import Cover, band_cover, patchcleanser_cover
from certmask.data import Dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.report.drawing import draw_curves
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, PatchCleanser, Rule, Smoothing, Undefended
from certmask.threat import Patch, Size
from certmask.training.lessons import Lessons
from certmask.training.recipe import Recipe
from certmask.training.trainer import Trainer
from certmask.zoo import Card, save_model

MASKS_PER_AXIS = 6
CLEAN, ONE, TWO, SMOOTHED = "undefended", "jury-detection", "patchcleanser", "smoothing"


@dataclass(frozen=True)
class Exam:
    """What is measured at the end: a patch, on so many held-out photos, in one precision."""

    patch: Patch
    images: int = 500
    precision: str = "auto"


@dataclass(frozen=True)
class Questions:
    """What an exam asks: a cover, and its rules for a margin, by name.

    The card's clean accuracy is that of the rule ``clean``; ``certified`` has its other figures and whose they are.
    """

    cover: Cover
    rules: Callable[[float], Mapping[str, Rule]]
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
) -> Card:
    """Train what is not trained yet, measure, and write ``model.safetensors`` with its card, curves and results.

    With ``half`` the weights are rounded to fp16 before they are measured and saved.
    """
    card = replace(card, crop=lessons.dataset.framing.crop)
    about = {**card.data, "train": lessons.dataset.describe(), "validation": held_out.dataset.describe()}
    origin = {"architecture": card.architecture, "classes": card.classes, "size": card.size, **about}
    trainer = Trainer(model, lessons, recipe, folder, mean=card.mean, std=card.std, device=device,
                      compiled=compiled, origin=origin)  # fmt: skip
    history = trainer.train(held_out, progress)
    model = model.cpu().half().float() if half else model.cpu()
    classifier = Classifier(model, card.size, mean=card.mean, std=card.std, class_names=card.classes, device=device,
                            precision=exam.precision, compiled=compiled or None, name=card.architecture)  # fmt: skip
    asked = questions(recipe, card.size, exam.patch)
    metrics = card_metrics(classifier, held_out.dataset.spread(exam.images), asked, folder / "figures.jsonl")
    metrics[trainer.loss.accuracy] = history[-1][trainer.loss.accuracy]
    finished = Card(**{**asdict(card), "recipe": asdict(recipe), "data": about, "metrics": metrics})
    draw_curves(history, f"{card.architecture}, Cutout: {recipe.cutout}", folder / "curves.png")
    return save_model(model, finished, folder / "model.safetensors", half=half)


def questions(recipe: Recipe, size: Size, patch: Patch) -> Questions:
    """What a network that was trained so is for: smoothing over its bands, else PatchCleanser's 6×6 masks.

    With those it is one-mask (detection) and two-mask (recovery) certified accuracy.
    """
    if recipe.band is not None:
        return Questions(
            band_cover(size, patch, recipe.band),
            lambda margin: {SMOOTHED: Smoothing(margin=margin)},
            SMOOTHED,
            {"certified_recovery_smoothing": SMOOTHED},
        )
    return Questions(
        patchcleanser_cover(size, patch, MASKS_PER_AXIS),
        lambda margin: {CLEAN: Undefended(), ONE: JuryDetection(margin=margin), TWO: PatchCleanser(margin=margin)},
        CLEAN,
        {"certified_detection_one_mask": ONE, "certified_recovery_two_masks": TWO},
    )


def card_metrics(classifier: Classifier, dataset: Dataset, asked: Questions, path: Path) -> dict[str, Any]:
    """Clean and certified accuracy; the rows at ``path`` are those of ``certmask certify`` with the same rules."""
    engine = Engine(classifier, [asked.cover])
    margin = photo_margin(engine, dataset).probability
    defences = [MaskedDefence(asked.cover, rule, name) for name, rule in asked.rules(margin).items()]
    path.unlink(missing_ok=True)
    certify_run(engine, dataset, defences, path)
    lines = {line.defence: line for line in figures(read_run(path))}
    return {
        "images": lines[asked.clean].images,
        "data": dataset.describe(),
        "patch": list(asked.cover.patch.size),
        "mask": list(asked.cover.mask),
        "margin": margin,
        "precision": classifier.precision,
        "compiled": classifier.compiled,
        "batch": classifier.batch,
        "device": device_name(classifier.device),
        "clean_accuracy": lines[asked.clean].clean.value,
        **{figure: _certified(lines[name]) for figure, name in asked.certified.items()},
    }


def _certified(line: Figures) -> float | None:
    return line.certified.value if line.certified else None
