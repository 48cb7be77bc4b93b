"""Labelled photos in a fixed order, decoded in parallel when asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from certmask.data.framing import Framing
from certmask.data.photo import to_tensor
from certmask.errors import DataError
from certmask.threat import Size

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One labelled photo; ``name`` is how results files call it, ``photo`` reads it."""

    name: str
    label: int
    photo: Callable[[], Image.Image]


def evenly_spaced(items: Sequence[T], count: int) -> list[T]:
    """``count`` of the items from the first on, as far from one another as possible."""
    return [items[number * len(items) // count] for number in range(count)]


@dataclass(frozen=True)
class Dataset:
    """Labelled photos in a fixed order, and how they become model input."""

    name: str
    samples: tuple[Sample, ...]
    framing: Framing

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

    def without(self, names: frozenset[str]) -> Dataset:
        """The photos that are not among ``names``."""
        return replace(self, samples=tuple(s for s in self.samples if s.name not in names))

    def describe(self) -> dict[str, Any]:
        listing = json.dumps([[s.name, s.label] for s in self.samples])
        digest = hashlib.sha256(listing.encode()).hexdigest()
        return {"name": self.name, "images": len(self), "digest": digest[:16], **self.framing.describe()}
