"""Pictures that are model input already: tensors with labels, or a torch Dataset of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from certmask.data.dataset import Dataset, Sample
from certmask.data.framing import Framing
from certmask.data.reach import Stored
from certmask.errors import DataError
from certmask.threat import Size

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Picture(Sample):
    """A labelled picture; ``pixels`` gives it as model input, ``photo`` as a file would hold it."""

    pixels: Callable[[], Tensor]

    def stored(self, before_jpeg: bool = False) -> Stored | None:
        return None


@dataclass(frozen=True)
class Pictures(Dataset):
    """Labelled model inputs in a fixed order: nothing is resized or cropped, and they are read one after the other."""

    @property
    def size(self) -> Size:
        """Height and width of the first picture."""
        first = self.samples[0]
        assert isinstance(first, Picture)
        shape = first.pixels().shape
        if len(shape) != 3 or shape[0] != 3:
            raise DataError(f"expected pictures of shape [3, height, width], got {list(shape)} for {first.name}")
        return shape[1], shape[2]

    def tensor(self, number: int, size: Size) -> Tensor:
        sample = self.samples[number]
        assert isinstance(sample, Picture)
        pixels = sample.pixels()
        if tuple(pixels.shape) != (3, *size):
            raise DataError(
                f"expected pictures of shape [3, {size[0]}, {size[1]}], got {list(pixels.shape)} for {sample.name}"
            )
        pixels = pixels.detach().cpu()
        return pixels.float() if pixels.is_floating_point() else pixels

    def tensors(self, size: Size, workers: int | None = None) -> Iterator[Tensor]:
        yield from (self.tensor(number, size) for number in range(len(self)))

    def describe(self) -> dict[str, Any]:
        framing = self.framing.describe()
        return {key: value for key, value in super().describe().items() if key not in framing}


def in_memory(data: Any, framing: Framing) -> Dataset | None:
    """The data set of images and labels, perhaps with names, or of a torch Dataset; None for the name of one."""
    import torch

    if isinstance(data, (str, Path)):
        return None
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple) and len(data) in (2, 3) and isinstance(data[0], (torch.Tensor, np.ndarray)):
        images, labels, *names = data
        truth = [checked_label(label) for label in _each(labels, len(images))]
        values = torch.from_numpy(np.ascontiguousarray(images)) if isinstance(images, np.ndarray) else images
        return pictures(values, truth, *names)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (dict, tuple, list)):
        return from_torch(data, framing)
    raise DataError(
        "expected photos by name, a pair of images and labels, or a torch Dataset of pairs, "
        f"got a {type(data).__name__}"
    )


def pictures(
    images: Tensor, labels: Sequence[int], names: Sequence[str] | None = None, name: str = "pictures"
) -> Pictures:
    """Images ``[n, 3, height, width]`` with their labels; without names they are called by their numbers."""
    own = checked_names(names, len(images))
    found = zip(own, labels, images, strict=True)
    return Pictures(name, tuple(_picture(n, c, partial(_itself, image)) for n, c, image in found), Framing())


def from_torch(dataset: Any, framing: Framing, names: Sequence[str] | None = None) -> Dataset:
    """A torch Dataset of pairs, model input or photo (PIL) and label; the items are read again when they are needed."""
    own = checked_names(names, len(dataset))
    if not own:
        raise DataError("expected a data set with at least one picture, got an empty one")
    title, first = type(dataset).__name__, _item(dataset, 0)[0]
    if isinstance(first, Image.Image):
        photos = (Sample(n, _item(dataset, i)[1], partial(_first, dataset, i)) for i, n in enumerate(own))
        return Dataset(title, tuple(photos), framing)
    found = (_picture(n, _item(dataset, i)[1], partial(_first, dataset, i)) for i, n in enumerate(own))
    return Pictures(title, tuple(found), Framing())


def checked_names(names: Sequence[str] | None, count: int) -> list[str]:
    """One name for each picture, no name twice."""
    if names is None:
        return [f"{number:05d}" for number in range(count)]
    if isinstance(names, str) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise DataError(f"expected {count} names, one for each picture, got {names!r}"[:200])
    if len(set(names)) != count:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise DataError(f"expected each name once, got {twice!r} twice")
    return list(names)


def _item(dataset: Any, number: int) -> tuple[Any, int]:
    import torch

    item = dataset[number]
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise DataError(f"expected pairs of picture and label in the data set, got {type(item).__name__} at {number}")
    picture, label = item
    if not isinstance(picture, (torch.Tensor, Image.Image)):
        raise DataError(f"expected a tensor or a photo in the data set, got {type(picture).__name__} at {number}")
    return picture, checked_label(label)


def _each(labels: Any, count: int) -> list[Any]:
    if not hasattr(labels, "__len__") or isinstance(labels, str) or len(labels) != count or not count:
        raise DataError(f"expected one label for each of {count} images, got {labels!r}"[:200])
    return list(labels)


def checked_label(label: Any) -> int:
    """A whole number; also one in a tensor or of numpy's."""
    value = label.item() if hasattr(label, "item") else label
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"expected whole numbers as labels, got {label!r}")
    return value


def _first(dataset: Any, number: int) -> Any:
    return _item(dataset, number)[0]


def _picture(name: str, label: int, pixels: Callable[[], Tensor]) -> Picture:
    return Picture(name, label, partial(_photo, pixels), pixels)


def _photo(pixels: Callable[[], Tensor]) -> Image.Image:
    values = np.asarray(pixels().detach().cpu()).transpose(1, 2, 0)
    return Image.fromarray((values * 255).round().clip(0, 255).astype(np.uint8))


def _itself(image: Tensor) -> Tensor:
    return image
