"""Models by name or from local files."""

from certmask.zoo.models import (
    DEFAULT_MODEL,
    crop_share,
    imagenet_names,
    imagenet_synsets,
    load_classifier,
    load_model,
)

__all__ = ["DEFAULT_MODEL", "crop_share", "imagenet_names", "imagenet_synsets", "load_classifier", "load_model"]
