"""What every rule has in common: it asks for passes, reads votes, decides, certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, final

import numpy as np

from certmask.certificate import NO_CLASS, Certificate, Decision, Guarantee, Place, Weakest, checked_margin
from certmask.covers import Cover
from certmask.errors import CertmaskError, CoverError, VoteError
from certmask.geometry import IntArray
from certmask.passes import Ask
from certmask.votes import BoolArray, Votes, incomplete

T = TypeVar("T")
Asking = Generator[Ask, None, T]
"""A computation that yields the passes it needs next, and finds them among the votes when it goes on."""


class Proofs(NamedTuple):
    """Which pictures' guarantees were proved, and where that is weakest, for a rule that can tell.

    Against a threat of several steps, ``steps`` counts those that are proved: the threat of that number, from 1 on, and
    all before it.
    """

    holds: BoolArray
    weakest: Sequence[Weakest | None]
    steps: IntArray | None = None


class Rule(ABC):
    """Turns votes into a decision and, given the true label, into a certificate.

    A rule never sees the network. ``deciding`` and ``certifying`` look at a cohort of pictures at once and say which
    passes they need as they go, so one text serves live votes, kept votes and invented tables; ``decide`` and
    ``certify`` run them on the complete votes of one picture.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    unit: str = "probability"
    """What its margin is given in: ``probability`` or ``logarithm``."""
    quiet: ClassVar[bool] = True
    """Whether a clean image that is certified never raises an alert, where the size of patches is known."""

    def __init__(self, margin: float = 0.0) -> None:
        self.margin = checked_margin(margin)

    @abstractmethod
    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        """Answer from votes about pictures, clean or attacked; one decision each."""

    @abstractmethod
    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        """Whether the votes of the *clean* pictures prove the rule's guarantee for their ``labels [pictures]``."""

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        """The same, and where the proofs are weakest."""
        holds = yield from self.certifying(votes, labels)
        return Proofs(holds, [None] * len(holds))

    def check(self, cover: Cover) -> None:
        """Raise if this rule's proof does not work with this cover: most know nothing of several patches or sizes."""
        if cover.threat.count > 1 or cover.threat.steps:
            raise CoverError(f"expected one patch of a known size for {self.name}, got {cover.threat}")

    @final
    def decide(self, votes: Votes) -> Decision:
        """Answer from complete votes."""
        self.check(votes.cover)
        (decision,) = answer(self.deciding(_of_one(votes)), votes)
        return decision

    @final
    def certify(self, votes: Votes, label: int) -> Certificate:
        """Prove, or fail to prove, the guarantee from complete votes on the clean image."""
        self.check(votes.cover)
        if not 0 <= label < votes.outputs.shape[1]:
            raise CertmaskError(f"expected a label from 0 to {votes.outputs.shape[1] - 1}, got {label}")
        (holds,) = answer(self.certifying(_of_one(votes), np.array([label])), votes)
        threat, cover = votes.cover.threat.describe(), votes.cover
        return Certificate(bool(holds), self.guarantee, label, threat, cover.image, self.describe(), cover.describe())

    def describe(self) -> dict[str, Any]:
        """Name and parameters, as a results file records them."""
        return {"rule": self.name, "guarantee": self.guarantee.value, "margin": self.margin}

    def most_passes(self, cover: Cover) -> int:
        """The most passes under masks that answering and proving take: one for each mask in a rule of one round."""
        return len(cover)

    def hypotheses(self, cover: Cover) -> list[tuple[int, ...]]:
        """The masks that speak for each place where a patch may be, if it is there: one by one, unless juries do."""
        return [(mask,) for mask in range(len(cover))]

    def claims(self, votes: Votes) -> Asking[IntArray]:
        """The class that each hypothesis claims, ``[pictures, hypotheses]``."""
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return votes.heads(singles).labels

    def places(self, votes: Votes) -> Asking[list[tuple[Place, ...]]]:
        """What each hypothesis claims, how sure that is and who settled it, picture by picture."""
        singles, boxes = votes.ballot.singles[None], [tuple(box) for box in votes.cover.reaches.tolist()]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        return [
            tuple(Place((box,), (mask,), *said) for mask, (box, *said) in enumerate(zip(boxes, *of_all, strict=True)))
            for of_all in zip(heads.labels.tolist(), heads.lead.tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in self.describe().items() if k not in ("rule", "guarantee"))
        return f"{type(self).__name__}({parameters})"


def _of_one(votes: Votes) -> Votes:
    if votes.store.pictures != 1:
        raise VoteError(f"expected the votes of one picture, got those of {votes.store.pictures}")
    return votes


def answer(asking: Asking[T], votes: Votes) -> T:
    """Run a computation on votes that are all there; a missing one is an error."""
    while True:
        try:
            ask = next(asking)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if len(votes.store.missing(ask)):
            raise incomplete()


def together(askings: Iterable[Asking[T]]) -> Asking[list[T]]:
    """Several computations at once: what all of them need next is asked for together; their findings in order."""
    found: dict[int, T] = {}
    running = dict(enumerate(askings))
    while running:
        asks = []
        for number, asking in list(running.items()):
            try:
                asks.append(next(asking))
            except StopIteration as stop:
                found[number] = stop.value
                del running[number]
        if asks:
            yield Ask.joined(asks)
    return [found[number] for number in range(len(found))]


def majority(labels: IntArray, weights: IntArray | None = None) -> int:
    """The label with most weight; the smallest label wins a tie. Silent votes count for none."""
    spoken = labels != NO_CLASS
    if not spoken.any():
        return NO_CLASS
    return int(np.bincount(labels[spoken], weights=None if weights is None else weights[spoken]).argmax())


def majorities(labels: IntArray) -> IntArray:
    """The same for each row of ``labels [pictures, votes]``."""
    width = int(labels.max(initial=NO_CLASS)) + 2  # the first place is for silent votes
    apart = labels + 1 + width * np.arange(len(labels))[:, None]
    counts = np.bincount(apart.ravel(), minlength=width * len(labels)).reshape(-1, width)
    counts[:, 0] = 0
    return np.where(counts.any(axis=1), counts.argmax(axis=1) - 1, NO_CLASS)
