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


def checked_size(size: Size | int, what: str) -> Size:
    """Return ``(height, width)``; one number stands for a square."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(_whole(x) and x >= 1 for x in pair):
        raise GeometryError(f"expected {what} as (height, width), whole numbers of at least 1, got {size!r}")
    return int(pair[0]), int(pair[1])


def checked_patch(patch: Patch | Size | int) -> Patch:
    """The patch itself, or the one of this size; one number stands for a square."""
    if isinstance(patch, Patch):
        return patch
    if isinstance(patch, (tuple, list)) or _whole(patch):
        return Patch(*checked_size(patch, "patch"))
    raise GeometryError(f"expected a patch, such as Patch(32, 32) or 32, got {patch!r}")


def _whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


class Threat(ABC):
    """A finite family of boxes of pixels: the attacker chooses one of them and puts any content into it."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def boxes(self) -> tuple[Size, ...]:
        """The sizes of the boxes; each may lie anywhere wholly inside the picture."""

    @abstractmethod
    def __str__(self) -> str:
        """The attacker's means in words: "any 32×32 patch"."""

    def on(self, image: Size) -> str:
        """The same on a model's input, in words."""
        return f"{self} on a {image[0]}×{image[1]} input"

    def describe(self) -> dict[str, Any]:
        """As results files and certificates record it."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Patch(Threat):
    """A rectangle of ``height × width`` pixels, wholly inside the image, with any content."""

    height: int
    width: int
    kind: ClassVar[str] = "patch"

    def __post_init__(self) -> None:
        checked_size((self.height, self.width), "patch")

    def __str__(self) -> str:
        return f"any {self.height}×{self.width} patch"

    @property
    def size(self) -> Size:
        return self.height, self.width

    @property
    def boxes(self) -> tuple[Size, ...]:
        return (self.size,)

    def positions(self, image: Size) -> Size:
        """How many top-left corners the patch can have along each axis."""
        if self.height > image[0] or self.width > image[1]:
            raise GeometryError(
                f"expected a patch inside the image {image[0]}×{image[1]}, got {self.height}×{self.width}"
            )
        return image[0] - self.height + 1, image[1] - self.width + 1


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
    def boxes(self) -> tuple[Size, ...]:
        """In pixels of the photo; none where the photo's size decides."""
        return () if self.height is None or self.width is None else ((self.height, self.width),)

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


THREATS: dict[str, type[Threat]] = {threat.kind: threat for threat in (Patch, PhotoPatch)}


def threat_from(description: dict[str, Any]) -> Threat:
    """The threat that ``Threat.describe`` described."""
    fields = dict(description)
    kind = fields.pop("kind", None)
    if kind not in THREATS:
        raise GeometryError(f"expected a threat of kind {', '.join(THREATS)}, got {kind!r}")
    try:
        return THREATS[kind](**fields)
    except TypeError:
        raise GeometryError(f"expected the fields of a {kind}, got {', '.join(fields) or 'none'}") from None
