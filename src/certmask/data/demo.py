"""Labelled photos inside the package foolbox, 20 of each set; each file name ends with its class number."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, cifar10_numbers, imagenet_numbers
from certmask.data.photo import read_photo
from certmask.errors import DataError

DEMOS = {"demo": ("imagenet_*.jpg", imagenet_numbers), "demo-cifar10": ("cifar10_*.png", cifar10_numbers)}


def recognises(source: str) -> bool:
    return source in DEMOS and not Path(source).exists()


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    pattern, numbering = DEMOS[source]
    found = importlib.util.find_spec("foolbox")
    if found is None or not found.submodule_search_locations:
        raise DataError("expected the package foolbox for the demo photos, got none: pip install 'certmask[demo]'")
    folder = Path(next(iter(found.submodule_search_locations))) / "data"
    photos = sorted(folder.glob(pattern))
    if not photos:
        raise DataError(f"expected the demo photos inside the package foolbox, got none in {folder.name}")
    numbers = numbering(classes)
    labels = (numbers[int(photo.stem.split("_")[2])] for photo in photos)
    samples = (
        Sample(photo.name, label, partial(read_photo, photo), file=partial(Path, photo))
        for photo, label in zip(photos, labels, strict=True)
    )
    return Dataset(source, tuple(samples), framing)
