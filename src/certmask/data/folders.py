"""A folder of class folders: ``FOLDER/CLASS/PHOTO``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, folder_numbers
from certmask.data.photo import SUFFIXES, read_photo
from certmask.errors import DataError


def recognises(source: str) -> bool:
    return Path(source).is_dir()


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    path = Path(source)
    return Dataset(path.name, tuple(_samples(path, classes)), framing)


def _samples(root: Path, classes: Classes) -> Iterator[Sample]:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    labels = folder_numbers([folder.name for folder in folders], classes, root)
    for folder in folders:
        photos = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
        if not photos:
            raise DataError(f"expected photos in the class folder {folder}, got none")
        for photo in photos:
            name = f"{folder.name}/{photo.name}"
            yield Sample(name, labels[folder.name], partial(read_photo, photo), file=partial(Path, photo))
