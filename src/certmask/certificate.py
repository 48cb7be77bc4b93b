"""What was proved, in a form that cannot lose its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from math import inf
from numbers import Real
from typing import Any

from certmask.errors import CertmaskError
from certmask.threat import Box, Size, threat_from

NO_CLASS = -1
"""What a vote names that gave no numbers, and what is answered about a picture all of whose votes gave none."""


def checked_margin(margin: float) -> float:
    """A margin of at least 0, and not infinite."""
    if isinstance(margin, bool) or not isinstance(margin, Real) or not 0 <= margin < inf:
        raise CertmaskError(f"expected a margin of at least 0, got {margin!r}")
    return float(margin)


def class_name(label: int, names: Sequence[str] = ()) -> str:
    """A class in words: its name, where it is known."""
    if label == NO_CLASS:
        return "no class"
    return names[label] if label < len(names) else f"class {label}"


def supposing(name: str, finding: str) -> str:
    """What a finding about an answer is worth: nobody knows of a photo in use whether it is clean."""
    return f"if this photo is clean and shows {name}: {finding}"


class Guarantee(Enum):
    """What a rule promises about a certified image; detection and recovery are never added up."""

    RECOVERY = "recovery"
    DETECTION = "detection"
    PUBLISHED = "published test"
    NONE = "none"

    @property
    def promise(self) -> str:
        """What it is worth, in a word or two for a table."""
        return "none against an adaptive attacker" if self is Guarantee.PUBLISHED else self.value

    @property
    def sentence(self) -> str:
        """The promise in words."""
        return _SENTENCES[self]

    @property
    def proved(self) -> bool:
        """Whether certificates of this kind are theorems, so that a broken one is a fault in the program."""
        return self in (Guarantee.RECOVERY, Guarantee.DETECTION)

    def broken_by(self, decision: Decision, label: int) -> bool:
        """Whether a decision about an attacked picture is not what was promised for its true label."""
        if self is Guarantee.DETECTION:
            return decision.label != label and not decision.alert
        if self is Guarantee.RECOVERY:
            return decision.label != label or decision.alert
        return decision.label != label


_SENTENCES = {
    Guarantee.RECOVERY: "the true class is answered, whatever the patch shows and wherever it is",
    Guarantee.DETECTION: "the true class is answered or an alert raised, whatever the patch shows and wherever it is",
    Guarantee.PUBLISHED: "published test: no guarantee against an adaptive attacker",
    Guarantee.NONE: "no guarantee",
}


BASES = {
    "unanimous": "every place claims the same class",
    "unbeaten": "the claim of a place that no other beats",
    "bare": "no place that claims another class is unbeaten: the picture as it came",
    "majority": "no place that claims another class is unbeaten: what most places claim",
}
"""What an answer may rest on, and what that means. A certified picture without a patch is unanimous, unless patches are
of unknown size: places of other sizes than the certified one may claim another class."""


@dataclass(frozen=True)
class Decision:
    """A rule's answer about one image: a class, and whether it warns of a patch; ``basis`` is what it rests on."""

    label: int
    alert: bool = False
    basis: str = field(default="", compare=False)


@dataclass(frozen=True)
class Place:
    """Where a patch may be, or several at once: what is claimed by the votes that hide them there.

    Each of the ``boxes`` has a patch's top left corners (a district's first one), ``masks`` are those whose votes
    settled the ``claim``, at ``level``, counted from 0; ``lead`` is by how much the claim leads, on average over these
    votes. ``patch`` is the number of the patch among the cover's, where these differ in size.
    """

    boxes: tuple[Box, ...]
    masks: tuple[int, ...]
    claim: int
    lead: float
    level: int = 0
    patch: int = 0


@dataclass(frozen=True)
class Weakest:
    """Where a proof is weakest, or failed: one place or a pair of them, and by how much its label leads there.

    Where there are several patches, it is two hypotheses, and so more places. ``places`` are boxes of a patch's top
    left corners, ``sizes`` the patches' sizes where a cover has several, ``level`` is the one that settled it, counted
    from 0.
    """

    places: tuple[Box, ...]
    lead: float
    level: int
    sizes: tuple[Size, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the proof went well there: where one has failed, the lead is not positive."""
        return self.lead > 0

    def describe(self) -> dict[str, Any]:
        """As results files record it."""
        sizes = {"sizes": [list(size) for size in self.sizes]} if self.sizes else {}
        return {
            "places": [list(place) for place in self.places], "lead": round(self.lead, 6), "level": self.level, **sizes,
        }  # fmt: skip


@dataclass(frozen=True)
class Certificate:
    """Whether a guarantee holds for one image, with the threat model and everything the proof rests on.

    ``function`` describes the classifier (weights, precision, preprocessing, batch shape) and the fill colour;
    it is None where votes came from elsewhere. ``cover`` is None for a defence without masks.
    """

    holds: bool
    guarantee: Guarantee
    label: int
    threat: dict[str, Any]
    image: Size
    rule: dict[str, Any]
    cover: dict[str, Any] | None = None
    function: dict[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return self.against(threat_from(self.threat).on(self.image))

    def against(self, threat: str) -> str:
        """The finding in words about the threat, or about one that it contains."""
        if not self.holds:
            return f"not certified against {threat}"
        if self.guarantee is Guarantee.PUBLISHED:
            return f"passes the published test for {threat}: no guarantee against an adaptive attacker"
        return f"certified {self.guarantee.value} against {threat}: {self.guarantee.sentence}"

    def __repr__(self) -> str:
        return f"Certificate(label {self.label}: {self.sentence})"

    def describe(self) -> dict[str, Any]:
        """The certificate as plain data."""
        return {**asdict(self), "guarantee": self.guarantee.value, "sentence": self.sentence}
