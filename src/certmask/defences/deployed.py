"""A defended classifier: model, cover and rule in one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from certmask.certificate import Certificate, Guarantee
from certmask.classifier import Classifier, Colour, checked_images
from certmask.covers import Cover
from certmask.defences.masked import MaskedDefence, Outcome, examine
from certmask.engine import Engine
from certmask.errors import CertmaskError
from certmask.rules import JuryRecovery, Rule


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


class Defence:
    """``shield(images)`` answers; ``shield.certify(images, labels)`` proves, for any patch the cover was made for.

    The certificate holds for this very object: same weights, precision, fill colour, masks and preprocessing.
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
        rule, cover = self.defence.rule, self.defence.cover
        certificates = tuple(
            rule.certificate(cover, label, bool(outcome.certified), self.engine.describe())
            for label, outcome in zip(truth.tolist(), outcomes, strict=True)
        )
        return Proof(certificates, _answer(outcomes), truth, rule.guarantee)

    def _examine(self, images: Tensor, labels: list[int] | None) -> list[Outcome]:
        images = checked_images(images, self.classifier.size)
        with self._one_at_a_time:
            findings = sorted(examine(self.engine, images, labels, [self.defence]), key=lambda f: f.number)
        return [finding.value[0] for finding in findings]


def _answer(outcomes: Sequence[Outcome]) -> Answer:
    return Answer(
        torch.tensor([o.label for o in outcomes], dtype=torch.long),
        torch.tensor([o.alert for o in outcomes], dtype=torch.bool),
        torch.tensor([o.passes for o in outcomes], dtype=torch.long),
    )
