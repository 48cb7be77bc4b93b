"""Pictures with patches: pasting them, what a camera with 8 bits sees of them, and files for replay and for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from certmask.data import read_photo, to_tensor
from certmask.errors import AttackError, ResultsError
from certmask.results.run import Placed
from certmask.threat import Patch, Size

LEVELS = 255
ENLARGED = 2
OUTLINE = (255, 0, 0)


def paste(images: Tensor, patches: Tensor, corners: Tensor) -> Tensor:
    """Each image ``[n, 3, H, W]`` with its own patch ``[n, 3, h, w]`` at its own corner ``[n, 2]``; differentiable.

    Or with several, ``[n, count, 3, h, w]`` at ``[n, count, 2]``, one after the other: the last lies on top.
    """
    out = images.clone()
    one = corners.ndim == 2
    for own, at in [(patches, corners)] if one else zip(patches.unbind(1), corners.unbind(1), strict=True):
        out[_within((own.shape[2], own.shape[3]), at, images)] = own.to(images.dtype)
    return out


def beneath(images: Tensor, patch: Patch, corners: Tensor) -> Tensor:
    """What lies under the patch at each corner, ``[n, 3, h, w]``, or under several, ``[n, count, 3, h, w]``."""
    return images[_within(patch.size, corners, images)]


def _within(size: Size, corners: Tensor, images: Tensor) -> tuple[Tensor, ...]:
    """Indices of the rectangle at each corner ``[n, …, 2]``, shaped to give ``[n, …, 3, h, w]``."""
    device, (height, width) = images.device, size
    corners = corners.to(device)
    number = torch.arange(len(images), device=device).view(-1, *[1] * (corners.ndim + 1))
    channel = torch.arange(images.shape[1], device=device)[:, None, None]
    rows = corners[..., 0, None] + torch.arange(height, device=device)
    columns = corners[..., 1, None] + torch.arange(width, device=device)
    return number, channel, rows[..., None, :, None], columns[..., None, None, :]


def eight_bits(patches: Tensor) -> Tensor:
    """The nearest values that a picture file can hold."""
    return (patches.clamp(0, 1) * LEVELS).round() / LEVELS


def checked_corners(corners: Tensor, count: int, patch: Patch, image: Size) -> Tensor:
    """One corner ``(top, left)`` per image, or one for each of several patches, ``[n, count, 2]``.

    An error unless the patch lies wholly inside the image at each.
    """
    shape = [count, *several(patch), 2]
    if list(corners.shape) != shape or corners.is_floating_point():
        raise AttackError(f"expected whole-number corners of shape {shape}, got {list(corners.shape)}")
    positions = torch.tensor(patch.positions(image))
    if not ((corners.cpu() >= 0) & (corners.cpu() < positions)).all():
        raise AttackError(
            f"expected a {patch.height}×{patch.width} patch wholly inside {image[0]}×{image[1]}, got corners outside"
        )
    return corners.long()


def several(patch: Patch) -> tuple[int, ...]:
    """What stands in shapes of corners and contents between the image and the rest: the count, where it is not 1."""
    return (patch.count,) if patch.count > 1 else ()


def save_picture(picture: Tensor, patches: Sequence[Placed], raw: Path) -> None:
    """Write a picture ``[3, H, W]`` to ``raw`` and, enlarged and with its patches outlined, beside it."""
    pixels = (picture * LEVELS).round().byte().permute(1, 2, 0).numpy()
    photo = Image.fromarray(np.ascontiguousarray(pixels))
    try:
        raw.parent.mkdir(parents=True, exist_ok=True)
        photo.save(raw)
        outlined(photo, patches).save(raw.with_name(f"{raw.stem}-outlined.png"))
    except OSError as error:
        raise ResultsError(f"expected a folder for pictures, got {raw.parent} ({error})") from None


def outlined(photo: Image.Image, patches: Sequence[Placed]) -> Image.Image:
    """The picture enlarged, with a frame around each patch."""
    large = photo.resize((ENLARGED * photo.width, ENLARGED * photo.height), Image.Resampling.NEAREST)
    for (top, left), (height, width) in patches:
        low, high = (ENLARGED * left - 1, ENLARGED * top - 1), (ENLARGED * (left + width), ENLARGED * (top + height))
        ImageDraw.Draw(large).rectangle((low, high), outline=OUTLINE, width=2)
    return large


def read_picture(raw: Path) -> Tensor:
    """The very values that were judged, ``[3, H, W]``."""
    return to_tensor(read_photo(raw))
