"""What a patch in the stored photo reaches in the model's input, through the resampling and the cut that are used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile, get_sampling

from certmask.data.framing import RESAMPLINGS, Framing
from certmask.data.photo import opened
from certmask.errors import DataError
from certmask.threat import Box, Patch, Size

SUPPORTS = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}
"""How far from its centre a pixel reads where a photo is enlarged, in pixels of the photo; nearest reads one pixel."""

CLASSES = 56
"""Sides of patches are rounded up to multiples of so small a part of the input's side (4 on 224), to share covers."""

SIZED = frozenset({"JPEG", "PNG", "BMP", "PPM", "WEBP"})
"""Formats whose files begin with the size that they are stored in; others are read to the end for it."""

LATE = frozenset({"PNG"})
"""Formats that may say how to turn a photo after its pixels: ``read_photo`` knows that, so it is read here, too."""

TURNED = frozenset({5, 6, 7, 8})
"""EXIF orientations in which rows of the file are columns of the upright photo."""

MIRRORED = (frozenset({3, 4, 7, 8}), frozenset({2, 3, 6, 7}))
"""EXIF orientations in which the file runs from the bottom of the upright photo to its top, and from right to left."""

Pixels = NDArray[np.int64]
Spans = tuple[Pixels, Pixels]
"""First pixels that are touched, and those after the last ones."""


@dataclass(frozen=True)
class Blocks:
    """What of a photo is changed as a whole: blocks of ``size``, and decoded so many pixels ``beyond`` them."""

    size: Size = (1, 1)
    beyond: Size = (0, 0)


PIXELS = Blocks()
"""A change after the photo was compressed stays where it is."""

BLOCKS = {0: Blocks((8, 8)), 1: Blocks((8, 16), (0, 1)), 2: Blocks((16, 16), (1, 1))}
"""By Pillow's number of the subsampling: 4:4:4, 4:2:2, 4:2:0. Decoders blur chroma across the edges of its pixels."""


@dataclass(frozen=True)
class Stored:
    """A photo as its file has it: its size, how EXIF says to turn it (1: not at all), what is changed together."""

    height: int
    width: int
    orientation: int = 1
    blocks: Blocks = PIXELS

    @property
    def turned(self) -> bool:
        """Whether rows of the file are columns of the upright photo."""
        return self.orientation in TURNED

    @property
    def upright(self) -> Size:
        """Height and width as ``read_photo`` gives it."""
        return (self.width, self.height) if self.turned else (self.height, self.width)


class Reach(NamedTuple):
    """The largest height and width that a patch reaches in the input, and a corner in the file where it does."""

    size: Size
    corner: Size


def stored(source: Path | BinaryIO, before_jpeg: bool = False, name: str | None = None) -> Stored:
    """What counts of a file that ``read_photo`` reads, for a patch put on its picture before or after JPEG."""
    with opened(source, name or str(source)) as file:
        if file.format in LATE:
            file.load()
        orientation = file.getexif().get(ExifTags.Base.Orientation, 1)
        blocks = _blocks(file, name or str(source)) if before_jpeg else PIXELS
        known = file.format in SIZED
        width, height = file.size if known else ImageOps.exif_transpose(file).size
    if orientation in TURNED and not known:
        width, height = height, width
    return Stored(height, width, orientation if orientation in range(1, 9) else 1, blocks)


def share_of(percent: Fraction, photo: Stored) -> int:
    """The side that is so many percent of the photo's shorter one, rounded up to whole pixels."""
    return math.ceil(percent * min(photo.upright) / 100)


def touched(photo: Stored, framing: Framing, image: Size, box: Box) -> Box | None:
    """All pixels of the input that a change inside a box of the file can move lie in this one; None: all is cut off."""
    top, bottom, left, right = box
    if not (0 <= top < bottom <= photo.height and 0 <= left < right <= photo.width):
        raise DataError(f"expected a box inside the photo {photo.width}×{photo.height}, got {box}")
    rows, columns = _axes(photo, framing, image)
    down, across = rows.span(top, bottom), columns.span(left, right)
    if down[0] >= down[1] or across[0] >= across[1]:
        return None
    return (*across, *down) if photo.turned else (*down, *across)


def spans(photo: Stored, framing: Framing, image: Size, patch: Size) -> tuple[Spans, Spans]:
    """What the patch touches along either axis of the file, for each place that it can have there."""
    rows, columns = _axes(photo, framing, image)
    down, across = (np.arange(axis.length - side + 1) for axis, side in zip((rows, columns), patch, strict=True))
    return rows.touched(down, patch[0]), columns.touched(across, patch[1])


