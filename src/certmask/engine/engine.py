"""The engine: images × masks → votes, in full batches across images and masks, no pass made twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from certmask.classifier import Classifier
from certmask.company import rounding_of
from certmask.covers import Cover
from certmask.engine.fingerprint import Fingerprint
from certmask.engine.forward import Forward
from certmask.errors import CertmaskError, ChangedModelError, CoverError
from certmask.geometry import IntArray
from certmask.images import Colour
from certmask.passes import Ask, Ballot, Passes
from certmask.rules.rule import Asking
from certmask.votes import Votes, VoteStore, head_of

T = TypeVar("T")
COHORT = {"cuda": 128, "cpu": 1}
"""Pictures that rules look at together: on a GPU many, so that it need not wait; on a CPU each is done sooner."""

AHEAD = 8
"""Batches that a GPU has before it while rules look at votes."""

Program = Callable[[list[int], VoteStore], Asking[list[T]]]
"""What to find out about a cohort of images: given their numbers and their votes, yields the passes that it needs and
returns one finding per image."""


@dataclass
class Finding(Generic[T]):
    """A program's result on one image; ``passes`` are those that were really made, ``seconds`` its cohort's mean.

    ``batch`` is the shape in which all its votes were made; ``silent`` counts those that are no numbers, of ``votes``.
    """

    number: int
    value: T
    passes: int
    seconds: float
    batch: int
    votes: int
    silent: int


class Archive(Protocol):
    """Votes that outlive a run, by the images' numbers and by the engine's numbers of passes."""

    def recall(self, number: int, passes: Passes) -> tuple[IntArray, Tensor]:
        """Passes ``[n]`` that were made before, and their probabilities ``[n, classes]``."""

    def keep(self, number: int, passes: Passes, made: IntArray, probabilities: Tensor) -> None:
        """Write down all votes about one image."""


@dataclass(eq=False)
class _Cohort(Generic[T]):
    """Some images in work."""

    numbers: list[int]
    slots: IntArray
    store: VoteStore
    asking: Asking[list[T]]
    pending: Ask
    made: IntArray
    seconds: float = 0.0


@dataclass
class _Flight(Generic[T]):
    """A batch under way: the cohorts that have all they asked for once it has landed, and the canary's heads in it."""

    cohorts: list[_Cohort[T]]
    landed: torch.cuda.Event | None
    canary: Tensor


