"""Why a defence answers as it does, picture by picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from certmask.certificate import BASES, NO_CLASS, Certificate, Place, Weakest, class_name
from certmask.defences.masked import MaskedDefence
from certmask.defences.protocol import asked_marks, noted, proved_sides
from certmask.defences.rebuilt import RuledDefence
from certmask.engine import Engine
from certmask.engine.premises import check_company, check_unchanged
from certmask.passes import Ask
from certmask.rules.rule import Asking
from certmask.votes import Margin, Votes, VoteStore

Vote = tuple[int, float]
"""A class and its probability."""


@dataclass(frozen=True)
class Explanation:
    """Why a defence answered as it did about one picture.

    ``basis`` is what the answer rests on, for rules that can tell. ``votes`` has the class and the confidence of every
    single mask, no class where it was not asked. ``places`` has what is claimed at every place where the patch may be,
    how sure that is and which level settled it, ``hypotheses`` the masks that may speak for it; ``duels`` counts the
    passes with more masks than patches, which decide between them. ``certificate`` is about the answer, should the
    picture be clean, and ``weakest`` is where its proof is weakest, or where it failed. A defence without masks has no
    ``votes``, ``places`` or ``hypotheses``.
    """

    label: int
    alert: bool
    passes: int
    certificate: Certificate
    votes: tuple[Vote, ...]
    hypotheses: tuple[tuple[int, ...], ...]
    places: tuple[Place, ...]
    duels: int
    basis: str = ""
    weakest: Weakest | None = None

    @property
    def claims(self) -> tuple[int, ...]:
        """The class that each place claims."""
        return tuple(place.claim for place in self.places)

    def why(self, names: Sequence[str] | None = None) -> str:
        """The reason in one sentence."""
        if not self.places:
            return "one look at the picture, piece by piece"
        counts = Counter(self.claims).most_common()
        said = [f"{n} {'claims' if n == 1 else 'claim'} {class_name(c, names or ())}" for c, n in counts]
        parts = [f"of {len(self.places)} places {', '.join(said)}"]
        if len(said) == 1:
            parts = ["its only place says so" if len(self.places) == 1 else f"all {len(self.places)} places agree"]
        closer = sum(place.level > 0 for place in self.places)
        if closer:
            parts.append(f"{closer:,} {'was' if closer == 1 else 'were'} looked at closer")
        if len(said) > 1 and self.duels:
            passes = "1 pass" if self.duels == 1 else f"{self.duels:,} passes"
            patches = self.certificate.threat.get("count", 1)
            masks = "two masks" if patches == 1 else f"more than {patches} masks"
            parts.append(f"{passes} with {masks} decided between them")
        if len(said) > 1 and self.basis:
            parts.append(f"the answer is {self.basis} ({BASES[self.basis]})")
        return "; ".join(parts)


def explain(engine: Engine, images: Iterable[Tensor], defence: RuledDefence) -> list[Explanation]:
    """Why a defence answers as it does, picture by picture, clean or attacked."""

    def program(_: list[int], store: VoteStore) -> Asking[list[Explanation]]:
        asked = list[Ask]()
        decisions = yield from noted(defence.deciding(engine, store), asked)
        labels = np.array([decision.label for decision in decisions])
        marks = asked_marks(store, asked)
        cost = engine.classifier.cost
        of_two = marks & (store.passes.sizes > defence.threat.count)
        passes, duels = cost * marks.sum(axis=1), cost * of_two.sum(axis=1)
        proofs = yield from defence.proving(engine, store, np.maximum(labels, 0))  # where all is silent, none holds
        seen = [Seen()] * len(labels)
        if isinstance(defence, MaskedDefence):
            seen = yield from _seen(engine.votes(defence.cover, store), defence)
        function, sides = engine.describe(), proved_sides(defence.threat, proofs)
        return [
            Explanation(
                decision.label,
                decision.alert,
                int(passes[n]),
                defence.certificate(decision.label, bool(proofs.holds[n]), function, sides[n]),
                *seen[n],
                int(duels[n]),
                decision.basis,
                proofs.weakest[n],
            )
            for n, decision in enumerate(decisions)
        ]

    pictures = list(images)
    check_company(engine, pictures[:2])
    findings = sorted(engine.run(pictures, program), key=lambda finding: finding.number)
    check_unchanged(engine, Margin.of(defence.rule.margin))
    return [finding.value for finding in findings]


class Seen(NamedTuple):
    """What a defence saw through its masks: the votes of single ones, who may speak for each place, what is claimed."""

    votes: tuple[Vote, ...] = ()
    hypotheses: tuple[tuple[int, ...], ...] = ()
    places: tuple[Place, ...] = ()


def _seen(votes: Votes, defence: MaskedDefence) -> Asking[list[Seen]]:
    places = yield from defence.rule.places(votes)
    hypotheses = tuple(defence.rule.hypotheses(defence.cover))
    return [Seen(cast, hypotheses, own) for cast, own in zip(_single_votes(votes), places, strict=True)]


def _single_votes(votes: Votes) -> list[tuple[Vote, ...]]:
    """What every mask alone said about each picture, no class where it was not asked."""
    slots = votes.store.slots(votes.everyone[:, None], votes.ballot.singles[None])
    heads, cast = votes.heads_at(slots), slots >= 0
    labels, confidence = np.where(cast, heads.labels, NO_CLASS), np.where(cast, heads.confidence, 0.0)
    return [tuple(zip(*said, strict=True)) for said in zip(labels.tolist(), confidence.tolist(), strict=True)]
