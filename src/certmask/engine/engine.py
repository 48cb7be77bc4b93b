"""The engine: images × masks → votes, in full batches across images and masks, no pass made twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from certmask.classifier import Classifier, Colour, checked_images
from certmask.covers import Cover
from certmask.engine.masking import MaskTable
from certmask.errors import ClassifierError
from certmask.geometry import IntArray
from certmask.rules.rule import Asking
from certmask.votes import Votes, VoteStore

T = TypeVar("T")
Program = Callable[[VoteStore], Asking[T]]
"""What to find out about one image: yields the passes it needs (in the store's numbering) and returns its finding."""


@dataclass
class Finding(Generic[T]):
    """A program's result on one image, with what it cost."""

    number: int
    value: T
    passes: int
    seconds: float


@dataclass
class _Case(Generic[T]):
    """One image in work."""

    number: int
    slot: int
    store: VoteStore
    asking: Asking[T]
    pending: IntArray
    seconds: float = 0.0


@dataclass
class Engine:
    """Runs one program per image and answers what the programs ask for, batch by batch.

    Every batch has the classifier's fixed shape and is filled from as many images as it takes. Images are admitted
    only while the votes in memory stay below ``memory`` bytes, however many masks there are.
    """

    classifier: Classifier
    covers: Sequence[Cover]
    fill: Colour | None = None
    memory: int = 1 << 30
    progress: Callable[[int], None] | None = None
    masks: MaskTable = field(init=False)

    def __post_init__(self) -> None:
        self.fill = tuple(self.fill) if self.fill is not None else self.classifier.mean  # type: ignore[assignment]
        if self.fill is None or len(self.fill) != 3 or not all(0 <= c <= 1 for c in self.fill):
            raise ClassifierError(f"expected a fill colour of three numbers in [0, 1], got {self.fill}")
        self.masks = MaskTable(self.covers, self.classifier.size, self.classifier.device)
        self._index = {id(cover): self.masks.index(cover) for cover in self.covers}
        self._fill = torch.tensor(self.fill, device=self.classifier.device).view(1, 3, 1, 1)

    def votes(self, cover: Cover, store: VoteStore) -> Votes:
        """The store as a rule on ``cover`` sees it."""
        return Votes(cover, store, self._index[id(cover)])

    def run(self, images: Iterable[Tensor], program: Callable[[int, VoteStore], Asking[T]]) -> Iterator[Finding[T]]:
        """Findings in the order in which they are ready; ``program`` is called with each image's number and store."""
        size, batch = self.classifier.size, self.classifier.batch
        buffer = torch.empty(batch, 3, *size, device=self.classifier.device)
        free = list(range(batch))
        waiting = enumerate(images)
        cases: list[_Case[T]] = []
        more = True
        while more or cases:
            while more and free and self._room(cases):
                number, image = next(waiting, (-1, None))
                if image is None:
                    more = False
                    break
                slot = free.pop()
                buffer[slot] = checked_images(image[None], size)[0]
                store = VoteStore(len(self.masks), self.classifier.classes, self.classifier.device)
                asking = program(number, store)
                case = _Case(number, slot, store, asking, np.empty((0, 2), dtype=np.int64))
                cases.append(case)
                yield from self._advance(case, cases, free)
            if cases:
                self._pass(buffer, cases)
                for case in [case for case in cases if not len(case.pending)]:
                    yield from self._advance(case, cases, free)

    def _room(self, cases: list[_Case[T]]) -> bool:
        """Admit another image while a batch is not full and the votes in work fit into memory."""
        rows = sum(case.store.count + len(case.pending) for case in cases)
        wanted = sum(len(case.pending) for case in cases) < self.classifier.batch
        return not cases or (wanted and rows * self.classifier.classes * 4 < self.memory)

    def _advance(self, case: _Case[T], cases: list[_Case[T]], free: list[int]) -> Iterator[Finding[T]]:
        """Let a program go on until it asks for passes that are not there yet, or ends."""
        start = time.perf_counter()
        while not len(case.pending):
            try:
                case.pending = case.store.missing(next(case.asking))
            except StopIteration as stop:
                cases.remove(case)
                free.append(case.slot)
                seconds = case.seconds + time.perf_counter() - start
                yield Finding(case.number, stop.value, case.store.count, seconds)
                return
        case.seconds += time.perf_counter() - start

    def _pass(self, buffer: Tensor, cases: list[_Case[T]]) -> None:
        """Fill one batch from the cases in order, run it, and hand out the votes."""
        start = time.perf_counter()
        batch = self.classifier.batch
        share: list[tuple[_Case[T], IntArray]] = []
        space = batch
        for case in cases:
            taken, case.pending = case.pending[:space], case.pending[space:]
            if len(taken):
                share.append((case, taken))
                space -= len(taken)
            if not space:
                break
        slots = np.concatenate([np.full(len(taken), case.slot) for case, taken in share])
        pairs = np.concatenate([taken for _, taken in share])
        outputs = self.classifier.run_batch(self._masked(buffer, _padded(slots, batch), _padded(pairs, batch)))
        begin = 0
        for case, taken in share:
            case.store.add(taken, outputs[begin : begin + len(taken)])
            begin += len(taken)
        seconds = time.perf_counter() - start
        for case, taken in share:
            case.seconds += seconds * len(taken) / begin
        if self.progress:
            self.progress(begin)

    def _masked(self, buffer: Tensor, slots: IntArray, pairs: IntArray) -> Tensor:
        device = self.classifier.device
        hidden = self.masks.hidden(torch.from_numpy(pairs).to(device))
        return torch.where(hidden[:, None], self._fill, buffer[torch.from_numpy(slots).to(device)])


def _padded(rows: IntArray, length: int) -> IntArray:
    """Repeat the last row until there are ``length`` rows."""
    return np.concatenate([rows, np.repeat(rows[-1:], length - len(rows), axis=0)])