class Engine:
    """Runs a program on images, cohort by cohort, and answers what it asks for, batch by batch.

    Every batch has the classifier's fixed shape and is filled from as many images as it takes. Images are admitted
    only while the votes in memory stay below ``memory`` bytes (a GiB, or an eighth of a GPU's), however many masks
    there are; those of one cohort may come on top. On a GPU, rules look at the votes of one batch while the next ones
    are computed. ``cohort`` is the most images that rules look at together (1 on a CPU, 128 on a GPU), ``together``
    the most masks that one pass hides (two for each patch of the threat).
    ``tried`` has the shapes of batch in which masked views were tried among strangers.
    """

    def __init__(
        self,
        classifier: Classifier,
        covers: Sequence[Cover],
        *,
        fill: Colour | None = None,
        memory: int | None = None,
        cohort: int | None = None,
        together: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        if classifier.piecewise and covers:
            raise CertmaskError(
                f"expected rules on local evidence for {classifier}, such as patchguard, clipped-bagnet, or undefended "
                "beside them, got one on votes about masked pictures"
            )
        self.classifier, self.progress = classifier, progress
        self.memory = _room_for_votes(classifier.device) if memory is None else memory
        self.fill: Colour = classifier.fill if fill is None else fill
        most = max((2 * cover.threat.count for cover in covers), default=2)
        self.forward = Forward(classifier, covers, self.fill, most if together is None else together)
        masks = self.forward.masks
        self.passes = Passes(len(masks))
        self._ballots = {cover: Ballot(cover, self.passes, masks.index(cover)) for cover in covers}
        most = COHORT.get(classifier.device.type, 1) if cohort is None else cohort
        self.cohort = max(min(most, self.forward.slots), 1)
        self._busy = Lock()
        self._fingerprints: dict[int, Fingerprint] = {}
        self.tried: set[int] = set()
        self._aside = _urgent_stream(classifier.device)
        self._ahead = AHEAD if self._aside else 1

    @property
    def batch(self) -> int:
        """The shape of every batch."""
        return self.forward.batch

    def votes(self, cover: Cover, store: VoteStore) -> Votes:
        """The store as a rule on ``cover`` sees it."""
        if cover not in self._ballots:
            raise CoverError(f"expected one of the covers that the engine was made for, got {cover}")
        return Votes(self._ballots[cover], store)

    def __repr__(self) -> str:
        return f"Engine({self.classifier!r}, {len(self.forward.masks)} masks)"

    def describe(self, batch: int | None = None) -> dict[str, Any]:
        """The function that is certified: the classifier, the colour of its masks, and a fingerprint of behaviour.

        ``batch`` asks for the function that it was before memory ran out and batches were halved.
        """
        self.fingerprint()  # may halve the batch, or find that the model cannot be compiled
        shape = self.batch if batch is None else batch
        fingerprint = self._fingerprints[shape].describe()
        return {**self.classifier.describe(), "batch": shape, "fill": list(self.fill), "fingerprint": fingerprint}

    def fingerprint(self) -> Fingerprint:
        """What the function says about fixed pictures, asked once for each shape of batch."""
        self.forward.warm_up()
        while self.batch not in self._fingerprints:
            try:
                self._fingerprints[self.batch] = self.forward.fingerprint()
            except torch.OutOfMemoryError:
                self.forward.halve()
        return self._fingerprints[self.batch]

    def run(
        self,
        images: Iterable[Tensor],
        program: Program[T],
        *,
        archive: Archive | None = None,
        most_passes: int | None = None,
    ) -> Iterator[Finding[T]]:
        """Findings in the order in which they are ready; ``program`` is called with cohorts of images' numbers.

        A vote that is NaN or infinite counts for no class. What ``archive`` has is not made again. Where memory runs
        out, batches are halved and unfinished images start again: no image has votes from two shapes of batch.
        ``most_passes`` is what one image can take, if that is known: a cohort's votes then fit into memory.
        """
        with self.alone():
            self.fingerprint()
            if self.batch == 1:
                self.forward.ask_canary()
            yield from self._run(images, program, archive, self._cohort_size(most_passes))
            if self.batch == 1:
                self.forward.ask_canary()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else has the engine's place for images meanwhile."""
        if not self._busy.acquire(blocking=False):
            raise CertmaskError("expected one run at a time on an engine, got a second one before the first had ended")
        try:
            yield
        finally:
            self._busy.release()

    def _cohort_size(self, most_passes: int | None) -> int:
        """As many images as may be in a cohort, fewer where their votes would not fit into memory."""
        passes = 8 * (len(self.forward.masks) + 1) if most_passes is None else max(most_passes, 1)
        return max(min(self.cohort, self.memory // (passes * self.classifier.width * 4)), 1)

    def _run(
        self, images: Iterable[Tensor], program: Program[T], archive: Archive | None, size: int
    ) -> Iterator[Finding[T]]:
        if self._aside:
            self._aside.wait_stream(torch.cuda.current_stream(self.classifier.device))
        waiting = enumerate(images)
        self._free = list(range(self.forward.slots))
        cohorts: list[_Cohort[T]] = []
        flight: deque[_Flight[T]] = deque()
        more = True
        while more or cohorts:
            try:
                self._fly(cohorts, flight)
            except torch.OutOfMemoryError:
                ready = self._start_again(cohorts, flight, program)
            else:
                ready = self._landed(flight)
            findings: list[Finding[T]] = []
            with self._beside():
                for cohort in ready:
                    findings += self._advance(cohort, cohorts, archive)
                while more and len(self._free) >= size and self._room(cohorts):
                    admitted = list(islice(waiting, size))
                    more = len(admitted) == size
                    if admitted:
                        cohorts.append(self._admit(admitted, program, archive))
                        findings += self._advance(cohorts[-1], cohorts, archive)
            yield from findings

    def _fly(self, cohorts: list[_Cohort[T]], flight: deque[_Flight[T]]) -> None:
        """Start as many full batches as may be under way; one that is not full only where nothing else is."""
        while len(flight) < self._ahead and self._pending(cohorts) >= self.forward.room:
            self._launch(cohorts, flight)
        if not flight and self._pending(cohorts):
            self._launch(cohorts, flight)

    def _landed(self, flight: deque[_Flight[T]]) -> list[_Cohort[T]]:
        """Wait for the batch that was started first; the cohorts that can go on after it."""
        if not flight:
            return []
        first = flight.popleft()
        if first.landed is not None:
            first.landed.synchronize()
        self.forward.check_canary(first.canary.numpy())
        return first.cohorts

    def _start_again(
        self, cohorts: list[_Cohort[T]], flight: deque[_Flight[T]], program: Program[T]
    ) -> list[_Cohort[T]]:
        """Halve the batch and forget every vote of unfinished images, which were made in another shape."""
        if self._aside:
            torch.cuda.synchronize(self.classifier.device)
        flight.clear()
        before = self.fingerprint()
        self.forward.halve()
        change = self.fingerprint().changes(before).probability
        if not change <= 2 * rounding_of(self.classifier.precision):
            raise ChangedModelError(
                f"expected {self.classifier.name} to answer in smaller batches as before, got a lead on a fixed "
                f"picture that changed by {change:.2g}"
            )
        for cohort in cohorts:
            cohort.store = VoteStore(len(cohort.numbers), self.passes, self.classifier.width, self.classifier.device)
            cohort.asking, cohort.pending = program(cohort.numbers, cohort.store), Ask.nothing()
        return list(cohorts)

    @staticmethod
    def _pending(cohorts: list[_Cohort[T]]) -> int:
        return sum(len(cohort.pending) for cohort in cohorts)

    def _admit(
        self, admitted: Sequence[tuple[int, Tensor]], program: Program[T], archive: Archive | None
    ) -> _Cohort[T]:
        slots = np.array([self._free.pop() for _ in admitted])
        store = VoteStore(len(admitted), self.passes, self.classifier.width, self.classifier.device)
        self.forward.put(slots, [image for _, image in admitted])
        for place, (number, _) in enumerate(admitted):
            if archive is not None:
                passes, probabilities = archive.recall(number, self.passes)
                heads = head_of(self.classifier.summary(probabilities))
                store.add(Ask(np.full(len(passes), place), passes), probabilities.to(self.classifier.device), heads)
        numbers = [number for number, _ in admitted]
        made = np.zeros(len(admitted), dtype=np.int64)
        return _Cohort(numbers, slots, store, program(numbers, store), Ask.nothing(), made)

    def _room(self, cohorts: list[_Cohort[T]]) -> bool:
        """Admit another cohort while there is too little to compute and the votes in work fit into memory."""
        pending = self._pending(cohorts)
        votes = pending + sum(cohort.store.count for cohort in cohorts)
        fits = votes * self.classifier.width * 4 < self.memory
        return not cohorts or (pending < (self._ahead + 1) * self.forward.room and fits)

    def _advance(self, cohort: _Cohort[T], cohorts: list[_Cohort[T]], archive: Archive | None) -> Iterator[Finding[T]]:
        """Let a program go on until it asks for passes that are not there yet, or ends."""
        start = time.perf_counter()
        while not len(cohort.pending):
            try:
                cohort.pending = cohort.store.missing(next(cohort.asking))
            except StopIteration as stop:
                cohorts.remove(cohort)
                self._free += cohort.slots.tolist()
                seconds = (cohort.seconds + time.perf_counter() - start) / len(cohort.numbers)
                for place, (number, value) in enumerate(zip(cohort.numbers, stop.value, strict=True)):
                    if archive is not None and cohort.made[place]:
                        archive.keep(number, self.passes, *cohort.store.cast(place))
                    made, voices = int(cohort.made[place]), cohort.store.voices(place)
                    yield Finding(number, value, made, seconds, self.batch, *voices)
                return
        cohort.seconds += time.perf_counter() - start

    def _launch(self, cohorts: list[_Cohort[T]], flight: deque[_Flight[T]]) -> None:
        """Fill one batch from the cohorts in order and start it; what it completes can go on when it has landed."""
        start = time.perf_counter()
        share: list[tuple[_Cohort[T], Ask]] = []
        space = self.forward.room
        for cohort in cohorts:
            taken, cohort.pending = cohort.pending.split(space)
            if len(taken):
                share.append((cohort, taken))
                space -= len(taken)
            if not space:
                break
        if self._aside:
            torch.cuda.current_stream(self.classifier.device).wait_stream(self._aside)
        slots = np.concatenate([cohort.slots[taken.pictures] for cohort, taken in share])
        sets = self.passes.sets(np.concatenate([taken.passes for _, taken in share]))
        outputs, heads = self.forward(slots, sets)
        begin = 0
        for cohort, taken in share:
            part = slice(begin, begin + len(taken))
            cohort.store.add(taken, outputs[part], heads[part])
            cohort.made += np.bincount(taken.pictures, minlength=len(cohort.numbers))
            begin = part.stop
        seconds = time.perf_counter() - start
        for cohort, taken in share:
            cohort.seconds += seconds * len(taken) / begin
        if self.progress:
            self.progress(begin)
        landed = torch.cuda.current_stream(self.classifier.device).record_event() if self._aside else None
        flight.append(_Flight([cohort for cohort, _ in share if not len(cohort.pending)], landed, heads[begin:]))

    def _beside(self) -> Any:
        """Work beside the batches that are under way."""
        return nullcontext() if self._aside is None else torch.cuda.stream(self._aside)


def _room_for_votes(device: torch.device) -> int:
    """A GiB, or an eighth of a GPU's memory if that is more."""
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return max(total // 8, 1 << 30)


def _urgent_stream(device: torch.device) -> Any:
    """On a GPU, a stream whose small tasks go before those of the batch that is being computed."""
    return torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
