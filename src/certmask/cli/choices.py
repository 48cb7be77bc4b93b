"""What the user chose on the command line, turned into a classifier, a cover and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from certmask.backends import default_backend
from certmask.backends.devices import present_device
from certmask.classifier import Classifier
from certmask.cli.sizes import make_cover, make_patch, parse_size
from certmask.covers import Cover, default_cover
from certmask.defences.masked import MaskedDefence
from certmask.errors import CertmaskError
from certmask.rules import (
    AGGREGATES,
    Aggregate,
    JuryDetection,
    JuryRecovery,
    MinorityReports,
    PatchCleanser,
    Published,
    Rule,
    Undefended,
)
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
        if self.patch is not None:
            parse_size(self.patch, "patch")
        if self.fold is not None:
            parse_size(self.fold, "fold")
        if len(set(self.rules)) != len(self.rules):
            raise CertmaskError(f"expected each rule once, got {', '.join(self.rules)}")
        for name in self.rules:
            self._rule(name, self.fixed_margin() or 0.0)

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
        patch = make_patch(self.patch, classifier.size)
        return [
            default_cover(classifier.size, patch)
            if rule == "undefended"
            else make_cover(classifier.size, patch, self.mask, self.tiling, self.fold, rule)
            for rule in self.rules
        ]

    def defences(self, covers: Sequence[Cover], margin: float) -> list[MaskedDefence]:
        """One defence per chosen rule, named after the rule."""
        named = zip(self.rules, covers, strict=True)
        return [MaskedDefence(cover, self._rule(name, margin), name) for name, cover in named]

    def _rule(self, name: str, margin: float) -> Rule:
        if name == "undefended":
            return Undefended()
        if name == "published":
            return Published(margin)
        if name == "jury-detection":
            return JuryDetection(self._aggregate(), margin)
        if name == "jury-recovery":
            return JuryRecovery(self.pairs, self._aggregate(), margin)
        if name == "minority-reports":
            return MinorityReports(self.threshold, margin)
        if name in ("patchcleanser", "patchcleanser-challenger"):
            return PatchCleanser(name.endswith("challenger"), margin)
        raise CertmaskError(
            "expected rule to be jury-recovery, jury-detection, patchcleanser, patchcleanser-challenger, "
            f"minority-reports, published or undefended, got {name!r}"
        )

    def fixed_margin(self) -> float | None:
        """The margin as a number, or None where it is to be measured."""
        if self.margin == "auto":
            if self._aggregate().name == "mean log-probability":
                raise CertmaskError("expected a number as margin for mean-log-probability, got auto (in probabilities)")
            return None
        try:
            return float(self.margin)
        except ValueError:
            raise CertmaskError(f"expected margin to be a number or auto, got {self.margin!r}") from None

    def _aggregate(self) -> Aggregate:
        name = self.aggregate.replace("-", " ").replace("mean log ", "mean log-")
        if name not in AGGREGATES:
            known = ", ".join(a.replace(" ", "-") for a in AGGREGATES)
            raise CertmaskError(f"expected aggregate to be one of {known}, got {self.aggregate!r}")
        return AGGREGATES[name]()


def pick_backend(backend: str, device: str) -> str:
    """``auto`` takes what suits the device best."""
    return default_backend(device) if backend == "auto" else backend


def pick_device(device: str) -> str:
    """``auto`` takes the GPU where there is one."""
    return str(present_device(device))
