"""Model cards: a JSON file beside a safetensors checkpoint that says what it is and how it came about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from certmask.errors import ClassifierError
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.timm_import import import_timm

CARD_FORMAT = 1


@dataclass(frozen=True)
class Card:
    """Everything needed to rebuild a model and to judge its figures."""

    architecture: str
    classes: tuple[str, ...]
    size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: float
    sha256: str = ""
    recipe: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def card_path(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".json")


def save_model(model: nn.Module, card: Card, checkpoint: Path, half: bool = False) -> Card:
    """Write the weights (in fp16 if ``half``) and their card; the card gets the file's sha256."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if half:
        state = {name: t.half() if t.is_floating_point() else t for name, t in state.items()}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    save_file(state, checkpoint)
    card = Card(**{**asdict(card), "sha256": file_digest(checkpoint)})
    text = json.dumps({"certmask_card": CARD_FORMAT, **asdict(card)}, indent=1, ensure_ascii=False)
    card_path(checkpoint).write_text(text + "\n", encoding="utf-8")
    return card


def read_card(checkpoint: Path) -> Card:
    """The card beside a checkpoint; an error that names the field that is missing or unknown."""
    path = card_path(checkpoint)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClassifierError(f"expected a card beside {checkpoint}, got nothing at {path}") from None
    except (OSError, ValueError) as error:
        raise ClassifierError(f"expected a model card in {path}, got {error}") from None
    if not isinstance(content, dict) or content.pop("certmask_card", None) != CARD_FORMAT:
        raise ClassifierError(f"expected a certmask card of format {CARD_FORMAT}, got {path}")
    fields = Card.__dataclass_fields__
    for name in {*fields, *content}:
        if name not in content or name not in fields:
            raise ClassifierError(f"expected the fields of a card in {path}, got {name!r} missing or unknown")
    tuples = {name: tuple(content[name]) for name in ("classes", "size", "mean", "std")}
    return Card(**{**content, **tuples})


def load_checkpoint(checkpoint: Path) -> tuple[nn.Module, Card]:
    """The model of a checkpoint with a card; an error that says which field does not fit."""
    if not checkpoint.is_file():
        raise ClassifierError(f"expected a checkpoint, got nothing at {checkpoint}")
    card = read_card(checkpoint)
    digest = file_digest(checkpoint)
    if digest != card.sha256:
        raise ClassifierError(f"expected sha256 {card.sha256[:12]}… as on the card of {checkpoint}, got {digest[:12]}…")
    model = build_model(card.architecture, len(card.classes), card.size)
    try:
        load_weights(model, read_state_dict(checkpoint), card.architecture, checkpoint)
    except ClassifierError as error:
        raise ClassifierError(
            f"{error}; the card says architecture {card.architecture}, {len(card.classes)} classes"
        ) from None
    return model, card


def build_model(architecture: str, classes: int, size: tuple[int, int]) -> nn.Module:
    """A fresh timm network for so many classes and this input size."""
    timm = import_timm()
    if not timm.is_model(architecture):
        raise ClassifierError(f"expected an architecture that timm knows, got {architecture!r}")
    try:
        model: nn.Module = timm.create_model(architecture, num_classes=classes, img_size=size)
    except TypeError:
        model = timm.create_model(architecture, num_classes=classes)
    return model


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
