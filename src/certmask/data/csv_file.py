"""A CSV file with rows ``file,label``: the label is a class number or name; a header line is optional."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from certmask.data import tar
from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, class_number, numbers_by_name
from certmask.data.photo import read_photo
from certmask.errors import DataError


def recognises(source: str) -> bool:
    """Any file that is nothing else: what is wrong with it is found by reading it."""
    return Path(source).is_file() and not tar.recognises(source)


def read(source: str, classes: Classes, framing: Framing) -> Dataset:
    path = Path(source)
    return Dataset(path.name, tuple(_samples(path, classes)), framing)


def _samples(path: Path, classes: Classes) -> Iterator[Sample]:
    numbers = numbers_by_name(classes)
    seen: set[str] = set()
    for row in _rows(path):
        if len(row) < 2:
            raise DataError(f"expected file and label in every row of {path}, got {','.join(row)!r}")
        name, label = row[0].strip(), row[1].strip()
        if name in seen:
            raise DataError(f"expected every file once in {path}, got {name} twice")
        seen.add(name)
        photo = path.parent / name
        yield Sample(name, class_number(label, numbers, name), partial(read_photo, photo), file=partial(Path, photo))


def _rows(path: Path) -> list[list[str]]:
    """The rows that are not empty, without the header."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"expected a CSV file of file and label, got {path} ({error})") from None
    if rows and [cell.strip().lower() for cell in rows[0][:2]] == ["file", "label"]:
        rows = rows[1:]
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise DataError(f"expected rows of file and label in {path}, got none")
    return rows
