"""A patch in the stored photo, as people ask for it, and what it is in the model's input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certmask.cli.sizes import parse_size
from certmask.errors import DataError, UsageError

if TYPE_CHECKING:
    from certmask.data import Framing
    from certmask.data.reach import Reach, Stored
    from certmask.threat import Patch, Size


@dataclass(frozen=True)
class Wanted:
    """A patch in any photo: a size in its pixels, or a square in percent of its shorter side."""

    side: Size | Fraction
    before_jpeg: bool = False

    def on(self, path: Path, framing: Framing, image: Size) -> Sticker:
        """The patch in this photo; an error if it leaves no part of the input alone."""
        from certmask.data.reach import largest_reach, share_of, stored

        photo = stored(path, self.before_jpeg)
        patch = (share_of(self.side, photo),) * 2 if isinstance(self.side, Fraction) else self.side
        found = Sticker(patch, photo, image, largest_reach(photo, framing, image, patch), self.before_jpeg)
        if found.threat.size == image:
            raise DataError(f"expected a patch in {path} that leaves a part of the input alone, got {found}")
        return found


@dataclass(frozen=True)
class Sticker:
    """A patch anywhere in one stored photo, and the largest box of the model's input that it reaches."""

    patch: Size
    photo: Stored
    image: Size
    reach: Reach
    before_jpeg: bool

    @property
    def threat(self) -> Patch:
        """What the defence is made for: a patch in the input that holds all that is reached."""
        from certmask.data.reach import shared_patch

        return shared_patch(self.reach.size, self.image)

    @property
    def typed(self) -> str:
        """The same as ``--patch`` takes it."""
        return "x".join(map(str, self.threat.size))

    def __str__(self) -> str:
        patch, reach, image, threat = (
            f"{h}×{w}" for h, w in (self.patch, self.reach.size, self.image, self.threat.size)
        )
        when = " before it was compressed" if self.before_jpeg else ""
        rounded = "" if reach == threat else f" (rounded up to {threat})"
        return (
            f"any {patch} patch in the photo ({self.photo.width}×{self.photo.height}){when}, which reaches at most "
            f"{reach} of the {image} input{rounded}"
        )

    def describe(self) -> dict[str, Any]:
        """For JSON, every size as height and width; the photo's is that of the file, before EXIF turns it."""
        return {
            "patch": list(self.patch),
            "photo": [self.photo.height, self.photo.width],
            "orientation": self.photo.orientation,
            "before_jpeg": self.before_jpeg,
            "reach": list(self.reach.size),
            "farthest_at": list(self.reach.corner),
            "image": list(self.image),
            "certified_for": list(self.threat.size),
        }


def wanted_patch(in_photo: str | None, before_jpeg: bool, patch: str | None) -> Wanted | None:
    """``60``, ``60x40`` or ``5%``; None where nobody asks for a patch in the photo."""
    if in_photo is None:
        if before_jpeg:
            raise UsageError("expected --before-jpeg beside --patch-in-photo, got it alone")
        return None
    if patch is not None:
        raise UsageError("expected --patch, in the model's input, or --patch-in-photo, got both")
    percent = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) ?%", in_photo.strip())
    if not percent:
        return Wanted(parse_size(in_photo, "patch in the photo"), before_jpeg)
    if not 0 < Fraction(percent[1]) <= 100:
        raise UsageError(f"expected a patch of more than 0 and at most 100 %, got {in_photo}")
    return Wanted(Fraction(percent[1]), before_jpeg)
