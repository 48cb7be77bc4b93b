"""The workers of a run as its driver sees them: who dies is replaced, and others do its photos again."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from certmask.certification import MARGIN_PHOTOS
from certmask.data import Sample
from certmask.errors import CertmaskError, first_line
from certmask.scale.attempts import RETRIES, started_record
from certmask.scale.pool import Pool
from certmask.scale.setting import Setting, Workplace
from certmask.scale.survey import Survey
from certmask.scale.worker import Orders, Worker

AT_HAND = 2
"""Blocks that a worker has at a time: one in work, and one that is read meanwhile."""
CRASHES = 3
"""Workers that may die in a row in one place before they have begun."""


@dataclass(eq=False)
class Block:
    """Photos that a worker takes at a time, and how often a worker was lost over them, which may be ``most`` times."""

    samples: Sequence[Sample]
    most: int
    lost: int = 0

    def packed(self) -> bytes:
        """Also where the reader of a photo was defined in a notebook."""
        from ray import cloudpickle

        return cloudpickle.dumps(list(self.samples))  # type: ignore[no-any-return]


@dataclass(eq=False)
class Member:
    """One worker, and what it was asked and has not answered; a call that is about no photos has no block."""

    handle: Any
    asked: dict[Any, Block | None] = field(default_factory=dict)
    set_up: bool = False
    begun: bool = False
    crashes: int = 0
    """Workers that died in its place, one after the other, before they had begun."""


class Crew:
    """As many workers as are wanted, from their first start to the end of the ``with`` block."""

    def __init__(self, ray: Any, pool: Pool, size: int, setting: Setting, workplace: Workplace) -> None:
        self._ray: Any = ray
        self._record: Any = started_record(ray)
        needs = {"num_cpus": pool.cpus, "num_gpus": pool.gpus, "max_concurrency": AT_HAND}
        self._actor = ray.remote(Worker).options(**needs)
        self._given: tuple[Any, ...] = ray.put(setting), workplace, self._record
        self._orders: Any = None
        self._members = [self._started() for _ in range(size)]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            self._dismiss(member)
        with suppress(self._ray.exceptions.RayError):
            self._record.close()
        self._forget()

    def _forget(self) -> None:
        """Let go of every handle while its session lasts: Ray numbers actors anew in the next one."""
        for member in self._members:
            member.handle = None
            member.asked.clear()
        self._members, self._given, self._record = [], (), None
        gc.collect()  # handles are parts of circles

    def survey(self, *arguments: Any) -> Survey:
        """What the first worker that has loaded the model finds out; another one does it should that one die."""
        reason = ""
        for _ in range(RETRIES * MARGIN_PHOTOS + CRASHES):
            while not (able := [member for member in self._members if member.set_up]):
                self._heard(deque())
            try:
                found: Survey = self._told(able[0].handle.survey.remote(*arguments))
            except self._gone as error:
                reason = why(error)
                self._replace(able[0], crashes=0)
            else:
                return found
        raise CertmaskError(f"expected to try the model with some photos, got a worker that died each time: {reason}")

    def begin(self, orders: Orders) -> None:
        """Give every worker its orders, also those that come later."""
        self._orders = self._ray.put(orders)
        for member in self._members:
            if member.set_up:
                self._ask(member, "begin", self._orders)

    def each(self, method: str, samples: Sequence[Sample], size: int, retries: int = 0) -> Iterator[Any]:
        """What workers answer about the samples, so many at a time, in the order in which it is ready.

        So many workers may be lost over a block for each of its photos: what it takes to set all of them aside.
        """
        waiting = deque(_blocks(samples, size, retries))
        while waiting or any(block for member in self._members for block in member.asked.values()):
            self._hand_out(method, waiting)
            answer = self._heard(waiting)
            if answer is not None:
                yield answer

    def _hand_out(self, method: str, waiting: deque[Block]) -> None:
        """A block for everybody who has none, and the next one while there are enough of them."""
        for count in range(AT_HAND):
            for member in self._members:
                free = member.begun and len(member.asked) == count and len(waiting) > count * len(self._members)
                if free and not (count and _suspect(waiting[0], *member.asked.values())):
                    block = waiting.popleft()
                    self._ask(member, method, block.packed(), block=block)

    def _heard(self, waiting: deque[Block]) -> Any:
        """Wait until somebody answers; what it says of a block, and None where it was about no photos, or died."""
        asked = {call: member for member in self._members for call in member.asked}
        (call, *_), _ = self._ray.wait(list(asked), num_returns=1)
        member = asked[call]
        try:
            answer = self._told(call)
        except self._gone as error:
            waiting.extendleft(reversed(self._lost(member, error)))
            return None
        if member.asked.pop(call) is not None:
            return answer
        self._promote(member)
        return None

    def _told(self, call: Any) -> Any:
        """What a call found, or the error that it ended in; one of Ray's where the worker is gone."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CertmaskError):
                raise error.cause from None
            if isinstance(error.cause, self._ray.exceptions.RayError):
                raise CertmaskError(
                    f"expected Ray to go on, got {first_line(error.cause)}; the same command continues"
                ) from None
            raise RuntimeError(str(error)) from error
        except self._gone:
            raise
        except self._ray.exceptions.RayError as error:
            raise CertmaskError(f"expected an answer of a worker, got {first_line(error)}") from error

    @property
    def _gone(self) -> tuple[type[Exception], ...]:
        """What Ray says where a worker, its node or its answer is gone."""
        known = self._ray.exceptions
        workers = known.RayActorError, known.WorkerCrashedError, known.OutOfMemoryError
        return *workers, known.NodeDiedError, known.ObjectLostError

    def _promote(self, member: Member) -> None:
        """The next step of a worker that has done what it was asked: model, orders, photos."""
        member.begun, member.set_up = member.set_up, True
        if not member.begun and self._orders is not None:
            self._ask(member, "begin", self._orders)

    def _ask(self, member: Member, method: str, *arguments: Any, block: Block | None = None) -> None:
        member.asked[getattr(member.handle, method).remote(*arguments)] = block

    def _started(self) -> Member:
        member = Member(self._actor.remote(*self._given))
        self._ask(member, "set_up")
        return member

    def _lost(self, member: Member, error: Exception) -> list[Block]:
        """Begin another worker for one that died; returns what it had not done."""
        crashes = 0 if member.begun else member.crashes + 1
        if crashes > CRASHES:
            raise CertmaskError(f"expected to set up a worker, got one that died each time: {why(error)}")
        self._replace(member, crashes)
        blocks = [block for block in member.asked.values() if block is not None]
        for block in blocks:
            block.lost += 1
            if block.lost > block.most:
                told = f"got {block.lost} dead workers, the last one so: {why(error)}"
                raise CertmaskError(f"expected the photos from {block.samples[0].name} on to be done, {told}")
        return blocks

    def _replace(self, member: Member, crashes: int) -> None:
        self._dismiss(member)
        self._members[self._members.index(member)] = fresh = self._started()
        fresh.crashes = crashes

    def _dismiss(self, member: Member) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(member.handle)


def _blocks(samples: Sequence[Sample], size: int, retries: int) -> Iterator[Block]:
    for begin in range(0, len(samples), size):
        part = samples[begin : begin + size]
        yield Block(part, 1 + retries * len(part) + CRASHES)


def _suspect(*blocks: Block | None) -> bool:
    """Whether a worker was lost over one of them: it then has no neighbour, which would be blamed for it."""
    return any(block is not None and block.lost for block in blocks)


def why(error: Exception) -> str:
    """The reason in what Ray says of a worker that died, whose first line is the same for all reasons."""
    lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip() and not line.startswith("\t")]
    if not lines:
        return first_line(error)
    return (lines[-1] if getattr(error, "actor_init_failed", False) else lines[0])[:200]
