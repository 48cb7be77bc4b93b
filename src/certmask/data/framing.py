"""How a photo becomes the model's input, as the model's makers did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from certmask.errors import DataError
from certmask.threat import Size, checked_size

RESAMPLINGS = {name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "lanczos")}

LARGEST = 4096
"""Pixels of a side to which a model may ask photos to be resized; a long one then takes a gigabyte already."""


@dataclass(frozen=True)
class Framing:
    """Resize with ``resampling`` so that the centre of the input's size keeps ``crop`` of the photo, then cut it out.

    With ``squash`` the whole photo is resized to the input's proportions; else its own are kept. Where its makers gave
    pixels in place of shares, ``resized`` has them, and nothing else counts: height and width before the cut, or those
    of the shorter side; the longer one is then rounded down, as torchvision and Hugging Face do.
    """

    crop: float = 0.875
    resampling: str = "bicubic"
    squash: bool = False
    resized: int | Size | None = None

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise DataError(f"expected crop in (0, 1], got {self.crop}")
        if self.resampling not in RESAMPLINGS:
            raise DataError(f"expected resampling by {', '.join(RESAMPLINGS)}, got {self.resampling!r}")
        if self.resized is None:
            return
        pixels = checked_size(self.resized, "resized")
        if max(pixels) > LARGEST:
            raise DataError(f"expected photos resized to at most {LARGEST} pixels a side, got {self.resized}")
        if isinstance(self.resized, (tuple, list)):
            object.__setattr__(self, "resized", pixels)

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

    def share(self, size: Size) -> float:
        """How much of a photo of the input's proportions is kept, along its height."""
        return self.crop if self.resized is None else size[0] / self._pixels(size, size)[0]

    def check(self, photo: Image.Image, name: str) -> None:
        """An error for a photo of which next to nothing would be seen."""
        if max(photo.size) > 200 * min(photo.size):
            raise DataError(f"expected {name} less than 200 times as long as wide, got {photo.width}×{photo.height}")

    def _resized(self, photo: Size, size: Size) -> Size:
        """Height and width before the cut."""
        height, width = size
        if self.resized is not None:
            return self._pixels(photo, size)
        if self.squash:
            return round(height / self.crop), round(width / self.crop)
        scale = max(height / photo[0], width / photo[1]) / self.crop
        return max(height, round(photo[0] * scale)), max(width, round(photo[1] * scale))

    def _pixels(self, photo: Size, size: Size) -> Size:
        """The same where pixels were given; an error if the input is larger: its border would have to be made up."""
        if isinstance(self.resized, int):
            long = self.resized * max(photo) // min(photo)
            resized = (self.resized, long) if photo[0] < photo[1] else (long, self.resized)
        else:
            assert self.resized is not None
            resized = self.resized
        if resized[0] < size[0] or resized[1] < size[1]:
            raise DataError(
                f"expected photos resized to at least {size[0]}×{size[1]}, the model's input, got "
                f"{resized[0]}×{resized[1]}"
            )
        return resized

    def describe(self) -> dict[str, Any]:
        """As a results file records it."""
        if self.resized is not None:
            pixels = self.resized if isinstance(self.resized, int) else list(self.resized)
            return {"resize": self.resampling, "resized": pixels}
        return {"resize": self.resampling, "crop": self.crop, **({"squash": True} if self.squash else {})}

    @classmethod
    def described(cls, record: Mapping[str, Any]) -> Framing:
        """The framing that a results file records."""
        names = {"crop": "crop", "resize": "resampling", "squash": "squash", "resized": "resized"}
        return cls(**{field: record[key] for key, field in names.items() if key in record})
