"""Class numbers by name: what a data set calls a class, and the number that the model has for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from certmask.errors import DataError

Classes = Sequence[Sequence[str]] | None
"""The names that stand for each of a model's classes; None where the data set decides."""
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGENETTE = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079", "n03394916", "n03417042", "n03425413",
              "n03445777", "n03888257")  # fmt: skip
IMAGENET_CLASSES = 1000


def numbers_by_name(classes: Classes) -> dict[str, int]:
    """A class is known by its names and by its number; a name that stands for two classes is left out."""
    classes = classes or ()
    times = Counter(name for names in classes for name in set(names))
    return {name: c for c, names in enumerate(classes) for name in (*names, str(c)) if times[name] <= 1}


def class_number(told: object, numbers: dict[str, int] | None, name: str) -> int:
    """The class that a number or a name stands for, by ``numbers_by_name``; None takes any number as it is."""
    known = str(told) in numbers if numbers is not None else str(told).isdigit()
    if isinstance(told, bool) or not known:
        raise DataError(f"expected a class number or an unambiguous name as label of {name}, got {told!r}")
    return int(str(told)) if numbers is None else numbers[str(told)]


def folder_numbers(folders: list[str], classes: Classes, where: Path) -> dict[str, int]:
    """The class number of each folder: by name, else by order where as many classes have numbers for names."""
    if not folders:
        raise DataError(f"expected class folders with photos in {where}, got none")
    numbers = numbers_by_name(classes)
    nameless = all(name.isdigit() for names in classes or () for name in names)
    if classes is None or (len(folders) == len(classes) and nameless and not any(f in numbers for f in folders)):
        return {folder: position for position, folder in enumerate(folders)}
    odd = next((folder for folder in folders if folder not in numbers), None)
    if odd is not None:
        raise DataError(f"expected folders named after the model's {len(classes)} classes in {where}, got {odd!r}")
    return {folder: numbers[folder] for folder in folders}


def cifar10_numbers(classes: Classes) -> list[int]:
    """What a model calls each of CIFAR-10's classes: by name, or by number if its classes have no names."""
    if not classes or (len(classes) == len(CIFAR10) and all(names[0].isdigit() for names in classes)):
        return list(range(len(CIFAR10)))
    numbers = numbers_by_name(classes)
    odd = next((name for name in CIFAR10 if name not in numbers), None)
    if odd is not None:
        raise DataError(f"expected a model that knows CIFAR-10's classes, got one of {len(classes)} without {odd!r}")
    return [numbers[name] for name in CIFAR10]


def imagenet_numbers(classes: Classes) -> list[int]:
    """ImageNet's own numbers, which every model of it shares."""
    if classes and len(classes) != IMAGENET_CLASSES:
        raise DataError(f"expected a model of ImageNet's {IMAGENET_CLASSES:,} classes, got one of {len(classes)}")
    return list(range(IMAGENET_CLASSES))
