"""Photos as workers take them: some at a time, each read from its file once, whatever is made of it then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from certmask.data import Dataset, Sample, pixel_digest, read_photo
from certmask.errors import DataError
from certmask.threat import Size

BLOCKS_PER_WORKER = 8
"""So many blocks for every worker, if there are photos enough: the last ones then end at about the same time."""
LEAST = 4


@dataclass(frozen=True)
class Photo:
    """A sample whose file has been read; or why it could not be."""

    sample: Sample
    error: str | None = None


def block_size(photos: int, workers: int, most: int) -> int:
    """Photos that a worker takes at a time."""
    return min(max(-(-photos // (BLOCKS_PER_WORKER * workers)), LEAST), most)


def read(samples: Sequence[Sample]) -> list[Photo]:
    """The same samples with the bytes of every file in memory; what cannot be read has its reason instead."""
    return list(map(_read, samples))


def _read(sample: Sample) -> Photo:
    """A sample that brings its picture along stays as it is."""
    if sample.file is None:
        return Photo(sample)
    try:
        source = sample.file()
        if not isinstance(source, Path):
            with source:
                return Photo(_with_content(sample, source.read()))
        if source.is_file():  # to read a pipe might never end
            return Photo(_with_content(sample, source.read_bytes()))
    except DataError as error:
        return Photo(sample, str(error))
    except OSError as error:
        return Photo(sample, f"expected a readable image in {sample.name}, got {error}")
    got = "something else than a file" if source.exists() else "nothing"
    return Photo(sample, f"expected an image file, got {got} at {source}")


def _with_content(sample: Sample, content: bytes) -> Sample:
    """The sample, read from these bytes instead of from where they were."""
    return replace(sample, photo=partial(_photo, content, sample.name), file=partial(BytesIO, content))


def _photo(content: bytes, name: str) -> Any:
    return read_photo(BytesIO(content), name)


def digests(dataset: Dataset, size: Size) -> list[tuple[str, str]]:
    """Names and hashes of the model inputs that photos are now; a reason for what cannot be read."""
    return [(sample.name, _digest(dataset, number, size)) for number, sample in enumerate(dataset.samples)]


def _digest(dataset: Dataset, number: int, size: Size) -> str:
    try:
        return pixel_digest(dataset.tensor(number, size))
    except DataError as error:
        return str(error)
