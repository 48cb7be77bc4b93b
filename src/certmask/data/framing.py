"""How a photo becomes the model's input, as the model's makers did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from certmask.errors import DataError
from certmask.threat import Size

RESAMPLINGS = {name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "lanczos")}


@dataclass(frozen=True)
class Framing:
    """Resize with ``resampling`` so that the centre of the input's size keeps ``crop`` of the photo, then cut it out.

    With ``squash`` the whole photo is resized to the input's proportions; else its own are kept.
    """

    crop: float = 0.875
    resampling: str = "bicubic"
    squash: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise DataError(f"expected crop in (0, 1], got {self.crop}")
        if self.resampling not in RESAMPLINGS:
            raise DataError(f"expected resampling by {', '.join(RESAMPLINGS)}, got {self.resampling!r}")

    def __call__(self, photo: Image.Image, size: Size, name: str = "a photo") -> Image.Image:
        """The part of the photo that the model sees, ``size`` as (height, width)."""
        self.check(photo, name)
        (height, width), (top, left) = self.cut((photo.height, photo.width), size)
        if (width, height) != photo.size:
            photo = photo.resize((width, height), RESAMPLINGS[self.resampling])
        return photo.crop((left, top, left + size[1], top + size[0]))

    def cut(self, photo: Size, size: Size) -> tuple[Size, Size]:
        """How large a photo of this size is once it is resized, and the top left corner of what is then cut out."""
        height, width = self._resized(photo, size)
        return (height, width), ((height - size[0]) // 2, (width - size[1]) // 2)

    def check(self, photo: Image.Image, name: str) -> None:
        """An error for a photo of which next to nothing would be seen."""
        if max(photo.size) > 200 * min(photo.size):
            raise DataError(f"expected {name} less than 200 times as long as wide, got {photo.width}×{photo.height}")

    def _resized(self, photo: Size, size: Size) -> Size:
        """Height and width before the cut."""
        height, width = size
        if self.squash:
            return round(height / self.crop), round(width / self.crop)
        scale = max(height / photo[0], width / photo[1]) / self.crop
        return max(height, round(photo[0] * scale)), max(width, round(photo[1] * scale))

    def describe(self) -> dict[str, Any]:
        """As a results file records it."""
        return {"resize": self.resampling, "crop": self.crop, **({"squash": True} if self.squash else {})}

    @classmethod
    def described(cls, record: Mapping[str, Any]) -> Framing:
        """The framing that a results file records."""
        names = {"crop": "crop", "resize": "resampling", "squash": "squash"}
        return cls(**{field: record[key] for key, field in names.items() if key in record})
