"""Where labelled photos come from: class folders (also inside a tar), a CSV file, CIFAR-10's batches, the demo sets."""

from __future__ import annotations

import csv
import importlib.util
import io
import pickle
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.photo import SUFFIXES, read_photo
from certmask.errors import DataError

DEMOS = {"demo": "imagenet_*.jpg", "demo-cifar10": "cifar10_*.png"}
IMAGENET_CLASSES = 1000
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load_dataset(source: str, classes: Sequence[Sequence[str]] | None, framing: Framing | float) -> Dataset:
    """A folder of class folders, a tar of one (``FILE.tar:FOLDER``), a CSV, CIFAR-10's batches, or a demo set.

    ``classes[c]`` lists the names that stand for class ``c``, a class number is understood, too; None takes the
    folders' names in order. A number for ``framing`` is the share that a centre crop keeps.
    """
    framing = framing if isinstance(framing, Framing) else Framing(framing)
    path = Path(source)
    if source in DEMOS and not path.exists():
        return _demo(source, classes, framing)
    archive, _, inside = source.partition(".tar")
    if not path.is_dir() and Path(f"{archive}.tar").is_file():
        return Dataset(source, tuple(_tar(Path(f"{archive}.tar"), inside.strip(":/"), classes)), framing)
    folder = _batches_folder(source)
    if (folder / "test_batch").is_file():
        train = source.endswith(":train")
        batches = [f"data_batch_{n}" for n in range(1, 6)] if train else ["test_batch"]
        samples = tuple(_cifar(folder, batches, _cifar_numbers(classes)))
        return Dataset(f"cifar10-{'train' if train else 'test'}", samples, Framing(1.0))
    if path.is_dir():
        return Dataset(path.name, tuple(_folder(path, classes)), framing)
    check_source(source)
    return Dataset(path.name, tuple(_csv(path, classes)), framing)


def check_source(source: str) -> None:
    """An error if there is nothing at a source: known before a model is loaded for it."""
    places = (Path(source), Path(f"{source.partition('.tar')[0]}.tar"), _batches_folder(source))
    if source not in DEMOS and not any(place.exists() for place in places):
        known = f"a folder of class folders, a tar, a CSV file or a built-in set ({', '.join(DEMOS)})"
        raise DataError(f"expected {known}, got {source!r}")


def _batches_folder(source: str) -> Path:
    """Where CIFAR-10's batches lie if a source names them, ``FOLDER``, ``FOLDER:train`` or ``FOLDER:test``."""
    return Path(source.removesuffix(":train").removesuffix(":test"))


def class_folders(source: str) -> list[str]:
    """The class names that a data set brings, in order."""
    if (_batches_folder(source) / "test_batch").is_file():
        return list(CIFAR10)
    return list(dict.fromkeys(sample.name.split("/")[0] for sample in load_dataset(source, None, 1.0).samples))


def _numbers(classes: Sequence[Sequence[str]]) -> dict[str, int]:
    """Class numbers by name; a name that stands for two classes is left out."""
    times = Counter(name for names in classes for name in set(names))
    return {name: c for c, names in enumerate(classes) for name in (*names, str(c)) if times[name] <= 1}


def _labels(folders: list[str], classes: Sequence[Sequence[str]] | None, where: Path) -> dict[str, int]:
    """The class number of each folder: by name, else by order where as many classes have numbers for names."""
    if not folders:
        raise DataError(f"expected class folders with photos in {where}, got none")
    numbers = _numbers(classes or ())
    nameless = all(name.isdigit() for names in classes or () for name in names)
    if classes is None or (len(folders) == len(classes) and nameless and not any(f in numbers for f in folders)):
        return {folder: position for position, folder in enumerate(folders)}
    odd = next((folder for folder in folders if folder not in numbers), None)
    if odd is not None:
        raise DataError(f"expected folders named after the model's {len(classes)} classes in {where}, got {odd!r}")
    return {folder: numbers[folder] for folder in folders}


def _folder(root: Path, classes: Sequence[Sequence[str]] | None) -> Iterator[Sample]:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    labels = _labels([folder.name for folder in folders], classes, root)
    for folder in folders:
        photos = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
        if not photos:
            raise DataError(f"expected photos in the class folder {folder}, got none")
        for photo in photos:
            yield Sample(f"{folder.name}/{photo.name}", labels[folder.name], partial(read_photo, photo))


