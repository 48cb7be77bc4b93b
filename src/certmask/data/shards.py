"""Tar shards, ``FOLDER/*.tar`` or behind a URL: class folders as in one tar, or ``KEY.jpg`` with its ``KEY.cls``."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, class_number, folder_numbers, numbers_by_name
from certmask.data.photo import SUFFIXES
from certmask.data.remote import photo_in
from certmask.data.stores import content, found_files, is_url, reached
from certmask.errors import DataError

CLASS_SUFFIX = ".cls"
"""A file that holds the class of the photo of the same name."""


class Member(NamedTuple):
    """A file inside a shard: its name, the shard, and where its bytes are."""

    name: str
    shard: str
    start: int
    size: int


def recognises(source: str) -> bool:
    return source.endswith(".tar") and (is_url(source) or any(sign in Path(source).name for sign in "*?["))


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    files, shards = found_files(source)
    members = [member for shard in shards for member in _members(files, shard)]
    return Dataset(PurePosixPath(source).name, tuple(_samples(files, members, source, classes)), framing)


def _members(files: Any, shard: str) -> Iterator[Member]:
    with reached(shard), files.open(shard, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for one in archive:
            if one.isfile():
                yield Member(one.name.removeprefix("./"), shard, one.offset_data, one.size)


def _samples(files: Any, members: list[Member], source: str, classes: Classes) -> Iterator[Sample]:
    photos = sorted(one for one in members if PurePosixPath(one.name).suffix.lower() in SUFFIXES)
    if not photos:
        raise DataError(f"expected photos in the shards {source}, got none")
    told = {one.name.removesuffix(CLASS_SUFFIX): one for one in members if one.name.endswith(CLASS_SUFFIX)}
    folders = sorted({one.name.split("/")[0] for one in photos if one.name.count("/") == 1})
    by_name = None if classes is None else numbers_by_name(classes)
    numbers = {} if told else folder_numbers(folders, classes, Path(source))
    for before, photo in zip([None, *photos], photos, strict=False):
        if before is not None and before.name == photo.name:
            raise DataError(f"expected every photo once in {source}, got {photo.name} twice")
        label = _told_label(files, photo, told, by_name) if told else numbers.get(photo.name.split("/")[0])
        if label is None:
            raise DataError(f"expected photos at CLASS/PHOTO in {photo.shard}, got {photo.name}")
        file = partial(content, files, photo.shard, photo.start, photo.size)
        yield Sample(photo.name, label, partial(photo_in, file, f"{photo.shard}:{photo.name}"), file=file)


def _told_label(files: Any, photo: Member, told: dict[str, Member], numbers: dict[str, int] | None) -> int:
    """The class in the file beside a photo."""
    key = photo.name.removesuffix(PurePosixPath(photo.name).suffix)
    if key not in told:
        raise DataError(f"expected {key}{CLASS_SUFFIX} beside {photo.name} in {photo.shard}, got none")
    beside = told[key]
    text = content(files, beside.shard, beside.start, beside.size).read().decode("utf-8", "replace").strip()
    return class_number(text, numbers, photo.name)
