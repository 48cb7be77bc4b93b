"""What an experiment is: patches, defences, what the paper reported. Declared once; run and read elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from certmask.covers import TILINGS, Cover
from certmask.defences import MaskedDefence
from certmask.errors import CertmaskError
from certmask.geometry import smallest_mask
from certmask.rules import Rule
from certmask.threat import Patch, Size

PAPER_SIDE = 224
"""Every size in a declaration is in pixels of the paper's 224×224 input."""


def scaled(pixels: int, length: int) -> int:
    """The same part of an input that is ``length`` long, rounded up."""
    return -(-pixels * length // PAPER_SIDE)


@dataclass(frozen=True)
class Threat:
    """A square patch: how the experiment calls it, and its side on a 224×224 input.

    Where a patch plays no part its label is "none"; a cover needs a side all the same.
    """

    label: str
    side: int

    @property
    def number(self) -> str:
        """What a user types to choose it: 2 of "2 %", 30 of "30 px"."""
        return self.label.split()[0]

    def patch(self, image: Size) -> Patch:
        """The patch on another input, rounded up: never a weaker threat."""
        return Patch(scaled(self.side, image[0]), scaled(self.side, image[1]))

    @property
    def slug(self) -> str:
        return f"patch{self.side}"


@dataclass(frozen=True)
class Case:
    """One defence: a rule on a cover whose mask has a side of its own or such that ``per_axis`` masks cover once.

    ``paper`` is the method's name in the paper's table, ``series`` the line of a plot that the case is a point of.
    ``in_logarithms`` marks rules whose margin is not in probabilities: they need one that is given as a number.
    """

    name: str
    series: str
    rule: Callable[..., Rule] = field(repr=False)
    tiling: str
    fold: Size = (1, 1)
    mask: int | None = None
    per_axis: int | None = None
    paper: str = ""
    in_logarithms: bool = False

    def __post_init__(self) -> None:
        if (self.mask is None) == (self.per_axis is None):
            raise CertmaskError(f"expected either mask or per_axis in case {self.name!r}, got both or none")

    def mask_size(self, patch: Patch, image: Size) -> Size:
        """The mask on another input; always larger than the patch, as the paper's formulas ask."""
        if self.mask is not None:
            return max(scaled(self.mask, image[0]), patch.height + 1), max(scaled(self.mask, image[1]), patch.width + 1)
        assert self.per_axis is not None
        return smallest_mask(image, patch, (self.per_axis, self.per_axis))

    def cover(self, threat: Threat, image: Size) -> Cover:
        patch = threat.patch(image)
        return _cover(self.tiling, image, patch, self.mask_size(patch, image), self.fold)

    def defence(self, threat: Threat, image: Size, margin: float = 0.0) -> MaskedDefence:
        return MaskedDefence(self.cover(threat, image), self.rule(margin=margin), self.name)


@lru_cache(maxsize=256)
def _cover(tiling: str, image: Size, patch: Patch, mask: Size, fold: Size) -> Cover:
    if tiling == "patchcleanser":
        return TILINGS[tiling](image, patch, mask=mask)
    return TILINGS[tiling](image, patch, mask, fold)


@dataclass(frozen=True)
class Reported:
    """Figures as the paper prints them, in percent; a sign is "about" or "above" where it gives no exact figure.

    ``model`` is the paper's family (ResNet, ViT, MLP), empty for a method that brings its own network.
    """

    method: str
    model: str
    data: str
    threat: str
    place: str
    clean: float | None = None
    robust: float | None = None
    clean_sign: str = ""
    robust_sign: str = ""


@dataclass(frozen=True)
class Comparison:
    """A question that is answered on the same images: how many does ``first`` certify that ``second`` does not?"""

    question: str
    first: str
    second: str
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """What is drawn: one panel per ``(x, measure)``; with ``front`` a line through what nothing cheaper beats."""

    panels: tuple[tuple[str, str], ...]
    front: bool = False

    @classmethod
    def against(cls, x: str, *measures: str) -> Plot:
        """Several measures against one thing: mask, patch, k, or the passes to answer or to prove."""
        return cls(tuple((x, measure) for measure in measures))


@dataclass(frozen=True)
class Experiment:
    """One table or figure: which patches on which data, which defences, and what the paper says about them."""

    name: str
    title: str
    place: str
    threats: Mapping[str, tuple[Threat, ...]]
    cases: Callable[[Threat], tuple[Case, ...]] = field(repr=False)
    reported: tuple[Reported, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    plot: Plot | None = None
    notes: tuple[str, ...] = ()

    def threats_on(self, data: str) -> tuple[Threat, ...]:
        """The patches for a data set; those of ImageNet where it is not one of the paper's."""
        return self.threats.get(data_key(data), self.threats["imagenet"])

    def threat(self, slug: str) -> Threat | None:
        """The patch that a file name speaks of."""
        return next((t for threats in self.threats.values() for t in threats if t.slug == slug), None)

    def reported_for(self, case: Case, model: str, data: str, threat: Threat) -> Reported | None:
        """What the paper says about this method, this family of models, this data set and patch."""
        wanted = (case.paper, family(model), data_key(data), threat.label)
        for reported in self.reported if case.paper else ():
            if (reported.method, reported.model, reported.data, reported.threat) == wanted:
                return reported
        return None


def data_key(label: str) -> str:
    """``CIFAR-10`` and ``cifar_10`` are the same data set."""
    return label.lower().replace("-", "").replace("_", "")


def family(model: str) -> str:
    """The paper's architecture that a model's name belongs to; empty if none."""
    name = model.lower()
    for family_name, words in (("MLP", ("mlp", "mixer")), ("ViT", ("vit", "deit")), ("ResNet", ("resnet",))):
        if any(word in name for word in words):
            return family_name
    return ""
