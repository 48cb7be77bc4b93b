"""Models by name or from local files.

Names are imported when first used, so that experiments can be declared without loading torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certmask.data.imagenet import imagenet_names as imagenet_names
    from certmask.data.imagenet import imagenet_synsets as imagenet_synsets
    from certmask.zoo.card import Card as Card
    from certmask.zoo.card import build_model as build_model
    from certmask.zoo.card import load_checkpoint as load_checkpoint
    from certmask.zoo.card import save_model as save_model
    from certmask.zoo.classes import class_aliases as class_aliases
    from certmask.zoo.classes import name_aliases as name_aliases
    from certmask.zoo.classes import readable_names as readable_names
    from certmask.zoo.models import DEFAULT_MODEL as DEFAULT_MODEL
    from certmask.zoo.models import backend_of as backend_of
    from certmask.zoo.models import card_of as card_of
    from certmask.zoo.models import framing_of as framing_of
    from certmask.zoo.models import is_known as is_known
    from certmask.zoo.models import load_architecture as load_architecture
    from certmask.zoo.models import load_classifier as load_classifier
    from certmask.zoo.models import load_model as load_model
    from certmask.zoo.models import load_with_card as load_with_card
    from certmask.zoo.models import models_at_hand as models_at_hand
    from certmask.zoo.models import shipped_models as shipped_models

_FILES = {
    "data.imagenet": ["imagenet_names", "imagenet_synsets"],
    "zoo.card": ["Card", "build_model", "load_checkpoint", "save_model"],
    "zoo.classes": ["class_aliases", "name_aliases", "readable_names"],
    "zoo.models": [
        "DEFAULT_MODEL",
        "backend_of",
        "card_of",
        "framing_of",
        "is_known",
        "load_architecture",
        "load_classifier",
        "load_model",
        "load_with_card",
        "models_at_hand",
        "shipped_models",
    ],
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted(_FILE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'certmask.zoo' has no attribute {name!r}")
    return getattr(import_module(f"certmask.{_FILE_OF[name]}"), name)
