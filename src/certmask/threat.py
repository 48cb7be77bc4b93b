"""What the attacker may do. A threat belongs to no cover and no rule: every kind of defence is asked about it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, ClassVar

from certmask.errors import GeometryError

Size = tuple[int, int]
"""Height and width in pixels."""

Box = tuple[int, int, int, int]
"""Rows and columns, half-open: ``(top, bottom, left, right)``."""

MOST_PATCHES = 8
"""More at once nobody can look at: passes grow with the number of sets of twice as many masks."""


def checked_size(size: Size | int, what: str) -> Size:
    """Return ``(height, width)``; one number stands for a square."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(_whole(x) and x >= 1 for x in pair):
        raise GeometryError(f"expected {what} as (height, width), whole numbers of at least 1, got {size!r}")
    return int(pair[0]), int(pair[1])


def checked_patch(patch: Threat | Size | int) -> Patch:
    """The patch itself, or the one of this size; one number stands for a square."""
    if isinstance(patch, Threat):
        if isinstance(patch, Patch):
            return patch
        raise GeometryError(f"expected a patch of one size, got {patch}")
    if isinstance(patch, (tuple, list)) or _whole(patch):
        return Patch(*checked_size(patch, "patch"))
    raise GeometryError(f"expected a patch, such as Patch(32, 32) or 32, got {patch!r}")


def checked_threat(threat: Threat | Size | int) -> Threat:
    """The threat itself, or a patch of this size; one number stands for a square."""
    return threat if isinstance(threat, Threat) else checked_patch(threat)


def _whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


class Threat(ABC):
    """A finite family of boxes of pixels: the attacker chooses ``count`` of them and puts any content into them."""

    kind: ClassVar[str]
    count: int = 1
    """How many boxes may be used at once."""

    @abstractmethod
    def boxes_on(self, image: Size) -> tuple[Size, ...]:
        """The sizes of the boxes on an image; each may lie anywhere wholly inside it. Those inside others are left out.

        An error if the threat does not fit into the image.
        """

    @property
    @abstractmethod
    def label(self) -> str:
        """The same in a word, for a table: ``32×32``."""

    @abstractmethod
    def __str__(self) -> str:
        """The attacker's means in words: "any 32×32 patch"."""

    @property
    def steps(self) -> tuple[Patch, ...]:
        """The threats, from small to large, of which an image is certified for the largest that it can be."""
        return ()

    def on(self, image: Size) -> str:
        """The same on a model's input, in words."""
        return f"{self} on a {image[0]}×{image[1]} input"

    def describe(self) -> dict[str, Any]:
        """As results files and certificates record it."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Patch(Threat):
    """A rectangle of ``height × width`` pixels, wholly inside the image, with any content; or up to ``count`` of them.

    Several pieces inside one such rectangle are one patch, and so is any other shape inside it.
    """

    height: int
    width: int
    count: int = 1
    kind: ClassVar[str] = "patch"

    def __post_init__(self) -> None:
        checked_size((self.height, self.width), "patch")
        if not _whole(self.count) or not 1 <= self.count <= MOST_PATCHES:
            raise GeometryError(f"expected 1 to {MOST_PATCHES} patches, got {self.count!r}")

    def __str__(self) -> str:
        if self.count == 1:
            return f"any {self.height}×{self.width} patch"
        return f"any {self.count} patches of {self.height}×{self.width}"

    @property
    def label(self) -> str:
        size = f"{self.height}×{self.width}"
        return size if self.count == 1 else f"{self.count} of {size}"

    @property
    def size(self) -> Size:
        return self.height, self.width

    @property
    def single(self) -> Patch:
        """One of them."""
        return replace(self, count=1)

    def boxes_on(self, image: Size) -> tuple[Size, ...]:
        self.positions(image)
        return (self.size,)

    def positions(self, image: Size) -> Size:
        """How many top-left corners the patch can have along each axis."""
        if self.height > image[0] or self.width > image[1]:
            raise GeometryError(
                f"expected a patch inside the image {image[0]}×{image[1]}, got {self.height}×{self.width}"
            )
        return image[0] - self.height + 1, image[1] - self.width + 1

    def describe(self) -> dict[str, Any]:
        """As always; a single patch is described as it was before there were several."""
        described = super().describe()
        if self.count == 1:
            described.pop("count")
        return described


@dataclass(frozen=True)
class AnyRectangle(Threat):
    """A rectangle of at most ``area`` pixels, long or square, wholly inside the image, with any content."""

    area: int
    kind: ClassVar[str] = "any rectangle"

    def __post_init__(self) -> None:
        if not _whole(self.area) or self.area < 1:
            raise GeometryError(f"expected an area of at least 1 pixel, got {self.area!r}")

    def __str__(self) -> str:
        return f"any rectangle of up to {self.area} pixels"

    @property
    def label(self) -> str:
        return f"any of {self.area} px"

    def boxes_on(self, image: Size) -> tuple[Size, ...]:
        """From flat to high: as wide as the area and the image allow, and of equal widths the highest."""
        if self.area >= image[0] * image[1]:
            raise GeometryError(
                f"expected an area below that of the image {image[0]}×{image[1]}, got {self.area} pixels"
            )
        widths = [min(image[1], self.area // height) for height in range(1, min(image[0], self.area) + 1)]
        ends = [n for n, width in enumerate(widths) if n + 1 == len(widths) or widths[n + 1] < width]
        return tuple((n + 1, widths[n]) for n in ends)


@dataclass(frozen=True)
class UpTo(Threat):
    """A square patch of at most ``side`` pixels, how large is not known; every image has a certified size of its own.

    It is one of the ``sizes``, of which ``side`` is the largest; where none are given, five from a third of it on.
    """

    side: int
    sizes: tuple[int, ...] = ()
    kind: ClassVar[str] = "up to"

    def __post_init__(self) -> None:
        checked_size(self.side, "the largest side")
        chosen = self.sizes or [side for n in range(2, 7) if (side := self.side * n // 6)]
        sizes = tuple(sorted({checked_size(side, "a side")[0] for side in chosen}))
        if sizes[-1] != self.side:
            raise GeometryError(f"expected sizes up to {self.side}, the largest, got {self.sizes}")
        object.__setattr__(self, "sizes", sizes)

    def __str__(self) -> str:
        return f"any patch of up to {self.side}×{self.side}, its size untold,"

    @property
    def label(self) -> str:
        return f"up to {self.side}×{self.side}"

    @property
    def steps(self) -> tuple[Patch, ...]:
        return tuple(Patch(side, side) for side in self.sizes)

    def boxes_on(self, image: Size) -> tuple[Size, ...]:
        return Patch(self.side, self.side).boxes_on(image)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "sizes": list(self.sizes)}


@dataclass(frozen=True)
class PhotoPatch(Threat):
    """A rectangle of the *stored photo* with any content, in its pixels, or a square in percent of its shorter side.

    Each photo makes another patch of it in the model's input; ``before_jpeg``: it was compressed with the photo.
    """

    height: int | None = None
    width: int | None = None
    percent: float | None = None
    before_jpeg: bool = False
    kind: ClassVar[str] = "photo patch"

    def __post_init__(self) -> None:
        if type(self.before_jpeg) is not bool:
            raise GeometryError(f"expected true or false for before_jpeg, got {self.before_jpeg!r}")
        if self.percent is None:
            checked_size((self.height, self.width), "patch in the photo")  # type: ignore[arg-type]
        elif self.height is not None or self.width is not None:
            raise GeometryError("expected a patch in the photo in pixels or in percent, got both")
        elif not (isinstance(self.percent, Real) and not isinstance(self.percent, bool) and 0 < self.percent <= 100):
            raise GeometryError(
                f"expected a patch of more than 0 and at most 100 % of the photo's shorter side, got {self.percent!r}"
            )

    @property
    def share(self) -> Fraction | None:
        """The percentage as it was written, to its last digit."""
        return None if self.percent is None else Fraction(str(self.percent))

    @property
    def label(self) -> str:
        size = f"{self.height}×{self.width}" if self.percent is None else f"{self.percent:g} %"
        return f"{size} of the photo"

    def boxes_on(self, image: Size) -> tuple[Size, ...]:
        """An error: each photo makes another patch of it in the model's input."""
        raise GeometryError(f"expected a threat in the model's input, got {self}")

    def __str__(self) -> str:
        size = f"{self.height}×{self.width} patch in the photo"
        if self.percent is not None:
            size = f"patch in the photo of {self.percent:g} % of its shorter side"
        return f"any {size}{' before it was compressed' if self.before_jpeg else ''}"

    def on(self, image: Size) -> str:
        return f"{self}, as a {image[0]}×{image[1]} input shows it"


