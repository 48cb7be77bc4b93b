"""What a Hugging Face image processor does to a photo, followed: as a framing, a mean and a std, or refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from certmask.data import Framing, to_tensor
from certmask.data.framing import LARGEST, RESAMPLINGS
from certmask.errors import CertmaskError, ClassifierError, first_line
from certmask.images import Colour, checked_colour
from certmask.threat import Size, checked_size

SAME = 1e-5
"""By how much a colour in [0, 1] may differ from the processor's own: rounding in float32, not another pixel."""
WARPED_FROM = 384
"""The shorter side from which ConvNeXt's processor warps photos in place of cutting them."""
TRIED: tuple[tuple[float, float], ...] = ((1.31, 2.17), (1.93, 1.07), (0.83, 0.61), (0.5, 2.0), (4.0, 0.2), (0.1, 0.07))
"""Height and width of the photos that are tried, as shares of the input's: wide and high, very much so, and smaller."""
EDGES = ({"height", "width"}, {"shortest_edge"})
"""What a size may say; anything else, as a longest edge, changes photos of some shapes alone."""


class Preprocessing(NamedTuple):
    """How a photo becomes a model's input: framed at a size, then normalized."""

    framing: Framing
    size: Size
    mean: Colour
    std: Colour


def followed(processor: Any, name: str) -> Preprocessing:
    """What a processor does, tried on photos of many shapes; an error if any pixel comes out otherwise."""
    found = _said(processor, name)
    for number, shares in enumerate(TRIED):
        try:
            photo = _noise(shares, found.size, number)
            theirs = processor(photo, return_tensors="pt")["pixel_values"]
            own = to_tensor(found.framing(photo, found.size))
        except Exception as error:  # a processor of unknown settings can fail in any way
            raise _not_followed(name, first_line(error)) from None
        if theirs.shape != (1, 3, *found.size):
            raise _not_followed(name, f"an input of shape {list(theirs.shape)}")
        change = float((_colours(theirs[0], found) - own).abs().max())
        if not change <= SAME:
            raise _not_followed(name, f"a colour that differs by {change:.2g}")
    return found


def _said(processor: Any, name: str) -> Preprocessing:
    """What its settings say."""
    if not getattr(processor, "do_resize", False):
        raise _not_followed(name, "do_resize false: photos of any size would be handed over as they are")
    try:
        framing, size = _framing(processor)
        mean, std = _colour(processor)
    except (CertmaskError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _not_followed(name, first_line(error)) from None
    return Preprocessing(framing, size, mean, std)


def _framing(processor: Any) -> tuple[Framing, Size]:
    """How photos are resized and cut, and what comes out."""
    resampling = Image.Resampling(int(processor.resample)).name.lower()
    if resampling not in RESAMPLINGS:
        raise ValueError(f"resampling by {resampling}")
    size, share = _edges(processor.size, "size"), getattr(processor, "crop_pct", None)
    edge = size.get("shortest_edge")
    if edge and share:  # as ConvNeXt's does
        warped = edge >= WARPED_FROM
        return Framing(resampling=resampling, resized=(edge, edge) if warped else int(edge / share)), (edge, edge)
    resized: int | Size = edge or (size["height"], size["width"])
    if getattr(processor, "do_center_crop", False):
        cut = _edges(processor.crop_size, "crop_size")
        return Framing(resampling=resampling, resized=resized), (cut["height"], cut["width"])
    if isinstance(resized, int):
        raise ValueError("photos that keep their proportions and are not cut")
    return Framing(resampling=resampling, resized=resized), resized


def _edges(told: Any, what: str) -> dict[str, int]:
    """A size in pixels as height and width, or as the shortest edge alone."""
    edges = {key: value for key, value in dict(told).items() if value is not None}
    if set(edges) not in EDGES:
        raise ValueError(f"{what} by {', '.join(sorted(edges)) or 'nothing'}")
    if max(checked_size(edge, what)[0] for edge in edges.values()) > LARGEST:
        raise ValueError(f"{what} of more than {LARGEST} pixels")
    return edges


def _colour(processor: Any) -> tuple[Colour, Colour]:
    """Mean and std of colours in [0, 1]: those of the processor, which counts in multiples of its rescale factor."""
    factor = 255 * float(processor.rescale_factor) if getattr(processor, "do_rescale", False) else 255.0
    normal = getattr(processor, "do_normalize", False)
    mean, std = (processor.image_mean, processor.image_std) if normal else ((0.0,) * 3, (1.0,) * 3)
    return (
        checked_colour([value / factor for value in mean], "image_mean"),
        checked_colour([value / factor for value in std], "image_std"),
    )


def _colours(values: Tensor, found: Preprocessing) -> Tensor:
    """Pixel values as colours in [0, 1] again."""
    mean, std = (torch.tensor(colour, dtype=torch.float64).view(3, 1, 1) for colour in (found.mean, found.std))
    return values.double() * std + mean


def _noise(shares: tuple[float, float], size: Size, seed: int) -> Image.Image:
    height, width = (max(round(share * side), 1) for share, side in zip(shares, size, strict=True))
    chance = np.random.default_rng(seed)
    return Image.fromarray(chance.integers(0, 256, (height, width, 3), dtype=np.uint8))


def _not_followed(name: str, got: str) -> ClassifierError:
    return ClassifierError(
        f"expected an image processor in {name} that resizes, cuts the centre out and normalizes, got {got}: "
        "it cannot be followed exactly"
    )
