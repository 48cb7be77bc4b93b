"""What the user chose on the command line, turned into a classifier, a cover and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from certmask.backends import default_backend
from certmask.backends.devices import present_device
from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.cli.sizes import make_patch, optional_size
from certmask.covers import Cover, default_cover
from certmask.covers.default import suited_cover
from certmask.defences import MaskedDefence
from certmask.errors import CertmaskError
from certmask.rules import Rule
from certmask.rules.registry import aggregate_named, listed
from certmask.votes import Margin
from certmask.zoo import load_classifier


@dataclass(frozen=True)
class Choices:
    """Options of ``predict`` and ``certify``."""

    model: str
    weights: Path | None
    patch: str | None
    mask: str | None
    tiling: str
    fold: str | None
    rules: Sequence[str]
    pairs: str
    aggregate: str
    threshold: float
    margin: str
    device: str = "auto"
    precision: str = "auto"
    batch: int | None = None
    backend: str = "torch"

    def on(self, device: str, precision: str, batch: int | None, backend: str) -> Choices:
        return replace(self, device=device, precision=precision, batch=batch, backend=backend)

    def check(self) -> None:
        """An error for an option that can be judged without the model."""
        optional_size(self.patch, "patch")
        optional_size(self.fold, "fold")
        if len(set(self.rules)) != len(self.rules):
            raise CertmaskError(f"expected each rule once, got {', '.join(self.rules)}")
        for name in self.rules:
            self._rule(name, self.fixed_margin() or Margin())

    def classifier(self) -> Classifier:
        self.check()
        device = pick_device(self.device)
        return load_classifier(
            self.model,
            self.weights,
            device=device,
            precision=self.precision,
            batch=self.batch,
            backend=pick_backend(self.backend, device),
        )

    def covers(self, classifier: Classifier) -> list[Cover]:
        """One cover per chosen rule."""
        image, patch = classifier.size, make_patch(self.patch, classifier.size)
        asked = self.tiling, optional_size(self.mask, "mask"), optional_size(self.fold, "fold")
        return [
            default_cover(image, patch)
            if rule == "undefended"
            else suited_cover(image, patch, *asked, many=listed(rule).many)
            for rule in self.rules
        ]

    def defences(self, covers: Sequence[Cover], margin: Margin) -> list[MaskedDefence]:
        """One defence per chosen rule, named after the rule."""
        named = zip(self.rules, covers, strict=True)
        return [MaskedDefence(cover, self._rule(name, margin), name) for name, cover in named]

    def _rule(self, name: str, margin: Margin) -> Rule:
        row = listed(name)
        sure = None if row.rule.guarantee is Guarantee.NONE else margin
        aggregate = aggregate_named(self.aggregate)
        return row.made(sure, pairs=self.pairs, aggregate=aggregate, threshold=self.threshold)

    def fixed_margin(self) -> Margin | None:
        """The margin as a number in each rule's own unit, or None where it is to be measured."""
        if self.margin == "auto":
            return None
        try:
            return Margin(float(self.margin), float(self.margin))
        except ValueError:
            raise CertmaskError(f"expected margin to be a number or auto, got {self.margin!r}") from None


def pick_backend(backend: str, device: str) -> str:
    """``auto`` takes what suits the device best."""
    return default_backend(device) if backend == "auto" else backend


def pick_device(device: str) -> str:
    """``auto`` takes the GPU where there is one."""
    return str(present_device(device))
