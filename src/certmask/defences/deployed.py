"""A defended classifier: model, cover and rule in one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certmask.certificate import Certificate, Guarantee
from certmask.classifier import Classifier, Colour, checked_images
from certmask.covers import Cover
from certmask.defences.masked import MaskedDefence
from certmask.defences.protocol import Outcome, asked_marks, examine, noted
from certmask.engine import Engine
from certmask.errors import CertmaskError
from certmask.passes import Ask
from certmask.rules import JuryRecovery, Rule
from certmask.rules.rule import Asking
from certmask.votes import VoteStore


@dataclass(frozen=True)
class Answer:
    """What the defence says about a batch: classes, alerts, and passes spent per image."""

    labels: Tensor
    alerts: Tensor
    passes: Tensor


@dataclass(frozen=True)
class Proof:
    """What was proved about labelled clean images; figures of a kind that the rule does not give are None."""

    certificates: tuple[Certificate, ...]
    answer: Answer
    labels: Tensor
    guarantee: Guarantee

    @property
    def clean_accuracy(self) -> float:
        """Share of clean images answered rightly and without an alert."""
        right = (self.answer.labels == self.labels) & ~self.answer.alerts
        return right.float().mean().item()

    @property
    def false_alerts(self) -> float:
        """Share of clean images that raise an alert."""
        return self.answer.alerts.float().mean().item()

    @property
    def certified_recovery(self) -> float | None:
        return self._share(Guarantee.RECOVERY)

    @property
    def certified_detection(self) -> float | None:
        return self._share(Guarantee.DETECTION)

    @property
    def published_test(self) -> float | None:
        """Share that passes the published test; it guarantees nothing against an adaptive attacker."""
        return self._share(Guarantee.PUBLISHED)

    def _share(self, guarantee: Guarantee) -> float | None:
        if guarantee is not self.guarantee:
            return None
        return sum(c.holds for c in self.certificates) / len(self.certificates)


@dataclass(frozen=True)
class Explanation:
    """Why a defence answered as it did about one picture.

    ``votes`` has the class and the confidence of every single mask; ``claims`` the class that each hypothesis about the
    patch's place claims, ``hypotheses`` the masks that speak for it; ``duels`` counts the two-mask passes that were
    asked for to decide between them. ``certificate`` is about the answer, should the picture be clean.
    """

    label: int
    alert: bool
    passes: int
    certificate: Certificate
    votes: tuple[tuple[int, float], ...]
    hypotheses: tuple[tuple[int, ...], ...]
    claims: tuple[int, ...]
    duels: int

    def why(self, names: Sequence[str] | None = None) -> str:
        """The reason in one sentence."""
        counts = Counter(self.claims).most_common()
        said = [f"{n} {'claims' if n == 1 else 'claim'} {names[c] if names else f'class {c}'}" for c, n in counts]
        if len(said) == 1:
            return f"all {len(self.claims)} places agree"
        duels = f"; {self.duels} passes with two masks decided between them" if self.duels else ""
        return f"of {len(self.claims)} places {', '.join(said)}{duels}"


class Defence:
    """``shield(images)`` answers; ``shield.certify(images, labels)`` proves; ``shield.explain(images)`` says why.

    The certificate holds for this very object: same weights, precision, fill colour, masks and preprocessing.

    model: an ``nn.Module`` or callable that maps images to logits, or a ``Classifier``
    cover: the masks, made for a threat and for the size of the model's input
    rule: how votes become an answer; ``JuryRecovery()`` if none is given
    fill: the colour of the masks, three numbers in [0, 1]; the classifier's mean if none is given
    progress: called with the number of passes after every batch
    Everything else (``mean``, ``std``, ``device``, ``precision``, …) goes to ``Classifier``.
    """

    def __init__(
        self,
        model: Classifier | nn.Module | Callable[[Tensor], Tensor],
        cover: Cover,
        rule: Rule | None = None,
        *,
        fill: Colour | None = None,
        progress: Callable[[int], None] | None = None,
        **classifier: Any,
    ) -> None:
        if isinstance(model, Classifier) and classifier:
            raise CertmaskError(f"expected no further options beside a Classifier, got {', '.join(classifier)}")
        self.classifier = model if isinstance(model, Classifier) else Classifier(model, cover.image, **classifier)
        self.defence = MaskedDefence(cover, rule or JuryRecovery())
        self.engine = Engine(self.classifier, [cover], fill=fill, progress=progress)
        self._one_at_a_time = Lock()

    def __call__(self, images: Tensor) -> Answer:
        """Answer a batch ``[n, 3, height, width]`` in [0, 1], clean or attacked."""
        return _answer(self._examine(images, None))

    def certify(self, images: Tensor, labels: Tensor | Sequence[int]) -> Proof:
        """Try to prove the rule's guarantee for each clean image and its true label."""
        truth = torch.as_tensor(labels).cpu()
        if truth.shape != (len(images),) or truth.is_floating_point() or not len(images):
            raise CertmaskError(
                f"expected one whole-number label per image, got {truth.shape} for {len(images)} images"
            )
        outcomes = self._examine(images, truth.tolist())
        function = self.engine.describe()
        certificates = tuple(
            self.defence.certificate(label, bool(outcome.certified), function)
            for label, outcome in zip(truth.tolist(), outcomes, strict=True)
        )
        return Proof(certificates, _answer(outcomes), truth, self.defence.guarantee)

    def explain(self, images: Tensor) -> list[Explanation]:
        """Answer, try to certify the answer, and say who voted what and which places claim what."""
        images = checked_images(images, self.classifier.size)
        with self._one_at_a_time:
            return explain(self.engine, images, self.defence)

    def _examine(self, images: Tensor, labels: list[int] | None) -> list[Outcome]:
        images = checked_images(images, self.classifier.size)
        with self._one_at_a_time:
            findings = sorted(examine(self.engine, images, labels, [self.defence]), key=lambda f: f.number)
        return [finding.value[0] for finding in findings]


def explain(engine: Engine, images: Iterable[Tensor], defence: MaskedDefence) -> list[Explanation]:
    """Why a defence answers as it does, picture by picture, clean or attacked."""

    def program(_: list[int], store: VoteStore) -> Asking[list[Explanation]]:
        votes, asked = engine.votes(defence.cover, store), list[Ask]()
        decisions = yield from noted(defence.deciding(engine, store), asked)
        labels = np.array([decision.label for decision in decisions])
        marks = asked_marks(store, asked)
        duels = (marks & (store.passes.sizes > 1)).sum(axis=1)
        holds = yield from defence.certifying(engine, store, labels)
        claims = yield from defence.rule.claims(votes)
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        return [
            Explanation(
                decision.label,
                decision.alert,
                int(marks[n].sum()),
                defence.certificate(decision.label, bool(holds[n]), engine.describe()),
                tuple(zip(heads.labels[n].tolist(), heads.confidence[n].tolist(), strict=True)),
                tuple(defence.rule.hypotheses(defence.cover)),
                tuple(claims[n].tolist()),
                int(duels[n]),
            )
            for n, decision in enumerate(decisions)
        ]

    findings = sorted(engine.run(images, program), key=lambda finding: finding.number)
    return [finding.value for finding in findings]


def _answer(outcomes: Sequence[Outcome]) -> Answer:
    return Answer(
        torch.tensor([o.label for o in outcomes], dtype=torch.long),
        torch.tensor([o.alert for o in outcomes], dtype=torch.bool),
        torch.tensor([o.passes for o in outcomes], dtype=torch.long),
    )
