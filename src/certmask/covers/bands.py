"""Masks that hide all but a band, or all but a block: what is left is a small part of the picture."""

from __future__ import annotations

from certmask.covers.cover import Cover, build
from certmask.errors import CoverError
from certmask.geometry import Mask
from certmask.threat import Patch, Size, checked_patch, checked_size

BAND_TILINGS = ("bands", "blocks")
BAND = 12
"""The picture's width over that of a band, where nobody says otherwise: 18 px on 224."""


def band_cover(image: Size | int, patch: Patch | Size | int, band: int | None = None, stride: int = 1) -> Cover:
    """One mask for every column band of width ``band``, which hides the rest; bands go on at the opposite border.

    Every place of the patch lies inside all masks but those whose band it touches; how many that are is counted.
    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    band: the width of what is left
    stride: from one band to the next; it need not divide the width
    """
    image, patch = checked_size(image, "image"), checked_patch(patch)
    band = _checked_band(band, stride, image[1])
    grid = [Mask(0, left + band, image[0], image[1] - band, wraps=True) for left in range(0, image[1], stride)]
    return _folded("bands", image, patch, (image[0], image[1] - band), [grid], stride)


def block_cover(image: Size | int, patch: Patch | Size | int, band: int | None = None, stride: int = 1) -> Cover:
    """One mask for every row band and one for every column band; a pass with one of each leaves a block.

    Every place lies inside all masks but those whose band it touches: a block is touched where both of its bands are.
    """
    image, patch = checked_size(image, "image"), checked_patch(patch)
    band = _checked_band(band, stride, min(image))
    rows = [Mask(top + band, 0, image[0] - band, image[1], wraps=True) for top in range(0, image[0], stride)]
    columns = [Mask(0, left + band, image[0], image[1] - band, wraps=True) for left in range(0, image[1], stride)]
    return _folded("blocks", image, patch, (image[0] - band, image[1] - band), [rows, columns], stride)


def _checked_band(band: int | None, stride: int, side: int) -> int:
    """The width of a band on a side of this length; an error for one, or a stride, that leaves nothing to hide."""
    band = max(side // BAND, 1) if band is None else checked_size(band, "band")[0]
    if not band < side:
        raise CoverError(f"expected a band narrower than the image, {side} px, got {band}")
    if checked_size(stride, "stride")[0] > side:
        raise CoverError(f"expected a stride of at most {side} px, got {stride}")
    return band


def _folded(tiling: str, image: Size, patch: Patch, mask: Size, grids: list[list[Mask]], stride: int) -> Cover:
    """The cover with the largest fold that holds: as many masks as hide the place that fewest hide."""
    try:
        once = build(tiling, image, patch, mask, (1, 1), grids, True, stride)
    except CoverError:
        raise CoverError(
            f"expected bands that leave every place of a {patch.height}×{patch.width} patch hidden somewhere, got none"
        ) from None
    return build(tiling, image, patch, mask, (1, once.min_fold), grids, True, stride)
