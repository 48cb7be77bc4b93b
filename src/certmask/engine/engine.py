"""The engine: images × masks → votes, in full batches across images and masks, no pass made twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from certmask.classifier import Classifier, Colour
from certmask.covers import Cover
from certmask.engine.forward import Forward
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import IntArray
from certmask.rules.rule import Asking
from certmask.votes import Votes, VoteStore

T = TypeVar("T")
Program = Callable[[int, VoteStore], Asking[T]]
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


class Engine:
    """Runs one program per image and answers what the programs ask for, batch by batch.

    Every batch has the classifier's fixed shape and is filled from as many images as it takes. Images are admitted
    only while the votes in memory stay below ``memory`` bytes, however many masks there are. On a GPU, rules look at
    the votes of one batch while the next one is computed.
    """

    def __init__(
        self,
        classifier: Classifier,
        covers: Sequence[Cover],
        *,
        fill: Colour | None = None,
        memory: int = 1 << 30,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.classifier, self.memory, self.progress = classifier, memory, progress
        self.fill: Colour = classifier.mean if fill is None else fill
        self.forward = Forward(classifier, covers, self.fill)
        self._index = {cover: self.forward.masks.index(cover) for cover in covers}
        self._busy = Lock()
        self._aside = _urgent_stream(classifier.device)

    def votes(self, cover: Cover, store: VoteStore) -> Votes:
        """The store as a rule on ``cover`` sees it."""
        if cover not in self._index:
            raise CoverError(f"expected one of the covers that the engine was made for, got {cover}")
        return Votes(cover, store, self._index[cover])

    def describe(self) -> dict[str, Any]:
        """The function that is certified: the classifier and the colour of its masks."""
        return {**self.classifier.describe(), "fill": list(self.fill)}

    def run(self, images: Iterable[Tensor], program: Program[T], *, clean: bool = True) -> Iterator[Finding[T]]:
        """Findings in the order in which they are ready; ``program`` is called with each image's number and store.

        On ``clean`` images a vote that is NaN or infinite is an error. On others a patch may have brought it about: it
        counts for no class, and only an image without any vote is an error.
        """
        if not self._busy.acquire(blocking=False):
            raise CertmaskError("expected one run at a time on an engine, got a second one before the first had ended")
        try:
            yield from self._run(images, program, clean)
        finally:
            self._busy.release()

    def _run(self, images: Iterable[Tensor], program: Program[T], clean: bool) -> Iterator[Finding[T]]:
        self.forward.warm_up()
        waiting = enumerate(images)
        self._free = list(range(self.forward.slots))
        cases: list[_Case[T]] = []
        answered: list[_Case[T]] = []
        more = True
        while more or cases:
            ready, event = answered, self._mark()
            pending = sum(len(case.pending) for case in cases)
            answered = self._launch(cases) if pending >= self.classifier.batch or (pending and not ready) else []
            with self._beside(event):
                findings = [finding for case in ready for finding in self._advance(case, cases, clean)]
                while more and self._free and self._room(cases):
                    number, image = next(waiting, (-1, None))
                    if image is None:
                        more = False
                    else:
                        cases.append(self._admit(number, image, program))
                        findings += self._advance(cases[-1], cases, clean)
            yield from findings

    def _admit(self, number: int, image: Tensor, program: Program[T]) -> _Case[T]:
        slot = self._free.pop()
        self.forward.put(slot, image)
        store = VoteStore(len(self.forward.masks), self.classifier.classes, self.classifier.device)
        return _Case(number, slot, store, program(number, store), np.empty((0, 2), dtype=np.int64))

    def _room(self, cases: list[_Case[T]]) -> bool:
        """Admit another image while fewer than two batches wait and the votes in work fit into memory."""
        pending = sum(len(case.pending) for case in cases)
        votes = pending + sum(case.store.count for case in cases)
        fits = votes * self.classifier.classes * 4 < self.memory
        return not cases or (pending < 2 * self.classifier.batch and fits)

    def _advance(self, case: _Case[T], cases: list[_Case[T]], clean: bool) -> Iterator[Finding[T]]:
        """Let a program go on until it asks for passes that are not there yet, or ends."""
        start = time.perf_counter()
        while not len(case.pending):
            try:
                case.pending = case.store.missing(next(case.asking))
            except StopIteration as stop:
                self._check_voices(case.store, clean)
                cases.remove(case)
                self._free.append(case.slot)
                seconds = case.seconds + time.perf_counter() - start
                yield Finding(case.number, stop.value, case.store.count, seconds)
                return
        case.seconds += time.perf_counter() - start

    def _check_voices(self, store: VoteStore, clean: bool) -> None:
        silent = store.heads()[:, 1] == 0
        if silent.any() if clean else silent.all():
            raise self.classifier.no_numbers() from None

    def _launch(self, cases: list[_Case[T]]) -> list[_Case[T]]:
        """Fill one batch from the cases in order, start it, and return the cases whose every request is under way."""
        start = time.perf_counter()
        share: list[tuple[_Case[T], IntArray]] = []
        space = self.classifier.batch
        for case in cases:
            taken, case.pending = case.pending[:space], case.pending[space:]
            if len(taken):
                share.append((case, taken))
                space -= len(taken)
            if not space:
                break
        if self._aside:
            torch.cuda.current_stream().wait_stream(self._aside)
        slots = np.concatenate([np.full(len(taken), case.slot) for case, taken in share])
        try:
            outputs, heads = self.forward(slots, np.concatenate([taken for _, taken in share]))
        except torch.OutOfMemoryError:
            for case, taken in share:
                case.pending = np.concatenate([taken, case.pending])
            self.classifier.halve()
            return []
        begin = 0
        for case, taken in share:
            part = slice(begin, begin + len(taken))
            case.store.add(taken, outputs[part], heads[part])
            begin = part.stop
        seconds = time.perf_counter() - start
        for case, taken in share:
            case.seconds += seconds * len(taken) / begin
        if self.progress:
            self.progress(begin)
        return [case for case, _ in share if not len(case.pending)]

    def _mark(self) -> torch.cuda.Event | None:
        """The point on the device up to which all votes are there."""
        return torch.cuda.current_stream().record_event() if self._aside else None

    def _beside(self, event: torch.cuda.Event | None) -> Any:
        """Work beside the batch that was just started, after everything before the mark."""
        if self._aside is None or event is None:
            return nullcontext()
        event.synchronize()
        return torch.cuda.stream(self._aside)


def _urgent_stream(device: torch.device) -> Any:
    """On a GPU, a stream whose small tasks go before those of the batch that is being computed."""
    return torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
