"""One rule against a patch in the stored photo: a defence for each size that it has in the model's input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from certmask.certificate import Guarantee
from certmask.covers import Cover
from certmask.defences.local import LocalDefence
from certmask.defences.masked import MaskedDefence
from certmask.defences.rebuilt import RuledDefence, defence_from
from certmask.errors import CertmaskError, ResultsError
from certmask.evidence import EvidenceRule
from certmask.evidence.averaging import Averaging
from certmask.rules import Rule, Undefended
from certmask.threat import PhotoPatch, Size, Threat, threat_from


@dataclass(frozen=True)
class PhotoDefence:
    """Defences of one rule and one name, against patches in the input of several sizes, smallest first.

    A photo is looked at by the one that is made for what the patch reaches in it, and its certificate speaks of that.
    """

    threat: PhotoPatch
    classes: tuple[RuledDefence, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.classes:
            raise CertmaskError("expected a photo in which the patch leaves a part of the input alone, got none")
        first, told = self.classes[0], [(one.image, one.parameters()["rule"]) for one in self.classes]
        if any(one != told[0] for one in told) or len({one.threat for one in self.classes}) < len(told):
            raise CertmaskError(f"expected one rule against patches of several sizes, got others beside {first.name!r}")

    @property
    def rule(self) -> Rule | EvidenceRule:
        return self.classes[0].rule

    @property
    def guarantee(self) -> Guarantee:
        return self.classes[0].guarantee

    @property
    def image(self) -> Size:
        return self.classes[0].image

    @property
    def covers(self) -> Sequence[Cover]:
        return [cover for one in self.classes for cover in one.covers]

    @property
    def looks(self) -> str:
        """How it looks at pictures, in a line per class."""
        return "\n    ".join(one.looks for one in self.classes)

    def of(self, threat: Threat) -> RuledDefence | None:
        """The defence of photos in which the patch reaches so much; None where there is none."""
        return next((one for one in self.classes if one.threat == threat), None)

    @property
    def unproved(self) -> RuledDefence:
        """What answers about photos that it has no defence for: the network alone."""
        last = self.classes[-1]
        if isinstance(last, LocalDefence):
            return LocalDefence(Averaging(last.threat), last.fields, self.name)
        return MaskedDefence(last.cover, Undefended(), self.name)

    def parameters(self) -> dict[str, Any]:
        """What the guarantees rest on, as plain data."""
        told = [one.parameters() for one in self.classes]
        own = [{"threat": one.threat.describe(), **_own(of)} for one, of in zip(self.classes, told, strict=True)]
        return {**{key: value for key, value in told[0].items() if key != "cover"}, "classes": own}

    def describe(self) -> dict[str, Any]:
        """As a results file records it."""
        return {"name": self.name, "threat": self.threat.describe(), "image": list(self.image), **self.parameters()}


def _own(parameters: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if key == "cover"}


def photo_defence_from(description: dict[str, Any]) -> PhotoDefence:
    """The defence that ``PhotoDefence.describe`` described; an error if one of its classes cannot be rebuilt."""
    threat = threat_from(description["threat"])
    if not isinstance(threat, PhotoPatch):
        raise ResultsError(f"expected a patch in the photo as the threat of several classes, got {threat}")
    classes = []
    for described in description["classes"]:
        one = defence_from({**description, **described})
        if one.threat.describe() != described["threat"]:
            raise ResultsError(f"expected masks against {described['threat']}, got some against {one.threat}")
        classes.append(one)
    return PhotoDefence(threat, tuple(classes), description["name"])


def by_photo(threat: PhotoPatch, classes: Iterable[Sequence[RuledDefence]]) -> list[PhotoDefence]:
    """One defence per rule, from the defences of all rules for each class."""
    return [PhotoDefence(threat, own, own[0].name) for own in zip(*classes, strict=True)]
