"""The library's answers about photos, with what they rest on and what is guaranteed, within limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
from torch import Tensor

from certmask.certificate import class_name, supposing
from certmask.company import probes
from certmask.defences.protocol import asked_marks, noted, proved_sides
from certmask.deployed import Defence
from certmask.engine import Engine
from certmask.engine.premises import check_company, check_unchanged
from certmask.errors import CertmaskError
from certmask.passes import Ask
from certmask.rules.rule import Asking, T
from certmask.service.answers import PhotoAnswer
from certmask.service.limits import Limits, RefusedError
from certmask.votes import Margin, VoteStore


@dataclass(eq=False)
class Job:
    """A photo that waits for its answer until its deadline, and whether a proof is wanted, too."""

    image: Tensor
    deadline: float
    prove: bool = False
    answer: Future[PhotoAnswer] = field(default_factory=Future)


class Examiner:
    """Answers about photos as the library does, each as if it were alone; to be called by one thread at a time.

    Photos share batches, of the shape that the classifier always has, but neither votes nor rules: every photo is a
    cohort of its own, so that whatever it takes, and where it ends, is its own.
    """

    def __init__(self, shield: Defence, limits: Limits) -> None:
        self.defence, self.limits = shield.defence, limits
        self.engine = Engine(shield.classifier, self.defence.covers, fill=shield.engine.fill, cohort=1)
        check_company(self.engine, list(probes(shield.classifier.size)[:2]))
        described = json.dumps(self.defence.describe(), sort_keys=True)
        self.digest = hashlib.sha256(described.encode()).hexdigest()[:16]
        self.function = self.engine.describe()

    @property
    def fingerprint(self) -> str:
        """The name of the function's fingerprint, in the shape of batch that it has now."""
        return self.engine.fingerprint().name

    def describe(self) -> dict[str, Any]:
        """Function and defence as the header of a results file has them."""
        return {"model": self.function, "defence": {**self.defence.describe(), "sha256": self.digest}}

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, PhotoAnswer | RefusedError]]:
        """Each job with its answer, or why there is none, in the order in which they are ready.

        ``jobs`` are taken as there is room in the batches, so that photos which come meanwhile can fill them.
        """
        taken: dict[int, Job] = {}

        def images() -> Iterator[Tensor]:
            for number, job in enumerate(jobs):
                taken[number] = job
                yield job.image

        def program(numbers: list[int], store: VoteStore) -> Asking[list[PhotoAnswer | RefusedError]]:
            (number,) = numbers
            found = yield from self._looked_at(taken[number], store)
            return [found]

        for finding in self.engine.run(images(), program, most_passes=self.defence.most_passes):
            job = taken.pop(finding.number)
            if job.prove:
                check_unchanged(self.engine, Margin.of(self.defence.rule.margin))
            yield job, finding.value

    def _looked_at(self, job: Job, store: VoteStore) -> Asking[PhotoAnswer | RefusedError]:
        try:
            found = yield from self._answer(job, store)
        except RefusedError as refusal:
            return refusal
        except CertmaskError as error:
            return RefusedError(500, str(error))
        return found

    def _answer(self, job: Job, store: VoteStore) -> Asking[PhotoAnswer]:
        asked, proved = list[Ask](), list[Ask]()
        (decision,) = yield from self._within(job, store, noted(self.defence.deciding(self.engine, store), asked))
        holds, side = None, None
        if job.prove and self.defence.guarantee.proved:
            labels = np.array([max(decision.label, 0)])  # where all is silent, none holds
            proving = noted(self.defence.proving(self.engine, store, labels), proved)
            proofs = yield from self._within(job, store, proving)
            holds, side = bool(proofs.holds[0]), proved_sides(self.defence.threat, proofs)[0]
        name = class_name(decision.label, self.engine.classifier.class_names)
        return PhotoAnswer(
            label=decision.label,
            name=name,
            alert=decision.alert,
            guarantee=self.defence.guarantee.value,
            guaranteed=self._sentence(name, decision.label, holds, side),
            certified=None if holds is None else holds or bool(side),
            basis=decision.basis or None,
            forced=decision.basis == "unbeaten" if decision.basis else None,
            passes=self._cost(store, asked),
            proof_passes=None if holds is None else self._cost(store, proved),
            defence=self.defence.name,
            defence_sha256=self.digest,
            fingerprint=self.fingerprint,
        )

    def _within(self, job: Job, store: VoteStore, asking: Asking[T]) -> Asking[T]:
        """The same computation, which is given up where it takes more passes or time than it may."""
        most, cost = self.limits.passes, self.engine.classifier.cost
        while True:
            try:
                ask = next(asking)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if monotonic() > job.deadline:
                raise RefusedError(504, f"expected an answer within {self.limits.seconds:g} s, got none in that time")
            if most is not None and cost * (store.count + len(store.missing(ask))) > most:
                raise RefusedError(422, f"expected a photo that takes at most {most:,} passes, got one that takes more")
            yield ask

    def _cost(self, store: VoteStore, asked: Iterable[Ask]) -> int:
        return int(self.engine.classifier.cost * asked_marks(store, asked).sum())

    def _sentence(self, name: str, label: int, holds: bool | None, side: int | None) -> str:
        """What is guaranteed about a photo: what was proved, or what would be where a proof was made of it."""
        if not self.defence.guarantee.proved:
            return self.defence.guarantee.sentence
        if holds is None:
            promise, threat = self.defence.guarantee.sentence, self.defence.threat.on(self.defence.image)
            return f"not proved of this photo; of a clean one that is certified against {threat}: {promise}"
        return supposing(name, self.defence.certificate(label, holds, side=side).sentence)
