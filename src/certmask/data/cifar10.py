"""CIFAR-10 as its authors ship it (``cifar-10-batches-py``): ``FOLDER``, ``FOLDER:test`` or ``FOLDER:train``."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.labels import Classes, cifar10_numbers
from certmask.errors import DataError

BATCHES = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}


def recognises(source: str) -> bool:
    return (_folder(source) / "test_batch").is_file()


def read(source: str, classes: Classes, _framing: Framing) -> Dataset:
    """Photos are 32×32 and are not cropped."""
    split = "train" if source.endswith(":train") else "test"
    samples = tuple(_samples(_folder(source), BATCHES[split], cifar10_numbers(classes)))
    return Dataset(f"cifar10-{split}", samples, Framing(1.0))


def _folder(source: str) -> Path:
    return Path(source.removesuffix(":train").removesuffix(":test"))


def _samples(folder: Path, batches: list[str], numbers: list[int]) -> Iterator[Sample]:
    for batch in batches:
        if not (folder / batch).is_file():
            raise DataError(f"expected a CIFAR-10 batch, got no file at {folder / batch}")
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
            yield Sample(f"{batch}/{number}", numbers[label], partial(Image.fromarray, image))


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
