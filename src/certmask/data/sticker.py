"""A patch in the stored photo: what it is in the model's input, photo by photo."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from certmask.data.framing import Framing
from certmask.data.reach import Reach, Stored, largest_reach, share_of, shared_patch
from certmask.errors import DataError
from certmask.threat import Patch, PhotoPatch, Size


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
        return shared_patch(self.reach.size, self.image)

    @property
    def whole(self) -> bool:
        """Whether no part of the input is left alone: then nothing can be proved."""
        return self.threat.size == self.image

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


def sticker_on(photo: Stored, threat: PhotoPatch, framing: Framing, image: Size) -> Sticker:
    """The patch in this photo, or what of it can lie in a photo that is smaller."""
    height, width = size_in(photo, threat)
    patch = min(height, photo.height), min(width, photo.width)
    return Sticker(patch, photo, image, largest_reach(photo, framing, image, patch), threat.before_jpeg)


def checked_sticker(photo: Stored, threat: PhotoPatch, framing: Framing, image: Size, name: str) -> Sticker:
    """The patch in this photo; an error if it is larger than the photo, or leaves no part of the input alone."""
    reach = largest_reach(photo, framing, image, size_in(photo, threat))
    found = Sticker(size_in(photo, threat), photo, image, reach, threat.before_jpeg)
    if found.whole:
        raise DataError(f"expected a patch in {name} that leaves a part of the input alone, got {found}")
    return found


def size_in(photo: Stored, threat: PhotoPatch) -> Size:
    """Height and width of the patch in this photo's own pixels."""
    if threat.share is not None:
        return (share_of(threat.share, photo),) * 2
    assert threat.height is not None
    assert threat.width is not None
    return threat.height, threat.width


def classes_of(stickers: Iterable[Sticker]) -> list[Patch]:
    """The patches in the input that defences are made for, smallest first, without those that leave nothing alone."""
    found = {sticker.threat for sticker in stickers if not sticker.whole}
    return sorted(found, key=lambda patch: (patch.height * patch.width, patch.size))
