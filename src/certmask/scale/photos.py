"""Photos as Ray carries them: where each is to be found, and after reading, the bytes of its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import islice
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


def blocks(samples: Sequence[Sample], size: int) -> list[Any]:
    """The samples as tables of Arrow with one column, ``size`` of them in each: no photo is read here."""
    import pyarrow

    waiting, found = iter(samples), []
    while part := list(islice(waiting, size)):
        found.append(pyarrow.table({"sample": [_packed(sample) for sample in part]}))
    return found


def _packed(sample: Sample) -> bytes:
    """Also where the reader of a photo was defined in a notebook."""
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(sample))


def _unpacked(table: Any) -> list[Sample]:
    from ray import cloudpickle

    return [cloudpickle.loads(sample) for sample in table["sample"].to_pylist()]


def read(table: Any) -> Any:
    """The same table with the bytes of every file beside it; what cannot be read has its reason instead."""
    import pyarrow

    found = list(map(_read, _unpacked(table)))
    columns = {"content": pyarrow.binary(), "error": pyarrow.string()}
    for number, (name, kind) in enumerate(columns.items()):
        table = table.append_column(name, pyarrow.array([one[number] for one in found], kind))
    return table


def _read(sample: Sample) -> tuple[bytes | None, str | None]:
    """Bytes, a reason, or neither where the sample brings its picture along."""
    if sample.file is None:
        return None, None
    try:
        source = sample.file()
        if not isinstance(source, Path):
            with source:
                return source.read(), None
        if source.is_file():  # to read a pipe might never end
            return source.read_bytes(), None
    except DataError as error:
        return None, str(error)
    except OSError as error:
        return None, f"expected a readable image in {sample.name}, got {error}"
    got = "something else than a file" if source.exists() else "nothing"
    return None, f"expected an image file, got {got} at {source}"


def photos_of(table: Any) -> list[Photo]:
    """The photos of a table that was read."""
    rows = zip(_unpacked(table), table["content"].to_pylist(), table["error"].to_pylist(), strict=True)
    return [Photo(_with_content(sample, content), error) for sample, content, error in rows]


def _with_content(sample: Sample, content: bytes | None) -> Sample:
    """The sample, read from these bytes instead of from where they were."""
    if content is None:
        return sample
    return replace(sample, photo=partial(_photo, content, sample.name), file=partial(BytesIO, content))


def _photo(content: bytes, name: str) -> Any:
    return read_photo(BytesIO(content), name)


def digests(table: Any, empty: Dataset, size: Size) -> Any:
    """Names and hashes of the model inputs that the samples of a table are now; a reason for what cannot be read."""
    import pyarrow

    samples = tuple(_unpacked(table))
    dataset = replace(empty, samples=samples)
    found = [_digest(dataset, number, size) for number in range(len(samples))]
    return pyarrow.table({"image": [sample.name for sample in samples], "digest": found})


def _digest(dataset: Dataset, number: int, size: Size) -> str:
    try:
        return pixel_digest(dataset.tensor(number, size))
    except DataError as error:
        return str(error)
