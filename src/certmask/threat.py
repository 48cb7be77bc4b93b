"""What the attacker may do. A threat belongs to no cover and no rule: every kind of defence is asked about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from numbers import Integral
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


THREATS: dict[str, type[Threat]] = {threat.kind: threat for threat in (Patch,)}


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
