"""Attacked pictures as files: the raw picture for replay, and one with the patch outlined for people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from certmask.attacks.pasting import LEVELS
from certmask.data import read_photo, to_tensor
from certmask.errors import ResultsError
from certmask.threat import Patch

ENLARGED = 2
OUTLINE = (255, 0, 0)


def save_picture(picture: Tensor, corner: tuple[int, int], patch: Patch, raw: Path) -> None:
    """Write a picture ``[3, H, W]`` to ``raw`` and, enlarged and with its patch outlined, beside it."""
    pixels = (picture * LEVELS).round().byte().permute(1, 2, 0).numpy()
    photo = Image.fromarray(np.ascontiguousarray(pixels))
    try:
        raw.parent.mkdir(parents=True, exist_ok=True)
        photo.save(raw)
        outlined(photo, corner, patch).save(raw.with_name(f"{raw.stem}-outlined.png"))
    except OSError as error:
        raise ResultsError(f"expected a folder for pictures, got {raw.parent} ({error})") from None


def outlined(photo: Image.Image, corner: tuple[int, int], patch: Patch) -> Image.Image:
    """The picture enlarged, with a frame around the patch."""
    large = photo.resize((ENLARGED * photo.width, ENLARGED * photo.height), Image.Resampling.NEAREST)
    top, left = ENLARGED * corner[0], ENLARGED * corner[1]
    bottom, right = top + ENLARGED * patch.height, left + ENLARGED * patch.width
    ImageDraw.Draw(large).rectangle((left - 1, top - 1, right, bottom), outline=OUTLINE, width=2)
    return large


def read_picture(raw: Path) -> Tensor:
    """The very values that were judged, ``[3, H, W]``."""
    return to_tensor(read_photo(raw))
