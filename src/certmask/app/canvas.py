"""Pictures of a study: what every place claims, level by level, and the photo with patches; as addresses of images."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from certmask.report.drawing import SIDE, Box, with_frames
from certmask.report.map import Map, paint_map
from certmask.report.markup import data_uri
from certmask.report.plots import BLUE, ORANGE
from certmask.threat import Size

CLEAR, OTHER, CLOSER, BEFORE = BLUE, ORANGE, "#3d4450", "#c9ced6"
"""Colours of places: settled for the answer, settled for another class, looked at closer, settled before."""
OPACITY = 0.55
INCHES, DOTS = 4.0, 100


def claims_picture(photo: Image.Image, shown: Map) -> str:
    """The photo with what every place claims, as ``certmask predict --draw`` paints it."""
    height, width = shown.cover.image
    figure = Figure(figsize=(INCHES, INCHES * height / width))
    axes = figure.add_axes((0, 0, 1, 1))
    paint_map(axes, photo, shown)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    FigureCanvasAgg(figure)
    out = io.BytesIO()
    figure.savefig(out, dpi=DOTS, format="png", pil_kwargs={"compress_level": 0})
    return _png(Image.open(out))


def level_picture(photo: Image.Image, shown: Map, level: int, doubtful: Collection[int] = ()) -> str:
    """The photo with the places that a level settled, and those that were looked at closer, or are in doubt.

    A place is painted at the centres of the patches that belong to it, as on the map of claims.
    """
    scale = photo.width // shown.cover.image[1]
    territory = shown.territory.repeat(scale, axis=0).repeat(scale, axis=1)
    colours = np.array([_colour(shown, number, level, number in doubtful) for number in range(len(shown.places))])[
        territory
    ]
    top, left = (scale * (length - 1) // 2 for length in shown.patch.size)
    pixels = np.asarray(photo, dtype=np.float64).copy()
    rows, columns = territory.shape
    under = pixels[top : top + rows, left : left + columns]
    pixels[top : top + rows, left : left + columns] = (1 - OPACITY) * under + OPACITY * colours
    return picture_uri(Image.fromarray(pixels.round().astype(np.uint8)))


def _colour(shown: Map, number: int, level: int, doubtful: bool) -> tuple[int, ...]:
    place = shown.places[number]
    if place.level < level:
        return _rgb(BEFORE)
    if place.level > level or doubtful:
        return _rgb(CLOSER)
    return _rgb(CLEAR if place.claim == shown.answer else OTHER)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def framed_picture(photo: Image.Image, image: Size, corner: Size, patch: Size) -> str:
    """The photo with a frame where a patch is, or is to be; ``image`` is the size of the model's input."""
    (top, left), (height, width), scale = corner, patch, photo.width // image[1]
    frame: Box = (scale * left, scale * top, scale * (left + width), scale * (top + height))
    return _png(with_frames(photo, [frame], joined=False))


def with_patch(sharp: Image.Image, picture: Image.Image, corner: Size, patch: Size) -> Image.Image:
    """The photo for people with the patch that a model's input carries."""
    (top, left), (height, width), scale = corner, patch, sharp.width // picture.width
    content, found = picture.crop((left, top, left + width, top + height)), sharp.copy()
    large = content.resize((scale * width, scale * height), Image.Resampling.NEAREST)
    found.paste(large, (scale * left, scale * top))
    return found


def picture_uri(photo: Image.Image, side: int = SIDE) -> str:
    """A picture of at most ``side`` pixels; a small one keeps its own, which the page shows as squares."""
    if max(photo.size) <= side:
        return _png(photo)
    small = photo.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _png(small)


def small_pictures(photos: Sequence[Image.Image], side: int = 112) -> list[str]:
    """Many pictures, small."""
    return [picture_uri(photo, side) for photo in photos]


def _png(picture: Image.Image) -> str:
    out = io.BytesIO()
    picture.convert("RGB").save(out, format="PNG", compress_level=4)
    return data_uri(out.getvalue(), "image/png")
