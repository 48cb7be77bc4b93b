"""Small pictures for a page: photos as the model saw them, with the jury of one place drawn over them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from PIL import Image, ImageDraw

from certmask.covers import Cover
from certmask.data import Framing, Sample, pixel_digest, read_photo, to_array
from certmask.errors import ResultsError
from certmask.geometry import Mask
from certmask.report.markup import data_uri
from certmask.report.plots import PALETTE
from certmask.results.file import Row, picture_folder
from certmask.results.run import Run
from certmask.threat import Size

SIDE = 288
Photos = Mapping[str, Sample]
"""Photos by the names that results files call them."""


def seen_photo(run: Run, row: Row, photos: Photos) -> Image.Image:
    """The model's input of one row; an error if the photo is missing or not the one that was certified."""
    name = row["image"]
    if name not in photos:
        raise ResultsError(f"expected the photo {name} of {run.name}, got none of that name")
    height, width = run.model["size"]
    photo = Framing.described(run.data)(photos[name].photo(), (height, width))
    if pixel_digest(to_array(photo)) != row.get("input_sha256"):
        raise ResultsError(f"expected the photo {name} as {run.name} certified it, got one with other pixels")
    return photo


def saved_picture(attack: Run, row: Row) -> Image.Image | None:
    """The attacked picture of an attempt, None where it was not kept; an error if it is not the one that was judged."""
    folder, name = picture_folder(attack.path), row.get("picture")
    if not isinstance(name, str):
        return None
    if Path(name).name != name:
        raise ResultsError(f"expected a picture inside {folder.name}, got {name!r}")
    if not (folder / name).is_file():
        return None
    picture = read_photo(folder / name)
    if pixel_digest(to_array(picture)) != row.get("picture_sha256"):
        raise ResultsError(f"expected the picture {name} as it was judged, got one with other pixels")
    return picture


def with_jury(photo: Image.Image, cover: Cover) -> Image.Image:
    """The photo with a patch in the middle (black) and every mask that covers it (coloured)."""
    large, scale = _enlarged(photo)
    top, left = middle(cover)
    layer = Image.new("RGBA", large.size)
    draw = ImageDraw.Draw(layer)
    for number, mask in enumerate(jury(cover)):
        for box in _boxes(mask, cover.image, scale):
            draw.rectangle(box, outline=PALETTE[number % len(PALETTE)], width=3)
    right, bottom = left + cover.patch.width, top + cover.patch.height
    patch = (left * scale, top * scale, right * scale - 1, bottom * scale - 1)
    draw.rectangle(patch, fill=(0, 0, 0, 215), outline=(255, 255, 255, 255), width=1)
    return Image.alpha_composite(large.convert("RGBA"), layer).convert("RGB")


def jury(cover: Cover) -> list[Mask]:
    """The masks that cover a patch in the middle."""
    return [mask for mask in cover.masks if mask.covers(middle(cover), cover.patch, cover.image)]


def middle(cover: Cover) -> Size:
    return (cover.image[0] - cover.patch.height) // 2, (cover.image[1] - cover.patch.width) // 2


def with_frame(picture: Image.Image, corner: Size, patch: Size) -> Image.Image:
    """The picture with a frame around its patch."""
    large, scale = _enlarged(picture)
    (top, left), (height, width) = corner, patch
    box = (left * scale - 2, top * scale - 2, (left + width) * scale + 1, (top + height) * scale + 1)
    draw = ImageDraw.Draw(large)
    draw.rectangle(box, outline="white", width=4)
    draw.rectangle(box, outline="#d00000", width=2)
    return large


def thumbnail(picture: Image.Image) -> str:
    """The picture as a small JPEG inside an address."""
    out = io.BytesIO()
    _enlarged(picture)[0].save(out, format="JPEG", quality=82)
    return data_uri(out.getvalue(), "image/jpeg")


def _enlarged(photo: Image.Image) -> tuple[Image.Image, float]:
    """The photo so that its longer side has ``SIDE`` pixels, and the scale; small ones keep their square pixels."""
    scale = SIDE / max(photo.size)
    if scale == 1:
        return photo.copy(), 1.0
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    return photo.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.LANCZOS), scale


def _boxes(mask: Mask, image: Size, scale: float) -> list[tuple[float, float, float, float]]:
    """The visible pieces of a mask as left, top, right, bottom."""
    return [
        (x0 * scale, y0 * scale, x1 * scale - 1, y1 * scale - 1)
        for y0, y1 in mask.rows(image)
        for x0, x1 in mask.columns(image)
    ]