@lru_cache(maxsize=4096)
def largest_reach(photo: Stored, framing: Framing, image: Size, patch: Size) -> Reach:
    """How much of the input a patch of this size, anywhere in the file, can move at most."""
    if patch[0] > photo.height or patch[1] > photo.width:
        raise DataError(
            f"expected a patch inside the photo, {photo.height} pixels high and {photo.width} wide, "
            f"got {patch[0]}×{patch[1]}"
        )
    rows, columns = _axes(photo, framing, image)
    (height, top), (width, left) = rows.most(patch[0]), columns.most(patch[1])
    return Reach((width, height) if photo.turned else (height, width), (top, left))


@lru_cache(maxsize=4096)
def largest_side(photo: Stored, framing: Framing, image: Size, reach: Size) -> int:
    """The side of the largest square patch that, anywhere in the file, reaches no more of the input than this.

    0 where a single pixel reaches more. A larger patch holds a smaller one, and reaches no less: halving finds it.
    """
    fits, fails = 0, min(photo.upright) + 1
    while fails - fits > 1:
        side = (fits + fails) // 2
        height, width = largest_reach(photo, framing, image, (side, side)).size
        if height <= reach[0] and width <= reach[1]:
            fits = side
        else:
            fails = side
    return fits


def shared_patch(reach: Size, image: Size) -> Patch:
    """A patch that holds what is reached, one of a few sizes, so that photos of many sizes share covers."""
    steps = [max(most // CLASSES, 1) for most in image]
    height, width = (min(-(-side // s) * s, most) for side, s, most in zip(reach, steps, image, strict=True))
    return Patch(height, width)


@dataclass(frozen=True)
class Axis:
    """One axis of a file: the pixels of a line that each input pixel reads, from ``first`` to before ``last``.

    These count along the upright photo, which is ``mirrored`` if the file runs the other way.
    """

    length: int
    first: Pixels
    last: Pixels
    mirrored: bool
    block: int
    beyond: int

    def touched(self, starts: Pixels, pixels: int) -> Spans:
        """The first input pixels that read one of so many from each start on, and those after the last ones."""
        low = np.maximum(starts // self.block * self.block - self.beyond, 0)
        high = np.minimum(-(-(starts + pixels) // self.block) * self.block + self.beyond, self.length)
        if self.mirrored:
            low, high = self.length - high, self.length - low
        return np.searchsorted(self.last, low, side="right"), np.searchsorted(self.first, high, side="left")

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The same for one run of pixels."""
        (first,), (end,) = self.touched(np.array([start]), stop - start)
        return int(first), int(end)

    def most(self, pixels: int) -> tuple[int, int]:
        """How many input pixels so many neighbours can touch, and where these begin."""
        begin, end = self.touched(np.arange(self.length - pixels + 1), pixels)
        start = int(np.argmax(end - begin))
        return int(end[start] - begin[start]), start


@lru_cache(maxsize=4096)
def _axes(photo: Stored, framing: Framing, image: Size) -> tuple[Axis, Axis]:
    """The file's rows and columns."""
    upright = (1, 0) if photo.turned else (0, 1)
    rows, columns = (_axis(photo, framing, image, axis, upright[axis]) for axis in (0, 1))
    return rows, columns


def _axis(photo: Stored, framing: Framing, image: Size, axis: int, upright: int) -> Axis:
    """One of the file, rows first, that is this one of the upright photo."""
    resized, corner = framing.cut(photo.upright, image)
    length = photo.upright[upright]
    seen = slice(corner[upright], corner[upright] + image[upright])
    first, last = _read(length, resized[upright], framing.resampling)
    mirrored = photo.orientation in MIRRORED[upright]
    return Axis(length, first[seen], last[seen], mirrored, photo.blocks.size[axis], photo.blocks.beyond[axis])


def _read(length: int, resized: int, resampling: str) -> tuple[Pixels, Pixels]:
    """What each pixel of a resized line reads of the old one, by Pillow's own bounds: from there to before there."""
    if resized == length:
        return np.arange(length), np.arange(length) + 1
    if resampling == "nearest":
        numbers = Image.fromarray(np.arange(length, dtype=np.int32)[None])
        first = np.asarray(numbers.resize((resized, 1), RESAMPLINGS[resampling]))[0].astype(np.int64)
        return first, first + 1
    scale = length / resized
    support = SUPPORTS[resampling] * max(scale, 1.0)
    centres = (np.arange(resized) + 0.5) * scale
    first = np.maximum(centres - support + 0.5, 0).astype(np.int64)
    return first, np.minimum(centres + support + 0.5, length).astype(np.int64)


def _blocks(file: Image.Image, name: str) -> Blocks:
    """Those of a JPEG file; an error for any other."""
    if not isinstance(file, JpegImageFile):
        raise DataError(f"expected a JPEG file for a patch before compression, got {file.format} in {name}")
    sampling = 0 if file.layers == 1 else get_sampling(file)
    if sampling not in BLOCKS:
        raise DataError(f"expected chroma sampled 4:4:4, 4:2:2 or 4:2:0 in a JPEG file, got something else in {name}")
    return BLOCKS[sampling]