def photo_patch(patch: PhotoPatch | Size | int | str, before_jpeg: bool = False) -> PhotoPatch:
    """A patch in the photo as people write it: ``60``, ``(60, 40)``, ``"60x40"`` or ``"5%"``."""
    if isinstance(patch, PhotoPatch):
        return replace(patch, before_jpeg=patch.before_jpeg or before_jpeg)
    if not isinstance(patch, str):
        return PhotoPatch(*checked_size(patch, "patch in the photo"), before_jpeg=before_jpeg)
    percent = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?) ?%", patch.strip())
    if percent:
        return PhotoPatch(percent=float(percent[1]), before_jpeg=before_jpeg)
    pixels = re.fullmatch(r"(\d{1,6})(?:[x×,](\d{1,6}))?", patch.strip())
    if not pixels:
        raise GeometryError(f"expected a patch in the photo like 60, 60x40 or 5%, got {patch!r}")
    return PhotoPatch(int(pixels[1]), int(pixels[2] or pixels[1]), before_jpeg=before_jpeg)


THREATS: dict[str, type[Threat]] = {threat.kind: threat for threat in (Patch, AnyRectangle, UpTo, PhotoPatch)}


def threat_from(description: dict[str, Any]) -> Threat:
    """The threat that ``Threat.describe`` described."""
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in description.items()}
    kind = fields.pop("kind", None)
    if kind not in THREATS:
        raise GeometryError(f"expected a threat of kind {', '.join(THREATS)}, got {kind!r}")
    try:
        return THREATS[kind](**fields)
    except TypeError:
        raise GeometryError(f"expected the fields of a {kind}, got {', '.join(fields) or 'none'}") from None
