"""Parquet, a file or ``FOLDER/*.parquet`` or behind a URL: a column of image bytes and one of labels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, class_number, numbers_by_name
from certmask.data.remote import photo_in
from certmask.data.stores import found_files, reached
from certmask.errors import DataError

PICTURES, LABELS, NAMES = ("image", "bytes", "img"), ("label", "labels"), ("name", "file", "path")
"""Columns that are looked for, in this order; without names, photos are called by file and row."""


def recognises(source: str) -> bool:
    return source.endswith(".parquet")


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    files, parts = found_files(source)
    numbers = None if classes is None else numbers_by_name(classes)
    samples = tuple(sample for part in parts for sample in _samples(files, part, numbers))
    names = {sample.name for sample in samples}
    if not samples or len(names) < len(samples):
        got = "one twice" if samples else "none"
        raise DataError(f"expected photos with a name of their own in {source}, got {got}")
    return Dataset(PurePosixPath(source).name, samples, framing)


def _samples(files: Any, path: str, numbers: dict[str, int] | None) -> Iterator[Sample]:
    """One for each row; labels and names are read, pictures are not."""
    with reached(path), files.open(path, "rb") as file:
        table = _parquet().ParquetFile(file)
        columns = table.schema_arrow.names
        picture, label, name = _column(columns, PICTURES, path), _column(columns, LABELS, path), _first(columns, NAMES)
        groups = [
            table.read_row_group(n, [label, *filter(None, [name])]).to_pydict() for n in range(table.num_row_groups)
        ]
    number = 0
    for group, told in enumerate(groups):
        for row, value in enumerate(told[label]):
            own = str(told[name][row]) if name else f"{PurePosixPath(path).name}/{number:06d}"
            cell = partial(_cell, files, path, group, picture, row, own)
            yield Sample(own, class_number(value, numbers, own), partial(photo_in, cell, own), file=cell)
            number += 1


def _cell(files: Any, path: str, group: int, column: str, row: int, name: str) -> BinaryIO:
    """The bytes of one picture; also where they lie beside a path, as in data sets of Hugging Face."""
    with reached(path):
        value = _pictures(files, path, group, column)[row].as_py()
    value = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(value, bytes):
        raise DataError(f"expected the bytes of an image for {name}, got {type(value).__name__}")
    return io.BytesIO(value)


@lru_cache(maxsize=2)
def _pictures(files: Any, path: str, group: int, column: str) -> Any:
    """The pictures of one row group, which can only be read together."""
    with files.open(path, "rb") as file:
        return _parquet().ParquetFile(file).read_row_group(group, [column])[column]


def _column(columns: list[str], wanted: tuple[str, ...], path: str) -> str:
    found = _first(columns, wanted)
    if found is None:
        raise DataError(f"expected a column {' or '.join(wanted)} in {path}, got {', '.join(columns)}")
    return found


def _first(columns: list[str], wanted: tuple[str, ...]) -> str | None:
    return next((name for name in wanted if name in columns), None)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError("expected the package pyarrow for Parquet, got none: pip install 'certmask[ray]'") from None
    return pyarrow.parquet
