"""What classes are called: ImageNet's in English and by WordNet id, and what folders may call a model's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from certmask.classifier import Classifier
from certmask.data.labels import IMAGENET_CLASSES
from certmask.zoo.timm_import import import_timm


def imagenet_names() -> list[str]:
    """English names of the 1,000 ImageNet classes, in order."""
    info = _imagenet_info()
    return [info.index_to_description(c).split(",")[0] for c in range(IMAGENET_CLASSES)]


def imagenet_synsets() -> list[str]:
    """WordNet ids (n01440764 …) of the 1,000 ImageNet classes, in order."""
    info = _imagenet_info()
    return [info.index_to_label_name(c) for c in range(IMAGENET_CLASSES)]


def _imagenet_info() -> Any:
    import_timm()
    return import_module("timm.data").ImageNetInfo()


def readable_names(classes: Sequence[str]) -> tuple[str, ...]:
    """WordNet ids replaced by the English names of ImageNet's classes; other names stay."""
    if not all(name[:1] == "n" and name[1:].isdigit() for name in classes):
        return tuple(classes)
    english = dict(zip(imagenet_synsets(), imagenet_names(), strict=True))
    names = tuple(english.get(name, name) for name in classes)
    return names if len(set(names)) == len(names) else tuple(classes)


def class_aliases(classifier: Classifier) -> list[tuple[str, ...]]:
    """Names that folders and label files may use for each class."""
    synsets, english = imagenet_synsets(), imagenet_names()
    if classifier.classes == len(english):
        return list(zip(synsets, classifier.class_names, strict=True))
    return [
        (name, *(synset for synset, word in zip(synsets, english, strict=True) if word == name))
        for name in classifier.class_names
    ]
