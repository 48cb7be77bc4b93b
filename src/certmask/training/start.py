"""Where training starts: fresh weights, local ones, timm's pretrained ones, or a checkpoint with its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from certmask.data.imagenet import imagenet_synsets
from certmask.errors import CertmaskError, UsageError
from certmask.threat import Size
from certmask.training.transplant import INNER, transplanted
from certmask.zoo import Card, build_model, load_checkpoint
from certmask.zoo.card import file_digest
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.models import checkpoint_path, is_brought, pretrained_model
from certmask.zoo.timm_import import import_timm

IMAGENET_CLASSES = 1000


def starting_point(
    name: str,
    classes: Sequence[str],
    size: Size | None = None,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> tuple[nn.Module, Card]:
    """A network for these classes and its card; what is random in it depends on the seed alone."""
    if len(classes) < 2:
        raise CertmaskError(f"expected at least 2 classes to train on, got {len(classes)}")
    if weights is not None and pretrained:
        raise UsageError(f"expected either local or pretrained weights, got both ({weights} and --pretrained)")
    torch.manual_seed(seed)
    checkpoint = checkpoint_path(name)
    if is_brought(name):
        raise UsageError(f"expected a timm name, or a .safetensors with a card, to start training from, got {name}")
    if checkpoint is None:
        return _from_architecture(name, classes, size, weights, pretrained)
    if weights is not None or pretrained:
        raise UsageError(f"expected no further weights for {name}, which brings its own, got some")
    return _from_checkpoint(checkpoint, classes, size)


def _from_checkpoint(checkpoint: Path, classes: Sequence[str], size: Size | None) -> tuple[nn.Module, Card]:
    model, card = load_checkpoint(checkpoint)
    if size is not None and size != card.size:
        raise UsageError(f"expected the card's input size {card.size}, got {size}")
    if card.classes != tuple(classes):
        raise CertmaskError(
            f"expected the card's classes {', '.join(card.classes[:3])} …, got {', '.join(classes[:3])} …"
        )
    return model, replace(card, data={"start": f"{card.architecture} with a card, sha256 {card.sha256[:16]}"})


def _from_architecture(
    name: str, classes: Sequence[str], size: Size | None, weights: Path | None, pretrained: bool
) -> tuple[nn.Module, Card]:
    """An architecture that timm knows, with the preprocessing that timm has for it."""
    config = import_timm().get_pretrained_cfg(name)
    size = size or (tuple(config.input_size[1:]) if config else (224, 224))
    mean, std, crop = (config.mean, config.std, config.crop_pct) if config else ((0.5,) * 3, (0.25,) * 3, 0.875)
    if pretrained:
        model, start = pretrained_model(name, num_classes=len(classes)), "pretrained through timm"
    elif weights is not None:
        model, changed = _with_new_head(name, weights, classes, size)
        start = f"local weights, sha256 {file_digest(weights)[:16]}{changed}"
    else:
        model, start = build_model(name, len(classes), size), "random weights"
    return model, Card(name, tuple(classes), size, tuple(mean), tuple(std), float(crop), data={"start": start})


def _with_new_head(name: str, weights: Path, classes: Sequence[str], size: Size) -> tuple[nn.Module, str]:
    """Local weights of a model with another number of classes, and what was changed.

    The last layer is that of the weights where it has as many classes; else a new one, which keeps what ImageNet's
    knows where the classes are some of ImageNet's.
    """
    model = build_model(name, len(classes), size)
    own = model.state_dict()
    state, changed = transplanted(name, own, read_state_dict(weights))
    head = {key for key in own if key in state and own[key].shape != state[key].shape}
    if not all(key.removeprefix(INNER).startswith(("head", "fc", "classifier")) for key in head):
        raise CertmaskError(f"expected weights of {name} in {weights}, got other shapes at {sorted(head)[0]}")
    rows = _imagenet_rows(classes)
    if head and rows and all(len(state[key]) == IMAGENET_CLASSES for key in head):
        kept, changed = {key: state[key][rows] for key in head}, f"{changed}, with what it knows of these classes"
    else:
        kept = {key: own[key] for key in head}
    load_weights(model, {**state, **kept}, name, weights)
    return model, changed


def _imagenet_rows(classes: Sequence[str]) -> list[int]:
    """Where classes named by WordNet id stand among ImageNet's; nothing if one of them does not."""
    known = {synset: number for number, synset in enumerate(imagenet_synsets())}
    return [known[name] for name in classes] if all(name in known for name in classes) else []
