"""A folder of class folders behind a URL that fsspec knows: ``s3://BUCKET/FOLDER``, ``file:///FOLDER``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, folder_numbers
from certmask.data.photo import SUFFIXES, read_photo
from certmask.data.stores import content, is_url, reached, store_of
from certmask.errors import DataError


def recognises(source: str) -> bool:
    return is_url(source)


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    files, root = store_of(source)
    return Dataset(PurePosixPath(root).name or source, tuple(_samples(files, root, source, classes)), framing)


def _samples(files: Any, root: str, source: str, classes: Classes) -> Iterator[Sample]:
    """Photos at ``CLASS/PHOTO``, in the order in which a local folder has them."""
    with reached(source):
        found = [PurePosixPath(path).relative_to(root or "/") for path in files.find(root)]
    photos = [p for p in found if len(p.parts) == 2 and p.suffix.lower() in SUFFIXES and p.parts[0][0] != "."]
    if not photos:
        raise DataError(f"expected photos in class folders at {source}, got none")
    labels = folder_numbers(sorted({p.parts[0] for p in photos}), classes, Path(source))
    for photo in sorted(photos, key=lambda p: p.parts):
        file = partial(content, files, f"{root}/{photo}")
        yield Sample(str(photo), labels[photo.parts[0]], partial(photo_in, file, str(photo)), file=file)


def photo_in(file: Any, name: str) -> Image.Image:
    """The photo in what ``file`` opens."""
    return read_photo(file(), name)
