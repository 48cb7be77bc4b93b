"""The workers of a run as its driver sees them: who dies is replaced, and others do its photos again."""

from __future__ import annotations

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
"""Workers that may die in a row before they have loaded the model."""


@dataclass(eq=False)
class Block:
    """Photos that a worker takes at a time, as it takes them, and how often a worker was lost over them."""

    samples: Sequence[Sample]
    packed: bytes
    lost: int = 0

    @property
    def most(self) -> int:
        """How often that may be: once together, then until every photo is set aside; and a few times more."""
        return 1 + RETRIES * len(self.samples) + CRASHES


@dataclass(eq=False)
class Member:
    """One worker, and what it was asked and has not answered; a call that is about no photos has no block."""

    handle: Any
    asked: dict[Any, Block | None] = field(default_factory=dict)
    set_up: bool = False
    begun: bool = False


class Crew:
    """As many workers as are wanted, from their first start to the end of the ``with`` block."""

    def __init__(self, ray: Any, pool: Pool, size: int, setting: Setting, workplace: Workplace) -> None:
        self._ray, self._record = ray, started_record(ray)
        needs = {"num_cpus": pool.cpus, "num_gpus": pool.gpus, "max_concurrency": AT_HAND}
        self._actor = ray.remote(Worker).options(**needs)
        self._given = ray.put(setting), workplace, self._record
        self._orders: Any = None
        self._crashes = 0
        self._members = [self._started() for _ in range(size)]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            self._dismiss(member)
        with suppress(self._ray.exceptions.RayError):
            self._record.close()

    def survey(self, *arguments: Any) -> Survey:
        """What the first worker that has loaded the model finds out; another one does it should that one die."""
        for _ in range(RETRIES * MARGIN_PHOTOS + CRASHES):
            while not (able := [member for member in self._members if member.set_up]):
                self._heard(deque())
            try:
                found: Survey = self._told(able[0].handle.survey.remote(*arguments))
            except self._ray.exceptions.RayError as error:
                self._replace(able[0], error)
            else:
                return found
        raise CertmaskError("expected to try the model with some of the photos, got a worker that crashed each time")

    def begin(self, orders: Orders) -> None:
        """Give every worker its orders, also those that come later."""
        self._orders = self._ray.put(orders)
        for member in self._members:
            if member.set_up:
                self._ask(member, "begin", self._orders)

    def each(self, method: str, samples: Sequence[Sample], size: int) -> Iterator[Any]:
        """What workers answer about the samples, so many at a time, in the order in which it is ready."""
        waiting = deque(_blocks(samples, size))
        while waiting or any(block for member in self._members for block in member.asked.values()):
            self._hand_out(method, waiting)
            answer = self._heard(waiting)
            if answer is not None:
                yield answer

    def _hand_out(self, method: str, waiting: deque[Block]) -> None:
        """A block for everybody who has none, and the next one while there are enough of them."""
        for count in range(AT_HAND):
            for member in self._members:
                if member.begun and len(member.asked) == count and len(waiting) > count * len(self._members):
                    block = waiting.popleft()
                    self._ask(member, method, block.packed, block=block)

    def _heard(self, waiting: deque[Block]) -> Any:
        """Wait until somebody answers; what it says of a block, and None where it was about no photos, or died."""
        asked = {call: member for member in self._members for call in member.asked}
        (call, *_), _ = self._ray.wait(list(asked), num_returns=1)
        member = asked[call]
        try:
            answer = self._told(call)
        except self._ray.exceptions.RayError as error:
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

    def _promote(self, member: Member) -> None:
        """The next step of a worker that has done what it was asked: model, orders, photos."""
        self._crashes = 0
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
        self._replace(member, error)
        blocks = [block for block in member.asked.values() if block is not None]
        for block in blocks:
            block.lost += 1
            if block.lost > block.most:
                first = block.samples[0].name
                raise CertmaskError(f"expected the photos from {first} on to be done, got {block.lost} dead workers")
        return blocks

    def _replace(self, member: Member, error: Exception) -> None:
        self._crashes += not member.set_up
        if self._crashes > CRASHES:
            raise CertmaskError(f"expected to set up a worker, got one that died each time: {first_line(error)}")
        self._dismiss(member)
        self._members[self._members.index(member)] = self._started()

    def _dismiss(self, member: Member) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(member.handle)


def _blocks(samples: Sequence[Sample], size: int) -> Iterator[Block]:
    """Also where the reader of a photo was defined in a notebook."""
    from ray import cloudpickle

    for begin in range(0, len(samples), size):
        part = list(samples[begin : begin + size])
        yield Block(part, cloudpickle.dumps(part))
