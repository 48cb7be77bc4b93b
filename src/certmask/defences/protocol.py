"""What every defence has, with masks or without: a name, a threat, a guarantee, an answer, a certificate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from certmask.certificate import NO_CLASS, Certificate, Decision, Guarantee
from certmask.covers import Cover
from certmask.engine import Archive, Engine, Finding
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.passes import Ask
from certmask.rules.rule import Asking, Proofs, T, together
from certmask.threat import Patch, Size, Threat
from certmask.votes import BoolArray, VoteStore


class AnyDefence(ABC):
    """A way to defend classifiers, before it has met one. Results files know it by its name.

    ``deciding`` and ``certifying`` look at the votes of a cohort of pictures and yield the passes that they need next.
    """

    name: str

    @property
    @abstractmethod
    def threat(self) -> Threat:
        """What the attacker may do."""

    @property
    @abstractmethod
    def image(self) -> Size:
        """The size of the model's input."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What a certificate promises."""

    @property
    def covers(self) -> Sequence[Cover]:
        """The covers whose masks it asks for; none for a defence without masks."""
        return ()

    @property
    @abstractmethod
    def looks(self) -> str:
        """How it looks at a picture, in words."""

    @property
    def most_passes(self) -> int:
        """The most passes that one picture can take, to answer and to prove."""
        return 1

    @abstractmethod
    def deciding(self, engine: Engine, store: VoteStore) -> Asking[list[Decision]]:
        """Answer about pictures, clean or attacked."""

    @abstractmethod
    def certifying(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[BoolArray]:
        """Whether the guarantee is proved for *clean* pictures with these labels."""

    def proving(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[Proofs]:
        """The same, and where the proofs are weakest."""
        holds = yield from self.certifying(engine, store, labels)
        return Proofs(holds, [None] * len(holds))

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What the guarantee rests on, as plain data.

        ``rule`` says how it decides (name, guarantee, margin and what else it was told), ``cover`` which masks it has.
        """

    def describe(self) -> dict[str, Any]:
        """As a results file records it."""
        threat = {"threat": self.threat.describe(), "image": list(self.image)}
        return {"name": self.name, **threat, **self.parameters()}

    def certificate(
        self, label: int, holds: bool, function: dict[str, Any] | None = None, side: int | None = None
    ) -> Certificate:
        """Write down what was found, with all that it rests on.

        Where the threat has steps, the certificate is about patches of the ``side`` that was proved, if any was.
        """
        told = self.parameters()
        threat = (Patch(side, side) if side else self.threat).describe()
        proved = holds or bool(side)
        return Certificate(proved, self.guarantee, label, threat, self.image, told["rule"], told.get("cover"), function)


@dataclass(frozen=True)
class Outcome:
    """What one defence did with one image; ``certified`` is None where no label was given.

    ``dissent`` counts the single masks that voted for another class than the answer. ``basis`` is what the answer rests
    on, ``weakest`` where the proof is weakest, or where it failed, for rules that can tell. Against patches of unknown
    size, ``side`` is the largest for which it is certified, 0 for none.
    """

    label: int
    alert: bool
    certified: bool | None
    dissent: int
    passes: int
    certificate_passes: int
    basis: str = ""
    weakest: dict[str, Any] | None = None
    side: int | None = None

    def right(self, label: int) -> bool:
        """Answered the true class, and without an alert."""
        return self.label == label and not self.alert


def engine_covers(defences: Iterable[AnyDefence]) -> list[Cover]:
    """All covers that these defences need, each once."""
    return list(dict.fromkeys(cover for defence in defences for cover in defence.covers))


def examine(
    engine: Engine,
    images: Iterable[Tensor],
    labels: Sequence[int] | None,
    defences: Sequence[AnyDefence],
    archive: Archive | None = None,
) -> Iterator[Finding[list[Outcome]]]:
    """Decide every image with every defence and, where labels are given, certify; votes are shared between defences."""
    classes = engine.classifier.classes
    for label in labels or ():
        if not 0 <= label < classes:
            raise CertmaskError(f"expected labels from 0 to {classes - 1}, got {label}")

    def program(numbers: list[int], store: VoteStore) -> Asking[list[list[Outcome]]]:
        truth = None if labels is None else np.array([labels[number] for number in numbers])
        found = yield from together(_outcomes(defence, engine, store, truth) for defence in defences)
        return [[of_all[place] for of_all in found] for place in range(len(numbers))]

    passes = sum(defence.most_passes for defence in defences)
    return engine.run(images, program, archive=archive, most_passes=passes)


def _outcomes(defence: AnyDefence, engine: Engine, store: VoteStore, labels: IntArray | None) -> Asking[list[Outcome]]:
    asked: list[Ask] = []
    proved: list[Ask] = []
    work: list[Asking[Any]] = [noted(defence.deciding(engine, store), asked)]
    if labels is not None and defence.guarantee is not Guarantee.NONE:
        work.append(noted(defence.proving(engine, store, labels), proved))
    decisions, *proofs = yield from together(work)
    certified = proofs[0].holds.tolist() if proofs else [None] * store.pictures
    weakest = proofs[0].weakest if proofs else [None] * store.pictures
    sides = proved_sides(defence.threat, proofs[0]) if proofs else [None] * store.pictures
    answering, proving = asked_marks(store, asked), asked_marks(store, proved)
    dissent = _dissent(store, answering, np.array([decision.label for decision in decisions]))
    cost = engine.classifier.cost
    counts = (dissent.tolist(), (cost * answering.sum(axis=1)).tolist(), (cost * proving.sum(axis=1)).tolist())
    return [
        Outcome(one.label, one.alert, holds, dissents, answer, proof, one.basis, weak and weak.describe(), side)
        for one, holds, weak, side, dissents, answer, proof in zip(
            decisions, certified, weakest, sides, *counts, strict=True
        )
    ]


def proved_sides(threat: Threat, proofs: Proofs) -> Sequence[int | None]:
    """The side of the largest patch that is proved for each picture, 0 for none; None where there is but one threat."""
    if proofs.steps is None:
        return [None] * len(proofs.holds)
    sides = [0, *(patch.height for patch in threat.steps)]
    return [sides[step] for step in proofs.steps.tolist()]


def noted(asking: Asking[T], asked: list[Ask]) -> Asking[T]:
    """The same computation; what it asks for is added to ``asked``."""
    while True:
        try:
            ask = next(asking)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        asked.append(ask)
        yield ask


def asked_marks(store: VoteStore, asked: Iterable[Ask]) -> BoolArray:
    """Which passes were asked for of which pictures, ``[pictures, passes]``."""
    marks = np.zeros((store.pictures, len(store.passes)), dtype=bool)
    for ask in asked:
        marks[ask.pictures, ask.passes] = True
    return marks


def _dissent(store: VoteStore, marks: BoolArray, answers: IntArray) -> IntArray:
    """How many of the single-mask votes among the marked ones name another class than the answer, ``[pictures]``."""
    pictures, passes = np.nonzero(marks & (store.passes.sizes == 1))
    labels = store.heads()[store.slots(pictures, passes), 0]
    other = (labels != answers[pictures]) & (labels != NO_CLASS)
    return np.bincount(pictures[other], minlength=store.pictures)
