"""Labelled photos in a fixed order, decoded in parallel when asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from PIL import Image

from certmask.data.framing import Framing
from certmask.data.photo import to_tensor
from certmask.data.reach import Stored, stored
from certmask.data.sticker import Sticker, sticker_on
from certmask.errors import DataError
from certmask.threat import PhotoPatch, Size

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One labelled photo; ``name`` is how results files call it, ``photo`` reads it, ``file`` is what it is read from.

    Without a file it is stored as ``photo`` gives it: not compressed, and not turned.
    """

    name: str
    label: int
    photo: Callable[[], Image.Image]
    file: Callable[[], Path | BinaryIO] | None = field(default=None, kw_only=True)

    def stored(self, before_jpeg: bool = False) -> Stored | None:
        """What counts of the stored photo for a patch in it; None for a picture that is model input already."""
        if self.file is not None:
            return stored(self.file(), before_jpeg, self.name)
        if before_jpeg:
            raise DataError(f"expected a JPEG file for a patch before compression, got no file for {self.name}")
        width, height = self.photo().size
        return Stored(height, width)


def evenly_spaced(items: Sequence[T], count: int) -> list[T]:
    """``count`` of the items from the first on, as far from one another as possible."""
    return [items[number * len(items) // count] for number in range(count)]


@dataclass(frozen=True)
class Dataset:
    """Labelled photos in a fixed order, and how they become model input.

    ``part`` says of which photos they are a shard, and which one.
    """

    name: str
    samples: tuple[Sample, ...]
    framing: Framing
    part: dict[str, Any] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.samples)

    def tensor(self, number: int, size: Size) -> Tensor:
        """One photo as model input, ``[3, height, width]`` in [0, 1]."""
        sample = self.samples[number]
        return to_tensor(self.framing(sample.photo(), size, sample.name))

    def tensors(self, size: Size, workers: int | None = None) -> Iterator[Tensor]:
        """All model inputs in order, decoded a little ahead by ``workers`` threads."""
        ahead = 4 * (workers or os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            waiting: deque[Future[Tensor]] = deque()
            for number in range(len(self)):
                waiting.append(pool.submit(self.tensor, number, size))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def stickers(self, threat: PhotoPatch, image: Size) -> list[Sticker]:
        """What a patch in each stored photo is in the model's input, in order."""
        return [self.sticker(number, threat, image) for number in range(len(self))]

    def sticker(self, number: int, threat: PhotoPatch, image: Size) -> Sticker:
        """The same for one photo; an error where there is only model input."""
        sample = self.samples[number]
        photo = sample.stored(threat.before_jpeg)
        if photo is None:
            raise DataError(f"expected a stored photo for a patch in it, got model input only for {sample.name}")
        return sticker_on(photo, threat, self.framing, image)

    def readable(self) -> tuple[Dataset, list[str]]:
        """The photos that can be read, and one line for each that cannot; an error if none can."""
        good, bad = [], []
        for sample in self.samples:
            try:
                self.framing.check(sample.photo(), sample.name)
                good.append(sample)
            except DataError as error:
                bad.append(str(error))
        if not good:
            raise DataError(f"expected photos that can be read in {self.name}, got {len(bad)} that cannot: {bad[0]}")
        return replace(self, samples=tuple(good)), bad

    def spread(self, count: int | None) -> Dataset:
        """``count`` photos, evenly spaced from the first on, so that no class folder is favoured; None takes all."""
        if count is None or count >= len(self):
            return self
        return replace(self, samples=tuple(evenly_spaced(self.samples, count)))

    def shard(self, number: int, of: int) -> Dataset:
        """Every ``of``-th photo, from the ``number``-th on: shards 1 to ``of`` share none and have all."""
        whole = {"number": number, "of": of, "images": len(self), "digest": self._digest}
        return replace(self, samples=self.samples[number - 1 :: of], part=whole)

    def without(self, names: frozenset[str]) -> Dataset:
        """The photos that are not among ``names``."""
        return replace(self, samples=tuple(s for s in self.samples if s.name not in names))

    @property
    def _digest(self) -> str:
        listing = json.dumps([[s.name, s.label] for s in self.samples])
        return hashlib.sha256(listing.encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        part = {} if self.part is None else {"shard": self.part}
        return {"name": self.name, "images": len(self), "digest": self._digest, **self.framing.describe(), **part}
