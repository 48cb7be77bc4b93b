"""From a file to pixels: RGB, upright, [0, 1]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from certmask.errors import DataError, first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})


def read_photo(source: Path | BinaryIO, name: str | None = None, formats: tuple[str, ...] | None = None) -> Image.Image:
    """A photo as RGB, turned as its EXIF tag says; greyscale is repeated, transparency is laid on white."""
    with opened(source, name or str(source), formats) as file:
        return decoded(file)


def decoded(file: Image.Image) -> Image.Image:
    """The same of a file that is ``opened``."""
    photo = ImageOps.exif_transpose(file)
    if photo.mode.startswith("I"):
        photo = _eight_bits(photo)
    if photo.mode in ("RGBA", "LA", "PA") or "transparency" in photo.info:
        photo = photo.convert("RGBA")
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    return photo.convert("RGB")


@contextmanager
def opened(source: Path | BinaryIO, name: str, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """An image file as Pillow has it; whatever Pillow cannot do with it is an error that names the file.

    ``formats`` are those of Pillow's that are tried; None tries all.
    """
    if isinstance(source, Path) and not source.is_file():
        got = "something else than a file" if source.exists() else "nothing"
        raise DataError(f"expected an image file, got {got} at {name}")
    try:
        with Image.open(source, formats=formats) as file:
            yield file
    except DataError:
        raise
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"expected a readable image in {name}, got {_reason(error)}") from None


def to_array(photo: Image.Image) -> NDArray[np.float32]:
    """``[3, height, width]`` in [0, 1]."""
    pixels: NDArray[np.float32] = np.asarray(photo, dtype=np.uint8).transpose(2, 0, 1).astype(np.float32, order="C")
    pixels /= np.float32(255)
    return pixels


def to_tensor(photo: Image.Image) -> Tensor:
    """The same as a tensor."""
    import torch

    return torch.from_numpy(to_array(photo))


def pixel_digest(image: NDArray[Any] | Tensor) -> str:
    """What a results file records of a model input: the same for an array and for the tensor made of it."""
    return hashlib.sha256(np.asarray(image).tobytes()).hexdigest()[:16]


def _eight_bits(photo: Image.Image) -> Image.Image:
    """A 16-bit greyscale photo with its tones kept (Pillow's own conversion cuts them off at 255)."""
    tones = np.asarray(photo).astype(np.float64) / 257
    return Image.fromarray(tones.round().clip(0, 255).astype(np.uint8))


def _reason(error: Exception) -> str:
    return "no image" if isinstance(error, UnidentifiedImageError) else first_line(error)
