"""``certmask train``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from certmask.cli.choices import pick_device
from certmask.cli.console import err, out
from certmask.cli.sizes import make_patch, parse_size
from certmask.data import Dataset, Framing, class_folders, load_dataset
from certmask.errors import CertmaskError
from certmask.results.kinds import percent
from certmask.threat import Size
from certmask.training import Photos, Recipe, read_photos
from certmask.training.run import Exam, Lesson, train_run
from certmask.zoo import Card, build_model, load_checkpoint
from certmask.zoo.card import file_digest, read_card
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.models import checkpoint_path, pretrained_model
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
    crop: float | None,
    patch: str | None,
    images: int,
    precision: str,
    half: bool,
    compiled: bool,
    device: str,
) -> None:
    """Train, save, measure, and print the card's figures."""
    device = pick_device(device)
    classes = class_folders(data)
    if len(classes) < 2:
        raise CertmaskError(f"expected at least 2 classes to train on, got {len(classes)}")
    torch.manual_seed(recipe.seed)
    model, card = starting_point(name, classes, parse_size(image, "image") if image else None, weights, pretrained)
    threat = make_patch(patch, card.size)
    threat.positions(card.size)
    framing = Framing(card.crop if crop is None else crop)
    train, held_out = (load_dataset(source, [(c,) for c in classes], framing) for source in (data, validation))
    out.print(
        f"{card.architecture} at {card.size[0]}×{card.size[1]}, {len(train)} photos of {len(classes)} classes, {device}"
    )
    lessons, check = (Lesson(photos, _read(photos, card.size)) for photos in (train, held_out))
    card = train_run(model, card, recipe, lessons, check, Exam(threat, images, precision), folder, device=device,
                     half=half, compiled=compiled, progress=lambda entry: _print_epoch(entry, recipe))  # fmt: skip
    _print_figures(card, folder)


def _print_epoch(entry: dict[str, float], recipe: Recipe) -> None:
    out.print(
        f"epoch {entry['epoch']:.0f}/{recipe.epochs}: loss {entry['loss']:.4f}, "
        f"training {percent(entry['training_accuracy'])} %, validation {percent(entry['validation_accuracy'])} %"
    )


def _print_figures(card: Card, folder: Path) -> None:
    metrics = card.metrics
    out.print(
        f"{metrics['images']} held-out photos, {'×'.join(map(str, metrics['patch']))} patch: "
        f"clean {percent(metrics['clean_accuracy'])} %, "
        f"certified detection (one mask) {percent(metrics['certified_detection_one_mask'])} %, "
        f"certified recovery (two masks) {percent(metrics['certified_recovery_two_masks'])} %\n"
        f"saved in {folder / 'model.safetensors'}, with its card, curves.png and figures.jsonl"
    )


def starting_point(
    name: str, classes: list[str], size: Size | None, weights: str | None, pretrained: bool
) -> tuple[nn.Module, Card]:
    """A network for these classes: fresh, from local weights, pretrained, or from a checkpoint with a card."""
    checkpoint = checkpoint_path(name)
    if weights is not None and pretrained:
        raise CertmaskError(f"expected either local or pretrained weights, got both ({weights} and --pretrained)")
    if checkpoint is not None:
        if weights is not None or pretrained:
            raise CertmaskError(f"expected no further weights for {name}, which brings its own, got some")
        model, card = load_checkpoint(checkpoint)
        if size is not None and size != card.size:
            raise CertmaskError(f"expected the card's input size {card.size}, got {size}")
        if card.classes != tuple(classes):
            raise CertmaskError(
                f"expected the card's classes {', '.join(card.classes[:3])} …, got {', '.join(classes[:3])} …"
            )
        return model, replace(card, data={"start": f"{card.architecture} with a card, sha256 {card.sha256[:16]}"})
    timm = import_timm()
    config = timm.get_pretrained_cfg(name)
    size = size or (tuple(config.input_size[1:]) if config else (224, 224))
    mean, std, crop = (config.mean, config.std, config.crop_pct) if config else ((0.5,) * 3, (0.25,) * 3, 0.875)
    if pretrained:
        model, start = pretrained_model(name, num_classes=len(classes)), "pretrained through timm"
    elif weights is not None:
        model = _with_new_head(name, Path(weights), len(classes), size)
        start = f"local weights, sha256 {file_digest(Path(weights))[:16]}"
    else:
        model, start = build_model(name, len(classes), size), "random weights"
    return model, Card(name, tuple(classes), size, tuple(mean), tuple(std), float(crop), data={"start": start})


def architecture(name: str) -> str:
    """The architecture that a model's name stands for: that on the card of a checkpoint, else the name itself."""
    checkpoint = checkpoint_path(name)
    return name if checkpoint is None else read_card(checkpoint).architecture


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


def _read(dataset: Dataset, size: Size) -> Photos:
    """The photos, with a bar while they are read into memory."""
    from rich.progress import Progress

    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(f"reading {dataset.name}", total=len(dataset))
        return read_photos(dataset, size, lambda n: bar.advance(task, n))
