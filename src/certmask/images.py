"""Images as networks take them, and the colour that masks paint."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certmask.errors import ClassifierError
from certmask.threat import Size

Colour = tuple[float, float, float]
HIDDEN = -1.0
"""What stands in every channel of a hidden pixel for a network that is told so: no photo has it, none can forge it."""


def checked_colour(colour: Any, what: str) -> Colour:
    """Red, green and blue as three finite numbers."""
    try:
        red, green, blue = map(float, colour)
    except (TypeError, ValueError):
        raise ClassifierError(f"expected {what} of three numbers, got {colour!r}") from None
    if not all(map(isfinite, (red, green, blue))):
        raise ClassifierError(f"expected {what} of three finite numbers, got {colour!r}")
    return red, green, blue


def is_told(model: object) -> bool:
    """Whether a network is told what is hidden, and tells it from any colour."""
    return getattr(model, "told", False) is True


def fill_for(model: object, mean: Colour) -> Colour:
    """What masks paint for a model: its mean colour, or ``HIDDEN`` if it is told."""
    return (HIDDEN, HIDDEN, HIDDEN) if is_told(model) else mean


def fill_colour(fill: Any) -> Colour | None:
    """The colour of masks: three numbers, or one for a grey; None stays None."""
    if fill is None:
        return None
    return checked_colour([fill] * 3 if isinstance(fill, Real) else fill, "fill")


def checked_images(images: Any, size: Size) -> Tensor:
    """Images as float32; an error unless they are ``[n, 3, height, width]`` of the right size within [0, 1].

    A numpy array is taken for the tensor of its values.
    """
    if isinstance(images, np.ndarray) and images.dtype.kind == "f":
        images = torch.from_numpy(np.array(images, dtype=np.float32))
    if not isinstance(images, Tensor):
        kind = f"an array of {images.dtype}" if isinstance(images, np.ndarray) else f"a {type(images).__name__}"
        raise ClassifierError(f"expected images as a tensor or array of floating point in [0, 1], got {kind}")
    if images.ndim != 4 or tuple(images.shape[1:]) != (3, *size):
        raise ClassifierError(f"expected images of shape [n, 3, {size[0]}, {size[1]}], got {list(images.shape)}")
    if not images.is_floating_point():
        raise ClassifierError(f"expected images as floating point in [0, 1], got {images.dtype}")
    if images.numel():
        low, high = _extremes(images)
        if not (low >= 0 and high <= 1):
            raise ClassifierError(f"expected image values in [0, 1], got {low:.3g} to {high:.3g}")
    return images.float()


def _extremes(images: Tensor) -> tuple[float, float]:
    """Smallest and largest value; NaN if there is one. On the host numpy finds them without waking other threads."""
    if images.device.type == "cpu" and images.dtype in (torch.float32, torch.float64):
        values = images.detach().numpy()
        return float(values.min()), float(values.max())
    low, high = images.aminmax()
    return low.item(), high.item()
