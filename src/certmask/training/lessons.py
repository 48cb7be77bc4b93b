"""Lessons: photos to learn from, all in memory where they fit, else read anew in every epoch, with the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from certmask.data import Dataset
from certmask.threat import Size

MEMORY = 16 << 30
"""Photos that take more bytes than this are streamed."""


class Lessons(Protocol):
    """Labelled photos that can be walked through in any order, and the data set that they come from."""

    dataset: Dataset
    size: Size
    labels: Tensor

    def batches(self, order: Tensor, batch: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Images ``[n, 3, height, width]`` in [0, 1] and labels ``[n]`` in the given order, on the device."""
        ...


class LessonsInMemory:
    """A data set as bytes, ``[n, 3, height, width]``; a GPU keeps its own copy."""

    def __init__(self, dataset: Dataset, size: Size, progress: Callable[[int], None]) -> None:
        self.dataset, self.size = dataset, size
        self.pixels = torch.empty(len(dataset), 3, *size, dtype=torch.uint8)
        for number, image in enumerate(dataset.tensors(size)):
            self.pixels[number] = (image * 255).round().to(torch.uint8)
            progress(1)
        self.labels = torch.tensor([sample.label for sample in dataset.samples])
        self._there: dict[torch.device, Tensor] = {}

    def batches(self, order: Tensor, batch: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        pixels = self._on(device)
        for part in torch.split(order, batch):
            yield pixels[part.to(pixels.device)].to(device).float() / 255, self.labels[part].to(device)

    def _on(self, device: torch.device) -> Tensor:
        """The pixels on the device, where they take less than half of its free memory, else on the host."""
        if device.type == "cuda" and device not in self._there:
            fits = 2 * self.pixels.numel() < torch.cuda.mem_get_info(device)[0]
            self._there[device] = self.pixels.to(device) if fits else self.pixels
        return self._there.get(device, self.pixels)


class LessonStream:
    """A data set of any size: photos are decoded by threads a little ahead of the batch that needs them."""

    def __init__(self, dataset: Dataset, size: Size) -> None:
        self.dataset, self.size = dataset, size
        self.labels = torch.tensor([sample.label for sample in dataset.samples])

    def batches(self, order: Tensor, batch: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        samples = tuple(self.dataset.samples[number] for number in order.tolist())
        images = replace(self.dataset, samples=samples).tensors(self.size)
        for part in torch.split(order, batch):
            yield torch.stack(list(islice(images, len(part)))).to(device), self.labels[part].to(device)


def read_lessons(dataset: Dataset, size: Size, progress: Callable[[int], None], memory: int = MEMORY) -> Lessons:
    """In memory if the photos take at most ``memory`` bytes, else a stream."""
    if len(dataset) * 3 * size[0] * size[1] > memory:
        return LessonStream(dataset, size)
    return LessonsInMemory(dataset, size, progress)