def _tar(path: Path, inside: str, classes: Sequence[Sequence[str]] | None) -> Iterator[Sample]:
    """Photos at ``inside/CLASS/PHOTO`` of an uncompressed tar, read in place."""
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
    labels = _labels(sorted({name.split("/")[0] for name, _, _ in found}), classes, path)
    for name, offset, size in found:
        yield Sample(name, labels[name.split("/")[0]], partial(_tar_photo, path, offset, size, name))


def _tar_photo(path: Path, offset: int, size: int, name: str) -> Image.Image:
    with path.open("rb") as file:
        file.seek(offset)
        return read_photo(io.BytesIO(file.read(size)), f"{path}:{name}")


def _csv(path: Path, classes: Sequence[Sequence[str]] | None) -> Iterator[Sample]:
    """Rows ``file,label``; the label is a class number or name; a header line ``file,label`` is optional."""
    numbers = _numbers(classes or ())
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"expected a CSV file of file and label, got {path} ({error})") from None
    if rows and [cell.strip().lower() for cell in rows[0][:2]] == ["file", "label"]:
        rows = rows[1:]
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise DataError(f"expected rows of file and label in {path}, got none")
    seen: set[str] = set()
    for row in rows:
        if len(row) < 2:
            raise DataError(f"expected file and label in every row of {path}, got {','.join(row)!r}")
        name, label = row[0].strip(), row[1].strip()
        if name in seen:
            raise DataError(f"expected every file once in {path}, got {name} twice")
        seen.add(name)
        if label not in numbers:
            raise DataError(f"expected a class number or an unambiguous name as label of {name}, got {label!r}")
        yield Sample(name, numbers[label], partial(read_photo, path.parent / name))


class _ArraysOnly(pickle.Unpickler):
    """Reads the pickles of CIFAR-10 and refuses anything that is not an array."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.split(".", maxsplit=1)[0], name) in (
            ("numpy", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        ):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


def _cifar_numbers(classes: Sequence[Sequence[str]] | None) -> list[int]:
    """What a model calls each of CIFAR-10's classes: by name, or by number if its classes have no names."""
    if not classes or (len(classes) == len(CIFAR10) and all(names[0].isdigit() for names in classes)):
        return list(range(len(CIFAR10)))
    numbers = _numbers(classes)
    odd = next((name for name in CIFAR10 if name not in numbers), None)
    if odd is not None:
        raise DataError(f"expected a model that knows CIFAR-10's classes, got one of {len(classes)} without {odd!r}")
    return [numbers[name] for name in CIFAR10]


def _cifar(folder: Path, batches: list[str], classes: list[int]) -> Iterator[Sample]:
    """CIFAR-10 as its authors ship it (``cifar-10-batches-py``); photos are 32×32 and are not cropped."""
    for batch in batches:
        try:
            with (folder / batch).open("rb") as file:
                content = _ArraysOnly(file, encoding="bytes").load()
            pixels = np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            labels = [int(label) for label in content[b"labels"]]
        except (OSError, pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"expected a CIFAR-10 batch in {folder / batch}, got {type(error).__name__}: {error}"
            ) from None
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            yield Sample(f"{batch}/{number}", classes[label], partial(Image.fromarray, image))


def _demo(source: str, classes: Sequence[Sequence[str]] | None, framing: Framing) -> Dataset:
    """Labelled photos inside the package foolbox, 20 of each set; each file name ends with its class number."""
    found = importlib.util.find_spec("foolbox")
    if found is None or not found.submodule_search_locations:
        raise DataError("expected the package foolbox for the demo photos, got none: pip install 'certmask[demo]'")
    folder = Path(next(iter(found.submodule_search_locations))) / "data"
    photos = sorted(folder.glob(DEMOS[source]))
    if not photos:
        raise DataError(f"expected the demo photos inside the package foolbox, got none in {folder.name}")
    numbers = _cifar_numbers(classes) if source == "demo-cifar10" else _imagenet_numbers(classes)
    samples = (Sample(p.name, numbers[int(p.stem.split("_")[2])], partial(read_photo, p)) for p in photos)
    return Dataset(source, tuple(samples), framing)


def _imagenet_numbers(classes: Sequence[Sequence[str]] | None) -> range:
    if classes and len(classes) != IMAGENET_CLASSES:
        raise DataError(f"expected a model of ImageNet's {IMAGENET_CLASSES:,} classes, got one of {len(classes)}")
    return range(IMAGENET_CLASSES)
