"""Covers with rules, on images: what is answered, what is certified, and how many passes each took."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from certmask.certificate import Guarantee
from certmask.covers import Cover, cover_from
from certmask.engine import Engine, Finding
from certmask.errors import CertmaskError, ResultsError
from certmask.geometry import IntArray
from certmask.rules import AGGREGATES, RULES, Rule
from certmask.rules.rule import Asking, numbered
from certmask.threat import Patch
from certmask.votes import BARE, Votes, VoteStore, distinct


@dataclass(frozen=True)
class MaskedDefence:
    """A cover and a rule: a defence that has not met a model yet."""

    cover: Cover
    rule: Rule
    name: str = ""

    def __post_init__(self) -> None:
        self.rule.check(self.cover)

    @property
    def threat(self) -> Patch:
        """What the attacker may do."""
        return self.cover.patch

    @property
    def guarantee(self) -> Guarantee:
        return self.rule.guarantee

    def describe(self) -> dict[str, Any]:
        """As a results file records it."""
        return {
            "name": self.name,
            "threat": self.threat.describe(),
            "image": list(self.cover.image),
            "rule": self.rule.describe(),
            "cover": self.cover.describe(),
        }


@dataclass(frozen=True)
class Outcome:
    """What one defence did with one image; ``certified`` is None where no label was given.

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
    engine: Engine, images: Iterable[Tensor], labels: Sequence[int] | None, defences: Sequence[MaskedDefence]
) -> Iterator[Finding[list[Outcome]]]:
    """Decide every image with every defence and, where labels are given, certify; votes are shared between defences."""
    classes = engine.classifier.classes
    for label in labels or ():
        if not 0 <= label < classes:
            raise CertmaskError(f"expected labels from 0 to {classes - 1}, got {label}")

    def program(number: int, store: VoteStore) -> Asking[list[Outcome]]:
        label = None if labels is None else labels[number]
        outcomes = []
        for defence in defences:
            outcomes.append((yield from _outcome(defence, engine.votes(defence.cover, store), label)))
        return outcomes

    return engine.run(images, program, clean=labels is not None)


def _outcome(defence: MaskedDefence, votes: Votes, label: int | None) -> Asking[Outcome]:
    rule = defence.rule
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


def defence_from(description: dict[str, Any]) -> MaskedDefence:
    """The defence that ``MaskedDefence.describe`` described; an error if it cannot be rebuilt to the last mask."""
    name = description.get("name", "")
    try:
        defence = MaskedDefence(cover_from(description["cover"]), _rule(description["rule"]), name)
    except ResultsError as error:
        raise ResultsError(f"{error} in defence {name!r}") from None
    except (KeyError, TypeError, CertmaskError) as error:
        raise ResultsError(f"expected a defence that can be rebuilt, got {name!r} ({error})") from None
    _check_same(description["rule"], defence.rule.describe(), name)
    return defence


def _rule(description: dict[str, Any]) -> Rule:
    """A rule's description names its parameters as its constructor does."""
    name = description["rule"]
    if name not in RULES:
        raise ResultsError(f"expected a rule among {', '.join(RULES)}, got {name!r}")
    parameters = {key: description[key] for key in inspect.signature(RULES[name]).parameters}
    if "aggregate" in parameters:
        parameters["aggregate"] = AGGREGATES[parameters["aggregate"]]()
    return RULES[name](**parameters)


def _check_same(said: dict[str, Any], rebuilt: dict[str, Any], name: str) -> None:
    for key in {**said, **rebuilt}:
        if said.get(key) != rebuilt.get(key):
            raise ResultsError(
                f"expected the rule of defence {name!r} with {key} {said.get(key)!r}, "
                f"got {rebuilt.get(key)!r} when it was rebuilt"
            )
