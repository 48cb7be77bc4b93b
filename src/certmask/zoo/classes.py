"""What a model's classes are called, and what folders may call them."""

from __future__ import annotations

from collections.abc import Sequence

from certmask.classifier import Classifier
from certmask.data.imagenet import imagenet_names, imagenet_synsets


def readable_names(classes: Sequence[str]) -> tuple[str, ...]:
    """WordNet ids replaced by the English names of ImageNet's classes; other names stay."""
    if not all(name[:1] == "n" and name[1:].isdigit() for name in classes):
        return tuple(classes)
    english = dict(zip(imagenet_synsets(), imagenet_names(), strict=True))
    names = tuple(english.get(name, name) for name in classes)
    return names if len(set(names)) == len(names) else tuple(classes)


def class_aliases(classifier: Classifier) -> list[tuple[str, ...]]:
    """Names that folders and label files may use for each class."""
    return name_aliases(classifier.class_names)


def name_aliases(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The same from the classes' readable names, known before the model is."""
    synsets, english = imagenet_synsets(), imagenet_names()
    if len(names) == len(english):
        return list(zip(synsets, names, strict=True))
    return [(name, *(synset for synset, word in zip(synsets, english, strict=True) if word == name)) for name in names]
