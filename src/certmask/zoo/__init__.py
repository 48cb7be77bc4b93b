"""Models by name or from local files."""

from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.zoo.card import Card, build_model, load_checkpoint, save_model
from certmask.zoo.models import (
    DEFAULT_MODEL,
    framing_of,
    is_known,
    load_classifier,
    load_model,
    load_with_card,
    shipped_models,
)

__all__ = [
    "DEFAULT_MODEL",
    "Card",
    "build_model",
    "framing_of",
    "imagenet_names",
    "imagenet_synsets",
    "is_known",
    "load_checkpoint",
    "load_classifier",
    "load_model",
    "load_with_card",
    "save_model",
    "shipped_models",
]
