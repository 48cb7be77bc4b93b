"""What every rule has in common: it asks for passes, reads votes, decides, certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar, TypeVar, final

import numpy as np

from certmask.certificate import Certificate, Decision, Guarantee
from certmask.covers import Cover
from certmask.errors import CertmaskError, VoteError
from certmask.geometry import IntArray
from certmask.votes import PAD, Votes, distinct

T = TypeVar("T")
Asking = Generator[IntArray, None, T]
"""A computation that yields the passes ``[n, 2]`` it needs next, and finds them among the votes when it goes on."""


class Rule(ABC):
    """Turns votes into a decision and, given the true label, into a certificate.

    A rule never sees the network. ``deciding`` and ``certifying`` say which passes they need as they go, so one
    text serves live votes, cached votes and invented tables; ``decide`` and ``certify`` run them on complete votes.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]

    def __init__(self, margin: float = 0.0) -> None:
        if (
            isinstance(margin, bool)
            or not isinstance(margin, (int, float, np.floating))
            or not 0 <= margin < float("inf")
        ):
            raise CertmaskError(f"expected a margin of at least 0, got {margin!r}")
        self.margin = float(margin)

    @abstractmethod
    def deciding(self, votes: Votes) -> Asking[Decision]:
        """Answer from votes, clean or attacked."""

    @abstractmethod
    def certifying(self, votes: Votes, label: int) -> Asking[bool]:
        """Whether the votes of the *clean* image prove the rule's guarantee for ``label``."""

    def check(self, cover: Cover) -> None:  # noqa: B027  (most rules take any cover)
        """Raise if this rule's proof does not work with this cover."""

    @final
    def decide(self, votes: Votes) -> Decision:
        """Answer from complete votes."""
        self.check(votes.cover)
        return answer(self.deciding(votes), votes)

    @final
    def certify(self, votes: Votes, label: int) -> Certificate:
        """Prove, or fail to prove, the guarantee from complete votes on the clean image."""
        self.check(votes.cover)
        if not 0 <= label < votes.outputs.shape[1]:
            raise CertmaskError(f"expected a label from 0 to {votes.outputs.shape[1] - 1}, got {label}")
        return self.certificate(votes.cover, label, answer(self.certifying(votes, label), votes))

    @final
    def certificate(self, cover: Cover, label: int, holds: bool, function: dict[str, Any] | None = None) -> Certificate:
        """Write down what was found, with all that it rests on."""
        return Certificate(holds, self.guarantee, label, self.describe(), cover.describe(), function)

    def describe(self) -> dict[str, Any]:
        """Name and parameters, as a results file records them."""
        return {"rule": self.name, "guarantee": self.guarantee.value, "margin": self.margin}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in self.describe().items() if k not in ("rule", "guarantee"))
        return f"{type(self).__name__}({parameters})"


def answer(asking: Asking[T], votes: Votes) -> T:
    """Run a computation on votes that are all there; a missing one is an error."""
    while True:
        try:
            passes = next(asking)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if len(votes.store.missing(votes.passes(passes))):
            raise VoteError("expected every vote that the rule needs, got a table without some of them")


def numbered(asking: Asking[T], votes: Votes, asked: list[IntArray] | None = None) -> Asking[T]:
    """The same computation, asking in the numbering of the votes' store; what it asks for is added to ``asked``."""
    while True:
        try:
            passes = next(asking)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        passes = votes.passes(passes)
        if asked is not None:
            asked.append(passes)
        yield passes


def jury_passes(cover: Cover) -> IntArray:
    """The single passes of every district's jury, ``[districts, largest jury, 2]``, padded."""
    juries = np.where(cover.districts.juries < 0, PAD, cover.districts.juries)
    return np.asarray(np.repeat(juries[..., None], 2, axis=-1))


def needed(pools: IntArray) -> IntArray:
    """The different passes in a padded array, as the list ``[n, 2]`` to ask for."""
    flat: IntArray = pools.reshape(-1, 2)
    return distinct(flat[flat[:, 0] != PAD])


def majority(labels: IntArray, weights: IntArray | None = None) -> int:
    """The label with most weight; the smallest label wins a tie."""
    return int(np.bincount(labels, weights=weights).argmax())
