"""Models by name or from local files."""

from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.zoo.card import Card, build_model, load_checkpoint, save_model
from certmask.zoo.classes import class_aliases
from certmask.zoo.models import (
    DEFAULT_MODEL,
    framing_of,
    is_known,
    load_architecture,
    load_classifier,
    load_model,
    load_with_card,
    models_at_hand,
    shipped_models,
)

__all__ = [
    "DEFAULT_MODEL",
    "Card",
    "build_model",
    "class_aliases",
    "framing_of",
    "imagenet_names",
    "imagenet_synsets",
    "is_known",
    "load_architecture",
    "load_checkpoint",
    "load_classifier",
    "load_model",
    "load_with_card",
    "models_at_hand",
    "save_model",
    "shipped_models",
]
