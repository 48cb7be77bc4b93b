"""Class folders inside an uncompressed tar, read in place: ``FILE.tar`` or ``FILE.tar:FOLDER``."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from PIL import Image

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, folder_numbers
from certmask.data.photo import SUFFIXES, read_photo
from certmask.errors import DataError


def recognises(source: str) -> bool:
    return not Path(source).is_dir() and _parts(source)[0].is_file()


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    return Dataset(source, tuple(_samples(*_parts(source), classes)), framing)


def _parts(source: str) -> tuple[Path, str]:
    """The archive, and the folder inside it."""
    archive, _, inside = source.partition(".tar")
    return Path(f"{archive}.tar"), inside.strip(":/")


def _samples(path: Path, inside: str, classes: Classes) -> Iterator[Sample]:
    """Photos at ``inside/CLASS/PHOTO``."""
    try:
        with tarfile.open(path, "r:") as archive:
            members = [(m.name.removeprefix("./"), m.offset_data, m.size) for m in archive if m.isfile()]
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"expected an uncompressed tar in {path}, got {error}") from None
    found = sorted(
        (name.removeprefix(f"{inside}/"), offset, size)
        for name, offset, size in members
        if PurePosixPath(name).suffix.lower() in SUFFIXES and (not inside or name.startswith(f"{inside}/"))
    )
    found = [entry for entry in found if entry[0].count("/") == 1]
    labels = folder_numbers(sorted({name.split("/")[0] for name, _, _ in found}), classes, path)
    for name, offset, size in found:
        member = partial(_member, path, offset, size)
        yield Sample(name, labels[name.split("/")[0]], partial(_photo, member, f"{path}:{name}"), file=member)


def _member(path: Path, offset: int, size: int) -> BinaryIO:
    with path.open("rb") as file:
        file.seek(offset)
        return io.BytesIO(file.read(size))


def _photo(member: Callable[[], BinaryIO], name: str) -> Image.Image:
    return read_photo(member(), name)
