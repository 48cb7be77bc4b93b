"""A course: lessons, then the exam, then the checkpoint with its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends.devices import device_name
from certmask.certification import certify_run, photo_margin
from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover
from certmask.data import Dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.report.drawing import draw_curves
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, PatchCleanser, Undefended
from certmask.threat import Patch
from certmask.training.lessons import Lessons
from certmask.training.recipe import Recipe
from certmask.training.trainer import Trainer
from certmask.zoo import Card, save_model

MASKS_PER_AXIS = 6
CLEAN, ONE, TWO = "undefended", "jury-detection", "patchcleanser"


@dataclass(frozen=True)
class Exam:
    """What is measured at the end: a patch, on so many held-out photos, in one precision."""

    patch: Patch
    images: int = 500
    precision: str = "auto"


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
    metrics = card_metrics(classifier, held_out.dataset.spread(exam.images), exam.patch, folder / "figures.jsonl")
    metrics["validation_accuracy"] = history[-1]["validation_accuracy"]
    finished = Card(**{**asdict(card), "recipe": asdict(recipe), "data": about, "metrics": metrics})
    draw_curves(history, f"{card.architecture}, Cutout: {recipe.cutout}", folder / "curves.png")
    return save_model(model, finished, folder / "model.safetensors", half=half)


def card_metrics(classifier: Classifier, dataset: Dataset, patch: Patch, path: Path) -> dict[str, Any]:
    """Clean, one-mask (detection) and two-mask (recovery) certified accuracy with PatchCleanser's 6×6 masks.

    The rows at ``path`` are those of ``certmask certify --tiling patchcleanser`` with the same three rules.
    """
    cover = patchcleanser_cover(classifier.size, patch, MASKS_PER_AXIS)
    engine = Engine(classifier, [cover])
    margin = photo_margin(engine, dataset).probability
    rules = {CLEAN: Undefended(), ONE: JuryDetection(margin=margin), TWO: PatchCleanser(margin=margin)}
    defences = [MaskedDefence(cover, rule, name) for name, rule in rules.items()]
    path.unlink(missing_ok=True)
    certify_run(engine, dataset, defences, path)
    lines = {line.defence: line for line in figures(read_run(path))}
    return {
        "images": lines[CLEAN].images,
        "data": dataset.describe(),
        "patch": list(patch.size),
        "mask": list(cover.mask),
        "margin": margin,
        "precision": classifier.precision,
        "compiled": classifier.compiled,
        "batch": classifier.batch,
        "device": device_name(classifier.device),
        "clean_accuracy": lines[CLEAN].clean.value,
        "certified_detection_one_mask": _certified(lines[ONE]),
        "certified_recovery_two_masks": _certified(lines[TWO]),
    }


def _certified(line: Figures) -> float | None:
    return line.certified.value if line.certified else None
