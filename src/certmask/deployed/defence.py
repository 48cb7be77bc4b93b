"""A defended classifier: model, cover and rule in one object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from certmask.certificate import Certificate, Guarantee
from certmask.certification import certified_rows, run_header
from certmask.classifier import Classifier
from certmask.covers import Cover
from certmask.data import pictures
from certmask.defences import Explanation, LocalDefence, MaskedDefence, Outcome, RuledDefence, examine, explain
from certmask.deployed.evaluation import Evaluation, classifier_of, saved_run
from certmask.deployed.local import local_fields, local_name, local_rule
from certmask.deployed.saved import read_defence, write_defence
from certmask.deployed.tokens import cover_for, named
from certmask.engine import Engine
from certmask.engine.premises import check_company
from certmask.errors import CertmaskError
from certmask.evidence import EvidenceRule
from certmask.evidence.registry import is_local
from certmask.function import check_behaviour
from certmask.images import Colour, checked_images, fill_colour
from certmask.results.file import Row
from certmask.rules import Rule
from certmask.rules.registry import rule_of
from certmask.threat import Size, Threat, checked_threat
from certmask.zoo import load_classifier

Images = Tensor | npt.NDArray[Any]
Labels = Tensor | npt.NDArray[Any] | Sequence[int]


@dataclass(frozen=True)
class Answer:
    """What the defence says about a batch: classes, alerts, and passes spent per image.

    An image about which the model gives no numbers at all has the class -1, and an alert.
    """

    labels: Tensor
    alerts: Tensor
    passes: Tensor

    def __repr__(self) -> str:
        told = f"labels={self.labels.tolist()}, alerts={self.alerts.tolist()}, passes={self.passes.tolist()}"
        return f"Answer({told if len(told) <= 200 else f'{len(self.labels)} images, {int(self.alerts.sum())} alerts'})"


@dataclass(frozen=True)
class Proof:
    """What was proved about labelled clean images; figures of a kind that the rule does not give are None.

    ``header`` and ``rows`` are what a results file of ``certmask certify`` says about them.
    """

    certificates: tuple[Certificate, ...]
    answer: Answer
    labels: Tensor
    guarantee: Guarantee
    header: Row = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)

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
    def certified_and_quiet(self) -> float | None:
        """Share with certified detection that is answered rightly and raises no alert while clean."""
        if self.guarantee is not Guarantee.DETECTION:
            return None
        right = (self.answer.labels == self.labels) & ~self.answer.alerts
        proved = torch.tensor([certificate.holds for certificate in self.certificates], device=right.device)
        return (proved & right).float().mean().item()

    @property
    def published_test(self) -> float | None:
        """Share that passes the published test; it guarantees nothing against an adaptive attacker."""
        return self._share(Guarantee.PUBLISHED)

    def save(self, path: str | Path) -> Evaluation:
        """Write a results file, as ``certmask certify`` does, or continue the one that is there; return all of it."""
        return saved_run(Path(path), self.header, self.rows)

    def _share(self, guarantee: Guarantee) -> float | None:
        if guarantee is not self.guarantee:
            return None
        return sum(c.holds for c in self.certificates) / len(self.certificates)

    def __repr__(self) -> str:
        holds = f"{sum(c.holds for c in self.certificates)} certified ({self.guarantee.promise})"
        return f"Proof({len(self.certificates)} images, {100 * self.clean_accuracy:.1f} % clean accuracy, {holds})"


class Defence:
    """``shield(images)`` answers; ``shield.certify(images, labels)`` proves; ``shield.explain(images)`` says why.

    The certificate holds for this very object: same weights, precision, fill colour, masks and preprocessing. It can
    be copied, pickled, and kept in a file: ``shield.save(path)``, ``Defence.load(path, model)``.

    model: an ``nn.Module`` or callable that maps images to logits, a ``Classifier``, or what ``load_classifier`` knows
        by name or reads: a checkpoint with a card, an ONNX file, a Hugging Face folder
    cover: the masks, made for a threat and for the size of the model's input; or the patch alone, such as ``32``: then
        the masks that suit the rule; or a whole defence without a model, such as ``load_defence`` reads; or a rule on
        the local evidence of a network with a small receptive field, such as ``RobustMasking(32)``
    rule: how votes become an answer, a rule or its name on the command line; ``JuryRecovery()`` if none is given
    fill: the colour of the masks, three numbers in [0, 1] or one for a grey; the classifier's own if none is given
    progress: called with the number of passes after every batch
    Everything else (``mean``, ``std``, ``device``, ``precision``, …) goes to ``Classifier``.
    """

    def __init__(
        self,
        model: Classifier | nn.Module | Callable[[Tensor], Tensor] | str | Path,
        cover: Cover | RuledDefence | EvidenceRule | Threat | Size | int,
        rule: Rule | str | None = None,
        *,
        fill: Colour | float | None = None,
        progress: Callable[[int], None] | None = None,
        **classifier: Any,
    ) -> None:
        by_name, ready = isinstance(model, (str, Path)), isinstance(model, Classifier)
        known = inspect.signature(load_classifier if by_name else Classifier).parameters
        unknown = [name for name in classifier if name not in known]
        if unknown and not ready:
            taker = "load_classifier" if by_name else "a Classifier"
            raise CertmaskError(f"expected options of {taker}, got {', '.join(unknown)}")
        if isinstance(cover, (RuledDefence, EvidenceRule)) and rule is not None:
            raise CertmaskError(f"expected no rule beside a whole defence, which has one, got {rule!r}")
        if isinstance(cover, (Cover, RuledDefence)) and not (by_name or ready):
            classifier.setdefault("size", cover.image)
        if isinstance(rule, str) and is_local(rule):
            cover = local_rule(rule, cover)
        self.classifier = classifier_of(model, classifier, isinstance(cover, (LocalDefence, EvidenceRule)))
        self.defence = _ruled(self.classifier, cover, rule)
        self.engine = Engine(self.classifier, self.defence.covers, fill=fill_colour(fill), progress=progress)
        self._one_at_a_time = Lock()

    def __call__(self, images: Images) -> Answer:
        """Answer a batch ``[n, 3, height, width]`` in [0, 1], clean or attacked; an array of numpy's will do."""
        images = checked_images(images, self.classifier.size)
        with self._one_at_a_time:
            findings = sorted(examine(self.engine, images, None, [self.defence]), key=lambda f: f.number)
        return _answer([finding.value[0] for finding in findings])

    def certify(self, images: Images, labels: Labels, names: Sequence[str] | None = None) -> Proof:
        """Try to prove the rule's guarantee for each clean image and its true label.

        ``names`` are what a results file calls the images; without them, their numbers.
        """
        images = checked_images(images, self.classifier.size)
        truth = checked_labels(labels, len(images))
        dataset = pictures(images, truth, names)
        with self._one_at_a_time:
            check_company(self.engine, list(images[:2]))
            found = {row["image"]: row for row in certified_rows(self.engine, dataset, [self.defence])}
        rows = tuple(found[sample.name] for sample in dataset.samples)
        outcomes = [Outcome(**row["defences"][self.defence.name]) for row in rows]
        functions = {batch: self.engine.describe(batch) for batch in {row["batch"] for row in rows}}
        certificates = tuple(
            self.defence.certificate(row["label"], bool(outcome.certified), functions[row["batch"]], outcome.side)
            for row, outcome in zip(rows, outcomes, strict=True)
        )
        header = run_header(self.engine, dataset, [self.defence])
        return Proof(certificates, _answer(outcomes), torch.tensor(truth), self.defence.guarantee, header, rows)

    def explain(self, images: Images) -> list[Explanation]:
        """Answer, try to certify the answer, and say who voted what and which places claim what."""
        images = checked_images(images, self.classifier.size)
        with self._one_at_a_time:
            return explain(self.engine, images, self.defence)

    def save(self, path: str | Path) -> None:
        """Write weights, preprocessing, masks and rule into one ``.safetensors`` file."""
        write_defence(Path(path), self.engine, self.defence)

    @classmethod
    def load(
        cls, path: str | Path, model: nn.Module | None = None, *, rule: Rule | None = None, device: str = "cpu"
    ) -> Defence:
        """The defence that ``save`` wrote; an error that names the first thing that differs.

        model: a network of the same architecture, whose weights do not matter; None takes the one that certmask or
            timm has under the saved name
        rule: where it is a rule of your own, the same one again
        device: where it is to compute
        """
        classifier, defence, fill = read_defence(Path(path), model, rule, device)
        return cls(classifier, defence, fill=fill)

    def __getstate__(self) -> dict[str, Any]:
        """What makes it up, with its fingerprint, which the copy must have; nobody listens to the copy's progress."""
        fingerprint = self.engine.fingerprint().describe()
        told = {"fill": self.engine.fill, "batch": self.engine.batch, "said": fingerprint}
        return {"classifier": self.classifier, "defence": self.defence, **told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.classifier, self.defence = state["classifier"], state["defence"]
        self.engine = Engine(self.classifier, self.defence.covers, fill=state["fill"])
        self.engine.forward.batch = state["batch"]
        self._one_at_a_time = Lock()
        check_behaviour({"model": {"fingerprint": state["said"]}}, self.engine, [self.defence.rule], "the original")

    def __repr__(self) -> str:
        looks = ", ".join(map(repr, self.defence.covers)) or self.defence.looks
        return f"Defence({self.classifier!r}, {looks}, {self.defence.rule!r})"


def _ruled(
    classifier: Classifier,
    cover: Cover | RuledDefence | EvidenceRule | Threat | Size | int,
    rule: Rule | str | None,
) -> RuledDefence:
    """A whole defence as it is; a rule with the classifier's cells, its cover, or masks that suit it."""
    if isinstance(cover, RuledDefence):
        return cover
    if isinstance(cover, EvidenceRule):
        return LocalDefence(cover, local_fields(classifier), local_name(cover))
    own = rule_of(rule)
    if not isinstance(cover, Cover):
        cover = cover_for(classifier, checked_threat(cover), own if rule is None else rule)
    return MaskedDefence(cover, own, named(own, cover))


def checked_labels(labels: Any, count: int) -> list[int]:
    """One whole number per image."""
    try:
        truth = torch.as_tensor(labels).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise CertmaskError(f"expected one whole-number label per image, got {labels!r}"[:200]) from None
    if truth.dtype == torch.bool or truth.is_floating_point() or truth.is_complex():
        raise CertmaskError(f"expected whole numbers as labels, got {truth.dtype}")
    if truth.shape != (count,) or not count:
        raise CertmaskError(f"expected one whole-number label per image, got {list(truth.shape)} for {count} images")
    return [int(label) for label in truth.tolist()]


def _answer(outcomes: Sequence[Outcome]) -> Answer:
    return Answer(
        torch.tensor([o.label for o in outcomes], dtype=torch.long),
        torch.tensor([o.alert for o in outcomes], dtype=torch.bool),
        torch.tensor([o.passes for o in outcomes], dtype=torch.long),
    )
