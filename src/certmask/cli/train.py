"""``certmask train``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from certmask.classifier import Classifier
from certmask.cli.choices import pick_device
from certmask.cli.console import err, out, percent
from certmask.cli.sizes import parse_size
from certmask.data import Dataset, class_folders, load_dataset
from certmask.errors import CertmaskError
from certmask.geometry import Patch, Size
from certmask.report.curves import draw_curves
from certmask.training import Photos, Recipe, Trainer
from certmask.training.figures import certified_figures
from certmask.zoo import Card, build_model, load_checkpoint, save_model
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.timm_import import import_timm


def run(
    data: str,
    validation: str,
    name: str,
    recipe: Recipe,
    folder: Path,
    *,
    weights: str | None,
    pretrained: bool,
    image: str | None,
    patch: str | None,
    images: int,
    device: str,
) -> None:
    """Train, save, measure, and print the card's figures."""
    device = pick_device(device)
    classes = class_folders(data)
    if len(classes) < 2:
        raise CertmaskError(f"expected at least 2 classes to train on, got {len(classes)}")
    torch.manual_seed(recipe.seed)
    model, card = starting_point(name, classes, parse_size(image, "image") if image else None, weights, pretrained)
    threat = Patch(*parse_size(patch, "patch")) if patch else Patch(*(max(1, round(side / 7)) for side in card.size))
    threat.positions(card.size)
    names = [(c,) for c in classes]
    train, held_out = load_dataset(data, names, card.crop), load_dataset(validation, names, card.crop)
    out.print(
        f"{card.architecture} at {card.size[0]}×{card.size[1]}, {len(train)} photos of {len(classes)} classes, {device}"
    )
    photos, check = read_photos(train, card.size), read_photos(held_out, card.size)
    trainer = Trainer(model, photos, recipe, folder, mean=card.mean, std=card.std, device=device)
    history = trainer.run(check, lambda e: out.print(
        f"epoch {e['epoch']:.0f}/{recipe.epochs}: loss {e['loss']:.4f}, training {percent(e['training_accuracy'])} %, "
        f"validation {percent(e['validation_accuracy'])} %"))  # fmt: skip
    classifier = Classifier(model.cpu(), card.size, mean=card.mean, std=card.std, class_names=classes, device=device,
                            compiled=False, name=card.architecture)  # fmt: skip
    metrics = certified_figures(classifier, held_out.first(images), threat)
    metrics["validation_accuracy"] = history[-1]["validation_accuracy"]
    about = {"train": train.describe(), "validation": held_out.describe()}
    finished = Card(**{**asdict(card), "recipe": asdict(recipe), "data": about, "metrics": metrics})
    save_model(model.cpu(), finished, folder / "model.safetensors")
    draw_curves(history, f"{card.architecture}, Cutout: {recipe.cutout}", folder / "curves.png")
    out.print(
        f"{metrics['images']} held-out photos, {threat.height}×{threat.width} patch: "
        f"clean {percent(metrics['clean_accuracy'])} %, "
        f"certified detection (one mask) {percent(metrics['certified_detection_one_mask'])} %, "
        f"certified recovery (two masks) {percent(metrics['certified_recovery_two_masks'])} %\n"
        f"saved in {folder / 'model.safetensors'}, with its card and curves.png"
    )


def starting_point(
    name: str, classes: list[str], size: Size | None, weights: str | None, pretrained: bool
) -> tuple[nn.Module, Card]:
    """A network for these classes: fresh, from local weights, pretrained, or from a checkpoint with a card."""
    if name.endswith(".safetensors"):
        model, card = load_checkpoint(Path(name))
        if card.classes != tuple(classes):
            raise CertmaskError(
                f"expected the card's classes {', '.join(card.classes[:3])} …, got {', '.join(classes[:3])} …"
            )
        return model, card
    timm = import_timm()
    config = timm.get_pretrained_cfg(name)
    size = size or (tuple(config.input_size[1:]) if config else (224, 224))
    mean, std, crop = (config.mean, config.std, config.crop_pct) if config else ((0.5,) * 3, (0.25,) * 3, 0.875)
    if pretrained:
        model = timm.create_model(name, pretrained=True, num_classes=len(classes))
    elif weights is not None:
        model = _with_new_head(name, Path(weights), len(classes), size)
    else:
        model = build_model(name, len(classes), size)
    return model, Card(name, tuple(classes), size, tuple(mean), tuple(std), float(crop))


def _with_new_head(name: str, weights: Path, classes: int, size: Size) -> nn.Module:
    """Local weights of a model with another number of classes: everything but the last layer."""
    state = read_state_dict(weights)
    model = build_model(name, classes, size)
    own = model.state_dict()
    head = {key for key in own if key in state and own[key].shape != state[key].shape}
    if not all(key.startswith(("head", "fc", "classifier")) for key in head):
        raise CertmaskError(f"expected weights of {name} in {weights}, got other shapes at {sorted(head)[0]}")
    load_weights(model, {**state, **{key: own[key] for key in head}}, name, weights)
    return model


def read_photos(dataset: Dataset, size: Size) -> Photos:
    """All photos in memory, with a bar."""
    from rich.progress import Progress

    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(f"reading {dataset.name}", total=len(dataset))
        return Photos(dataset, size, lambda n: bar.advance(task, n))
