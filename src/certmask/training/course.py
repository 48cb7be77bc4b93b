"""A course: lessons, then the exam, then the checkpoint with its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from torch import nn

from certmask.classifier import Classifier
from certmask.report.drawing import draw_curves
from certmask.training.exam import Exam, card_metrics
from certmask.training.lessons import Lessons
from certmask.training.recipe import Recipe
from certmask.training.trainer import Trainer
from certmask.zoo import Card, save_model


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
