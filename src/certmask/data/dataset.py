"""Labelled photos: a folder of class folders, a CSV file, or a built-in set."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from certmask.data.photo import SUFFIXES, prepare, read_photo, to_tensor
from certmask.errors import DataError
from certmask.geometry import Size


@dataclass(frozen=True)
class Sample:
    """One labelled photo; ``name`` is how results files call it."""

    name: str
    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """Labelled photos in a fixed order, and how they become model input."""

    name: str
    samples: tuple[Sample, ...]
    crop: float = 0.875

    def __len__(self) -> int:
        return len(self.samples)

    def tensors(self, size: Size) -> Iterator[Tensor]:
        """Model inputs, one after the other, decoded when asked for."""
        return (to_tensor(prepare(read_photo(sample.path), size, self.crop)) for sample in self.samples)

    def first(self, count: int | None) -> Dataset:
        """The first ``count`` photos."""
        return self if count is None else Dataset(self.name, self.samples[:count], self.crop)

    def without(self, names: frozenset[str]) -> Dataset:
        """The photos that are not among ``names``."""
        return Dataset(self.name, tuple(s for s in self.samples if s.name not in names), self.crop)

    def describe(self) -> dict[str, Any]:
        listing = json.dumps([[s.name, s.label] for s in self.samples])
        digest = hashlib.sha256(listing.encode()).hexdigest()
        return {"name": self.name, "images": len(self), "digest": digest[:16], "resize": "bicubic", "crop": self.crop}


def load_dataset(source: str, classes: Sequence[Sequence[str]], crop: float) -> Dataset:
    """``source`` is a folder of class folders, a CSV of file and label, or ``demo``.

    ``classes[c]`` lists the names that stand for class ``c``; a class number is understood, too.
    """
    path = Path(source)
    if source == "demo" and not path.exists():
        return _demo(crop)
    numbers = {name: c for c, names in enumerate(classes) for name in (*reversed(names), str(c))}
    if path.is_dir():
        return Dataset(path.name, tuple(_folder(path, numbers, len(classes))), crop)
    if path.is_file():
        return Dataset(path.name, tuple(_csv(path, numbers)), crop)
    raise DataError(f"expected a folder of class folders, a CSV file or the built-in set 'demo', got {source!r}")


def _folder(root: Path, numbers: dict[str, int], classes: int) -> Iterator[Sample]:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    known = all(folder.name in numbers for folder in folders)
    if not folders:
        raise DataError(f"expected class folders with photos in {root}, got none")
    if not known and len(folders) != classes:
        odd = next(folder.name for folder in folders if folder.name not in numbers)
        raise DataError(f"expected folders named after the model's {classes} classes in {root}, got {odd!r}")
    for position, folder in enumerate(folders):
        photos = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
        if not photos:
            raise DataError(f"expected photos in the class folder {folder}, got none")
        for photo in photos:
            yield Sample(f"{folder.name}/{photo.name}", photo, numbers[folder.name] if known else position)


def _csv(path: Path, numbers: dict[str, int]) -> Iterator[Sample]:
    """Rows ``file,label``; the label is a class number or name; a header line ``file,label`` is optional."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"expected a CSV file of file and label, got {path} ({error})") from None
    if rows and [cell.strip().lower() for cell in rows[0][:2]] == ["file", "label"]:
        rows = rows[1:]
    if not rows:
        raise DataError(f"expected rows of file and label in {path}, got none")
    for row in rows:
        if len(row) < 2:
            raise DataError(f"expected file and label in every row of {path}, got {','.join(row)!r}")
        name, label = row[0].strip(), row[1].strip()
        if label not in numbers:
            raise DataError(f"expected a class number or name as label of {name}, got {label!r}")
        yield Sample(name, path.parent / name, numbers[label])


def _demo(crop: float) -> Dataset:
    """The 20 labelled ImageNet photos inside the package foolbox; each file name ends with its class number."""
    import importlib.util

    found = importlib.util.find_spec("foolbox")
    if found is None or not found.submodule_search_locations:
        raise DataError("expected the package foolbox for the demo photos, got none: pip install 'certmask[demo]'")
    folder = Path(next(iter(found.submodule_search_locations))) / "data"
    photos = sorted(folder.glob("imagenet_*.jpg"))
    if not photos:
        raise DataError(f"expected the demo photos inside the package foolbox, got none in {folder.name}")
    return Dataset("demo", tuple(Sample(p.name, p, int(p.stem.split("_")[2])) for p in photos), crop)
