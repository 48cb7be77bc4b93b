"""Schemes on images: what is answered, what is certified, and how many passes each took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from certmask.certificate import Guarantee
from certmask.covers import Cover
from certmask.engine import Engine, Finding
from certmask.errors import CertmaskError
from certmask.geometry import IntArray
from certmask.rules import Rule
from certmask.rules.rule import Asking, numbered
from certmask.votes import BARE, Votes, VoteStore, distinct


@dataclass(frozen=True)
class Scheme:
    """A cover and a rule: a defence that has not met a model yet."""

    cover: Cover
    rule: Rule
    name: str = ""

    def __post_init__(self) -> None:
        self.rule.check(self.cover)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "rule": self.rule.describe(), "cover": self.cover.describe()}


@dataclass(frozen=True)
class Outcome:
    """What one scheme did with one image; ``certified`` is None where no label was given.

    ``dissent`` counts the single masks that voted for another class than the answer.
    """

    label: int
    alert: bool
    certified: bool | None
    dissent: int
    passes: int
    certificate_passes: int

    def right(self, label: int) -> bool:
        """Answered the true class, and without an alert."""
        return self.label == label and not self.alert


def examine(
    engine: Engine, images: Iterable[Tensor], labels: Sequence[int] | None, schemes: Sequence[Scheme]
) -> Iterator[Finding[list[Outcome]]]:
    """Decide every image with every scheme and, where labels are given, certify; votes are shared between schemes."""
    classes = engine.classifier.classes
    for label in labels or ():
        if not 0 <= label < classes:
            raise CertmaskError(f"expected labels from 0 to {classes - 1}, got {label}")

    def program(number: int, store: VoteStore) -> Asking[list[Outcome]]:
        label = None if labels is None else labels[number]
        outcomes = []
        for scheme in schemes:
            outcomes.append((yield from _outcome(scheme, engine.votes(scheme.cover, store), label)))
        return outcomes

    return engine.run(images, program, clean=labels is not None)


def _outcome(scheme: Scheme, votes: Votes, label: int | None) -> Asking[Outcome]:
    rule = scheme.rule
    asked: list[IntArray] = []
    proved: list[IntArray] = []
    decision = yield from numbered(rule.deciding(votes), votes, asked)
    certified = None
    if label is not None and rule.guarantee is not Guarantee.NONE:
        certified = yield from numbered(rule.certifying(votes, label), votes, proved)
    passes = _different(asked)
    dissent = _dissent(votes.store, passes, decision.label)
    return Outcome(decision.label, decision.alert, certified, dissent, len(passes), len(_different(proved)))


def _different(asked: list[IntArray]) -> IntArray:
    """The different passes among those asked for, ``[n, 2]``, smaller mask number first."""
    return distinct(np.concatenate([np.empty((0, 2), dtype=np.int64), *asked]))


def _dissent(store: VoteStore, passes: IntArray, label: int) -> int:
    """How many of the single-mask votes among ``passes`` name another class."""
    singles = passes[(passes[:, 0] == passes[:, 1]) & (passes[:, 0] != BARE)]
    return int((store.heads()[store.slots(singles), 0] != label).sum())
