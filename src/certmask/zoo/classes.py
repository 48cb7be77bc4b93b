"""What a model's classes are called, and what folders may call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from certmask.classifier import Classifier
from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.data.labels import IMAGENET_CLASSES
from certmask.errors import ClassifierError


def readable_names(classes: Sequence[str]) -> tuple[str, ...]:
    """WordNet ids replaced by the English names of ImageNet's classes; other names stay."""
    if not all(name[:1] == "n" and name[1:].isdigit() for name in classes):
        return tuple(classes)
    english = dict(zip(imagenet_synsets(), imagenet_names(), strict=True))
    names = tuple(english.get(name, name) for name in classes)
    return names if len(set(names)) == len(names) else tuple(classes)


def checked_names(names: Sequence[str], where: str) -> tuple[str, ...]:
    """The same names; an error if two classes have the same, unless they are as many as ImageNet's, which has such."""
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None and len(names) != IMAGENET_CLASSES:
        raise ClassifierError(f"expected another name for each class in {where}, got two classes called {twice!r:.80}")
    return tuple(names)


def class_aliases(classifier: Classifier) -> list[tuple[str, ...]]:
    """Names that folders and label files may use for each class."""
    return name_aliases(classifier.class_names)


def name_aliases(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The same from the classes' readable names, known before the model is."""
    synsets, english = imagenet_synsets(), imagenet_names()
    if len(names) == len(english):
        return list(zip(synsets, names, strict=True))
    return [(name, *(synset for synset, word in zip(synsets, english, strict=True) if word == name)) for name in names]
