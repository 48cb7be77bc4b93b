"""Pictures of covers, of votes and of learning curves; small pictures for a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image, ImageDraw

from certmask.covers import Cover
from certmask.covers.costs import certificate_passes
from certmask.errors import ResultsError
from certmask.geometry import Mask
from certmask.report.markup import data_uri
from certmask.report.plots import PALETTE
from certmask.threat import Size

RED = "#d00000"
SIDE = 288
"""Pixels of the longer side of a small picture."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


def draw_cover(cover: Cover, choice: Sequence[Cover], path: Path) -> None:
    """Left: every mask's centre, and the jury of one place. Right: passes of this cover and of a choice of others."""
    figure = Figure(figsize=(10.4, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_jury(left, cover)
    _draw_prices(right, cover, choice)
    figure.suptitle(str(cover))
    save_figure(figure, path)


def _draw_jury(axes: Axes, cover: Cover) -> None:
    """A patch in the middle of the image, and every mask that covers it."""
    height, width = cover.image
    centres = np.array([_centre(mask, cover) for mask in cover.masks])
    axes.scatter(centres[:, 1], centres[:, 0], s=4, color="0.6", linewidths=0)
    top, left = middle(cover)
    members = jury(cover, (top, left))
    for number, mask in enumerate(members):
        colour = PALETTE[number % len(PALETTE)]
        for x0, y0, x1, y1 in _pieces(mask, cover):
            piece = Rectangle((x0, y0), x1 - x0, y1 - y0, edgecolor=colour, lw=1.5)
            piece.set_facecolor((*to_rgb(colour), 0.10))
            axes.add_patch(piece)
    axes.add_patch(Rectangle((left, top), cover.patch.width, cover.patch.height, facecolor="0.15"))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xlabel="pixels", ylabel="pixels")
    low, high = cover.min_fold, cover.max_fold
    folds = f"{low}" if low == high else f"{low} to {high}"
    jurors = "the mask that hides it" if len(members) == 1 else f"its jury: the {len(members)} masks that hide it"
    axes.set_title(
        f"a patch (black) and {jurors}\ndots: centres of all {len(cover):,} masks; fold at any place: {folds}"
    )


def _draw_prices(axes: Axes, cover: Cover, choice: Sequence[Cover]) -> None:
    """Passes to detect and to prove recovery against how much of the picture a mask hides; this cover is marked."""
    covers = sorted({other.mask: other for other in (*choice, cover)}.values(), key=_hidden)
    proof = "masks and aligned pairs" if cover.grids else "masks and all pairs"
    prices: dict[str, Callable[[Cover], int]] = {"detection: masks": len, f"recovery: {proof}": certificate_passes}
    for (name, price), colour, above in zip(prices.items(), PALETTE[:2], (-15, 7), strict=True):
        axes.plot([*map(_hidden, covers)], [*map(price, covers)], "o-", ms=4, lw=1.2, color=colour, label=name)
        axes.plot([_hidden(cover)], [price(cover)], "o", ms=10, mfc="none", mew=1.8, color=colour)
        look: dict[str, Any] = {"xytext": (7, above), "textcoords": "offset points", "color": colour, "weight": "bold"}
        axes.annotate(f"{price(cover):,}", (_hidden(cover), price(cover)), **look)
    axes.set(yscale="log", ylabel="most passes per image (log scale)", xlabel="part of the picture under one mask (%)")
    low, high = min(map(len, covers)), max(map(certificate_passes, covers))
    axes.set(xlim=(0, 1.15 * _hidden(covers[-1])), ylim=(low / 2, 2 * high))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    size = f"{cover.mask[0]}×{cover.mask[1]}"
    axes.set_title(f"what it costs: {size} (rings) beside other masks\nlarger ones cost less and hide more")


def _hidden(cover: Cover) -> float:
    """The part of the picture that one whole mask hides, in percent."""
    return 100 * min(1.0, cover.mask[0] * cover.mask[1] / (cover.image[0] * cover.image[1]))


def paint_votes(
    axes: Axes, photo: Image.Image, cover: Cover, votes: Sequence[tuple[int, float]], colour: Mapping[int, str]
) -> None:
    """One square per mask over the pale photo, in the colour of its class, paler where it is less sure."""
    axes.imshow(photo.convert("L"), cmap="gray", alpha=0.35)
    side = 0.8 * _spacing(cover)
    for mask, (label, confidence) in zip(cover.masks, votes, strict=True):
        y, x = _centre(mask, cover)
        square = Rectangle((x - side / 2, y - side / 2), side, side)
        square.set(facecolor=(*to_rgb(colour[label]), 0.25 + 0.75 * confidence), edgecolor="white", lw=0.5)
        axes.add_patch(square)
    axes.set(xlim=(0, cover.image[1]), ylim=(cover.image[0], 0))
    axes.set_axis_off()


def draw_curves(history: Sequence[dict[str, float]], title: str, path: Path) -> None:
    """Left: training loss. Right: accuracy on (occluded) training and on validation photos, as its name says."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = [entry["epoch"] for entry in history]
    left.plot(epochs, [entry["loss"] for entry in history], marker="o", color=PALETTE[0])
    left.set(xlabel="epoch", ylabel="training loss (nats)")
    for number, kind in enumerate(("training", "validation")):
        for key in (name for name in history[0] if name.startswith(kind)):
            shares = [100 * entry[key] for entry in history]
            right.plot(epochs, shares, marker="o", color=PALETTE[number], label=key.replace("_", " "))
    right.set(xlabel="epoch", ylabel="accuracy (%)")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as its suffix says."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ResultsError(f"expected a picture file that can be written, got {path} ({error})") from None


def jury(cover: Cover, place: Size) -> list[Mask]:
    """The masks that cover a patch at a place."""
    return [mask for mask in cover.masks if mask.covers(place, cover.patch, cover.image)]


def middle(cover: Cover) -> Size:
    """The place of a patch in the middle."""
    return (cover.image[0] - cover.patch.height) // 2, (cover.image[1] - cover.patch.width) // 2


def _pieces(mask: Mask, cover: Cover) -> list[Box]:
    """The visible pieces of a mask."""
    return [(x0, y0, x1, y1) for y0, y1 in mask.rows(cover.image) for x0, x1 in mask.columns(cover.image)]


def _centre(mask: Mask, cover: Cover) -> tuple[float, float]:
    """The centre of the mask's visible part; where it wraps, of its larger piece."""
    x0, y0, x1, y1 = max(_pieces(mask, cover), key=lambda box: (box[3] - box[1], box[2] - box[0]))
    return (y0 + y1) / 2, (x0 + x1) / 2


def _spacing(cover: Cover) -> float:
    """The smallest distance between neighbouring mask centres along an axis."""
    gaps = [np.diff(sorted({_centre(mask, cover)[axis] for mask in cover.masks})) for axis in (0, 1)]
    return float(min((g.min() for g in gaps if len(g)), default=min(cover.image) / 2))


def with_jury(photo: Image.Image, cover: Cover, place: Size) -> Image.Image:
    """The photo with a patch at a place (black) and every mask that covers it (coloured)."""
    large, scale = _enlarged(photo)
    layer = Image.new("RGBA", large.size)
    draw = ImageDraw.Draw(layer)
    for number, mask in enumerate(jury(cover, place)):
        for piece in _pieces(mask, cover):
            draw.rectangle(_scaled(piece, scale), outline=PALETTE[number % len(PALETTE)], width=3)
    top, left = place
    patch = _scaled((left, top, left + cover.patch.width, top + cover.patch.height), scale)
    draw.rectangle(patch, fill=(0, 0, 0, 215), outline=(255, 255, 255, 255), width=1)
    return Image.alpha_composite(large.convert("RGBA"), layer).convert("RGB")


def with_frames(picture: Image.Image, frames: Sequence[Box], colour: str = RED, *, joined: bool = True) -> Image.Image:
    """The picture with frames around some of its pixels; those of a pair are ``joined`` by a line."""
    large, scale = _enlarged(picture)
    draw = ImageDraw.Draw(large)
    pair = frames if joined else ()
    joint = [(scale * (left + right) / 2, scale * (top + bottom) / 2) for left, top, right, bottom in pair]
    draw.line(joint, fill="white", width=4)
    draw.line(joint, fill=colour, width=2)
    for left, top, right, bottom in frames:
        near = max(left * scale - 2, 0), max(top * scale - 2, 0)
        box = (*near, min(right * scale + 1, large.width - 1), min(bottom * scale + 1, large.height - 1))
        draw.rectangle(box, outline="white", width=4)
        draw.rectangle(box, outline=colour, width=2)
    return large


def patches_in(place: Sequence[int], patch: Size) -> Box:
    """All pixels that a patch may cover with its top left corner in a box of rows and columns."""
    top, bottom, left, right = place
    return left, top, right - 1 + patch[1], bottom - 1 + patch[0]


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


def _scaled(box: Box, scale: float) -> tuple[float, float, float, float]:
    """The outermost pixels of a box on an enlarged photo."""
    left, top, right, bottom = (edge * scale for edge in box)
    return left, top, right - 1, bottom - 1
