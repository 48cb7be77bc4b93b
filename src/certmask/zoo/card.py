"""Model cards: a JSON file beside a safetensors checkpoint that says what it is and how it came about.

A card names the sha256 of its weights and, as ``digest``, that of its own content: neither can be edited alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from certmask.errors import ClassifierError
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.timm_import import import_timm

CARD_FORMAT = 2
WITHOUT_DIGEST = 1
"""The former format: its cards are read, and it is told that nobody can see whether they were edited."""
LOG = logging.getLogger(__name__)


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
    write_card(card, checkpoint)
    return card


def write_card(card: Card, checkpoint: Path) -> None:
    """The card beside a checkpoint, with its digest."""
    content = {"certmask_card": CARD_FORMAT, **json.loads(json.dumps(asdict(card)))}
    text = json.dumps({**content, "digest": card_digest(content)}, indent=1, ensure_ascii=False)
    card_path(checkpoint).write_text(text + "\n", encoding="utf-8")


def card_digest(content: dict[str, Any]) -> str:
    """sha256 over everything on a card but the digest itself, however it is laid out."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_card(checkpoint: Path) -> Card:
    """The card beside a checkpoint; an error if it was edited, or that names the field that cannot be right."""
    path = card_path(checkpoint)
    content = _content(checkpoint, path)
    digest = content.get("digest")
    if (_has_digest(content) or digest is not None) and digest != card_digest(content):
        raise ClassifierError(f"expected the card that was written with {checkpoint}, got an edited one in {path}")
    fields = Card.__dataclass_fields__
    found = {name: value for name, value in content.items() if name not in ("certmask_card", "digest")}
    for name in sorted({*fields, *found}):
        if name not in found or name not in fields:
            raise ClassifierError(f"expected the fields of a card in {path}, got {name!r} missing or unknown")
        if not _fits(name, found[name]):
            raise ClassifierError(f"expected {name} as on a model card in {path}, got {found[name]!r}")
    tuples = {name: tuple(found[name]) for name in ("classes", "size", "mean", "std")}
    return Card(**{**found, **tuples})


def _content(checkpoint: Path, path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ClassifierError(f"expected a card beside {checkpoint}, got nothing at {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ClassifierError(f"expected a model card in {path}, got {error}") from None
    if not isinstance(content, dict) or content.get("certmask_card") not in (WITHOUT_DIGEST, CARD_FORMAT):
        raise ClassifierError(f"expected a certmask card of format {CARD_FORMAT}, got {path}")
    return content


def _has_digest(content: dict[str, Any]) -> bool:
    return bool(content["certmask_card"] != WITHOUT_DIGEST)


def _fits(name: str, value: Any) -> bool:
    """Whether a field of a card can have this value."""
    if name in ("architecture", "sha256"):
        return isinstance(value, str)
    if name == "classes":
        return isinstance(value, list) and len(value) >= 2 and all(isinstance(own, str) for own in value)
    if name in ("size", "mean", "std"):
        kinds, length, least = (int, 2, 1) if name == "size" else ((int, float), 3, 0)
        right = isinstance(value, list) and len(value) == length
        return right and all(isinstance(n, kinds) and not isinstance(n, bool) and n >= least for n in value)
    if name == "crop":
        return isinstance(value, (int, float)) and 0 < value <= 1
    return isinstance(value, dict)


def load_checkpoint(checkpoint: Path) -> tuple[nn.Module, Card]:
    """The model of a checkpoint with a card; an error that says which field does not fit."""
    if not checkpoint.is_file():
        raise ClassifierError(f"expected a checkpoint, got nothing at {checkpoint}")
    card = read_card(checkpoint)
    digest = file_digest(checkpoint)
    if digest != card.sha256:
        raise ClassifierError(f"expected sha256 {card.sha256[:12]}… as on the card of {checkpoint}, got {digest[:12]}…")
    if not _has_digest(_content(checkpoint, card_path(checkpoint))):
        LOG.warning("the card of %s has no digest: whether it was edited cannot be told", checkpoint)
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
