"""What an experiment is: patches, defences, what the paper reported. Plain data: nothing here builds, runs or reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from certmask.errors import CertmaskError
from certmask.threat import AnyRectangle, Patch, Size, Threat, UpTo
from certmask.zoo.networks import MASKS

if TYPE_CHECKING:
    from certmask.covers.zoom import Level
    from certmask.data import Framing

PAPER_SIDE = 224
"""Every size in a declaration is in pixels of the paper's 224×224 input."""

PHOTO = (32, 32)
"""The size of CIFAR-10's photos."""

LINES = {"published": "published rule", "patchcleanser": "PatchCleanser"}
FAMILIES = {"mlp": "MLP", "mixer": "MLP", "vit": "ViT", "deit": "ViT", "resnet": "ResNet"}


THREATS: dict[str, Callable[[Patch], Threat]] = {
    "one patch": lambda patch: patch,
    "two patches": lambda patch: replace(patch, count=2),
    "any rectangle of its area": lambda patch: AnyRectangle(patch.height * patch.width),
    "unknown size": lambda patch: UpTo(3 * max(patch.size) // 2),
}
"""What may be made of a patch, up to half as much again where its size is unknown."""


def scaled(pixels: int, length: int) -> int:
    """The same part of an input that is ``length`` long, rounded up."""
    return -(-pixels * length // PAPER_SIDE)


@dataclass(frozen=True)
class LabelledPatch:
    """A square patch: how the experiment calls it, and its side on a 224×224 input.

    Where a patch plays no part its label is "none"; a cover needs a side all the same. A patch that is put on a 32×32
    photo, before that is enlarged, has a side there, ``photo``; ``side`` is then what it reaches on 224×224.
    """

    label: str
    side: int
    photo: int | None = None

    @property
    def number(self) -> str:
        """What a user types to choose it: 2 of "2 %", 30 of "30 px"."""
        return self.label.split()[0]

    def on(self, image: Size) -> Patch:
        """The patch on another input, rounded up: never a weaker threat."""
        if self.photo is not None and image == PHOTO:
            return Patch(self.photo, self.photo)
        return Patch(scaled(self.side, image[0]), scaled(self.side, image[1]))

    def known_on(self, image: Size, framing: Framing) -> bool:
        """Whether ``on`` covers what the patch reaches: one in the photo, if all of that is taken as it is, or enlarged
        by a whole factor up to seven.

        A factor ``s`` makes of ``k`` pixels at most ``s·(k + 3)``, for odd ones one less. That is no more than the side
        on 224×224, ``7·(k + 3) − 1``, scaled and rounded up, as long as ``s`` is at most 7.
        """
        factor, rest = divmod(image[0], PHOTO[0])
        whole = framing.crop == 1 and framing.resampling == "bicubic" and image[0] == image[1]
        return self.photo is None or (whole and rest == 0 and 1 <= factor <= PAPER_SIDE // PHOTO[0])

    @property
    def slug(self) -> str:
        return f"patch{self.side}"


@dataclass(frozen=True)
class DeclaredDefence:
    """A rule, as the command line calls it, on a cover: the mask has a side, or ``per_axis`` such masks cover once.

    A cover of several ``levels`` has masks of its own; ``align`` is the grid that masks start on. ``paper`` is the
    method's name in the paper's table, ``series`` the line of a plot that the defence is a point of where it is not
    that of its rule. One that is ``tuned`` comes from a file that ``certmask tune`` wrote, where one is given.
    ``network`` is the kind of network that it is for: one that is shown all but what masks hide, one of ``bands``, or
    one of ``cells``; those for bands or cells have no masks of their own choosing. ``against`` is what is made of the
    patch: two of them, a rectangle of its area, or one of unknown size.
    """

    name: str
    rule: str
    tiling: str
    fold: Size = (1, 1)
    mask: int | None = None
    per_axis: int | None = None
    paper: str = ""
    series: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    levels: tuple[Level, ...] = ()
    align: int = 1
    tuned: bool = False
    network: str = MASKS
    against: str = "one patch"

    def __post_init__(self) -> None:
        chosen = [self.mask is not None, self.per_axis is not None, bool(self.levels)].count(True)
        if chosen != (self.network == MASKS):
            raise CertmaskError(
                f"expected one of mask, per_axis and levels in defence {self.name!r}, none without masks, got {chosen}"
            )

    def threat(self, patch: Patch) -> Threat:
        """What the defence is for, beside others that are for the patch."""
        return THREATS[self.against](patch)

    @property
    def k(self) -> int:
        return self.fold[0] * self.fold[1]

    @property
    def line(self) -> str:
        """The line of a plot that the defence is a point of."""
        return self.series or LINES.get(self.rule, self.rule.replace("-", " "))


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
    """A question that is answered on the same images: how many does ``first`` certify that ``second`` does not?

    ``theorem`` says why the first never certifies less; such a comparison is counted, never tested for chance.
    ``patch`` is the only one against which it says something, by its label; empty for all.
    """

    question: str
    first: str
    second: str
    theorem: str = ""
    patch: str = ""


@dataclass(frozen=True)
class Experiment:
    """One table or figure: which patches on which data, which defences, and what the paper says about them.

    One without patches is arithmetic: nothing is run for it. ``panels`` says what is drawn: a measure against mask,
    patch, k, or the passes to answer or to prove.
    """

    name: str
    title: str
    place: str
    patches: Mapping[str, tuple[LabelledPatch, ...]] = field(default_factory=dict)
    defences: Callable[[LabelledPatch], tuple[DeclaredDefence, ...]] = field(default=lambda _: (), repr=False)
    reported: tuple[Reported, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    panels: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def every_patch(self) -> tuple[LabelledPatch, ...]:
        return tuple(dict.fromkeys(patch for patches in self.patches.values() for patch in patches))

    @property
    def methods(self) -> set[str]:
        """The paper's methods that a defence here stands for."""
        return {defence.paper for patch in self.every_patch for defence in self.defences(patch)} - {""}

    def patches_on(self, data: str) -> tuple[LabelledPatch, ...]:
        """The patches for a data set; those of ImageNet where it is not one of the paper's."""
        return self.patches.get(data_key(data), self.patches.get("imagenet", ()))

    def reported_for(self, defence: DeclaredDefence, model: str, data: str, patch: LabelledPatch) -> Reported | None:
        """What the paper says about this method, this family of models, this data set and patch.

        Methods for bands and cells bring their own networks.
        """
        own = family(model) if defence.network == MASKS else ""
        wanted = (defence.paper, own, data_key(data), patch.label)
        return next((r for r in self.reported if (r.method, r.model, r.data, r.threat) == wanted), None)


def data_key(label: str) -> str:
    """``CIFAR-10`` and ``cifar_10`` are the same data set."""
    return label.lower().replace("-", "").replace("_", "")


def family(model: str) -> str:
    """The paper's architecture that a model's name belongs to; empty if none."""
    return next((name for word, name in FAMILIES.items() if word in model.lower()), "")
