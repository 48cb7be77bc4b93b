"""Models by name or from local files."""

from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.zoo.card import Card, build_model, load_checkpoint, save_model
from certmask.zoo.classes import class_aliases, name_aliases, readable_names
from certmask.zoo.models import (
    DEFAULT_MODEL,
    card_of,
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
    "card_of",
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
    "name_aliases",
    "readable_names",
    "save_model",
    "shipped_models",
]
