"""Maps over a photo: how sure each place is of the answer, where it was looked at closer, where a proof is weakest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch as Swatch
from matplotlib.patches import Rectangle
from PIL import Image

from certmask.certificate import Place, Weakest, class_name
from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.geometry.shapes import position_spans
from certmask.report.drawing import RED, patches_in, save_figure
from certmask.report.plots import BLUE, NAME, ORANGE
from certmask.report.reasons import weak_point
from certmask.threat import Patch, Size

DOUBT, PLAIN = "#f7f7f7", "#8fb8d8"
COLOURS = LinearSegmentedColormap.from_list("sureness", [ORANGE, DOUBT, BLUE])
"""From sure of another class over doubt to sure of the answer."""
FULL = {"probability": 1.0, "logarithm": 8.0}
"""The lead that has the full colour, by its unit."""
LEADS = {"probability": "in probability", "logarithm": "in log-probability, nats"}
PALE = 300
"""How much lighter the photo below a map is, so that colours on it compare."""
NOTE = 9.5
TITLE = 110
"""The size of smaller letters, and how many of a title's are in a line."""


@dataclass(frozen=True)
class Map:
    """What every place of a cover claims beside an answer, with leads in ``unit``.

    ``proved`` says whether the answer is certified against the whole threat, ``weakest`` where that is weakest, or
    where it failed.
    """

    cover: Cover
    places: Sequence[Place]
    answer: int
    unit: str = "probability"
    proved: bool = False
    weakest: Weakest | None = None

    @property
    def leads(self) -> npt.NDArray[np.float64]:
        """By how much each place's claim leads, negative where it is not the answer, ``[places]``."""
        return np.array([place.lead if place.claim == self.answer else -place.lead for place in self.places])

    @property
    def territory(self) -> IntArray:
        """The place that each location of the patch belongs to, ``[rows, columns]``.

        A location may belong to several, where every mask is a place or there are several patches: it is the least sure
        one's.
        """
        found = np.zeros(self.patch.positions(self.cover.image), dtype=np.int64)
        leads, juries = self.leads, [0 if self.cover.levels else len(place.masks) for place in self.places]
        shown = [n for n, place in enumerate(self.places) if self.cover.patches[place.patch] == self.patch]
        for number in sorted(shown, key=lambda n: (juries[n], -leads[n])):
            for locations in self._locations(self.places[number]):
                found[locations] = number
        return found

    @property
    def patch(self) -> Patch:
        """The largest patch, where the threat has several sizes: the others are not shown."""
        return max(self.cover.patches, key=lambda patch: (patch.height * patch.width, -abs(patch.height - patch.width)))

    def _locations(self, place: Place) -> list[Any]:
        """Where a patch is that a place's masks hide; larger juries, painted later, take their districts from it."""
        if self.cover.levels:
            return [np.s_[top:bottom, left:right] for top, bottom, left, right in place.boxes]
        (rows, columns), patch, image = self.patch.positions(self.cover.image), self.patch, self.cover.image
        masks = [self.cover.masks[number] for number in place.masks]
        hidden = np.ix_(
            np.all([_within(mask.rows(image), patch.height, rows) for mask in masks], axis=0),
            np.all([_within(mask.columns(image), patch.width, columns) for mask in masks], axis=0),
        )
        return [hidden]

    @property
    def looks(self) -> IntArray:
        """Places that the same masks settled have one number, ``[places]``."""
        numbers: dict[tuple[int, ...], int] = {}
        return np.array([numbers.setdefault(place.masks, len(numbers)) for place in self.places])


def _within(pixels: tuple[tuple[int, int], ...], length: int, positions: int) -> npt.NDArray[np.bool_]:
    """Which positions of a patch along an axis lie inside runs of pixels."""
    found = np.zeros(positions, dtype=bool)
    for low, high in position_spans(pixels, length):
        found[low:high] = True
    return found


def draw_map(photo: Image.Image, shown: Map, names: Sequence[str], title: str, path: Path) -> None:
    """Left: the model's input and where the proof is weakest. Right: how sure every place is of the answer."""
    figure = Figure(figsize=(10, 6.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    patch = shown.patch
    left.imshow(photo, extent=_extent(shown.cover.image))
    left.set_title(f"the model's input; dotted: the size of the patch, {patch.height}×{patch.width}", fontsize=NOTE)
    left.add_patch(Rectangle((4, 4), patch.width, patch.height, fill=False, edgecolor="white", lw=1.5))
    left.add_patch(Rectangle((4, 4), patch.width, patch.height, fill=False, edgecolor="black", lw=1.5, ls=":"))
    paint_map(right, photo, shown)
    right.set_title("how sure the answer is, should a patch have its centre here", fontsize=NOTE)
    _legend(figure, right, shown, names)
    for axes in (left, right):
        _mark_weakest(axes, shown)
        axes.set(xlim=(0, photo.width), ylim=(photo.height, 0))
        axes.set_axis_off()
    figure.suptitle("\n".join(fill(line, TITLE) for line in title.splitlines()), fontsize=11)
    save_figure(figure, path)


def paint_map(axes: Axes, photo: Image.Image, shown: Map) -> None:
    """Every location of the patch over the pale photo, at the patch's centre, in the colour of its place.

    White lines part places that different masks settled, black ones where they were looked at closer.
    """
    patch, territory = shown.patch, shown.territory
    rows, columns = territory.shape
    top, left = (patch.height - 1) / 2, (patch.width - 1) / 2
    axes.imshow(photo.convert("L"), cmap="gray", vmin=-PALE, vmax=255, extent=_extent(shown.cover.image))
    colour = shades(shown.leads / FULL[shown.unit])[territory]
    where = (left, left + columns, top + rows, top)
    axes.imshow(colour, cmap=COLOURS, vmin=-1, vmax=1, alpha=0.62, extent=where, interpolation="nearest")
    closer = np.array([place.level > 0 for place in shown.places])[territory]
    looks = shown.looks[territory]
    for chosen, colour_of, width in ((~closer, "white", 1.0), (closer, "black", 0.9)):
        axes.add_collection(LineCollection(_borders(looks, chosen, top, left), colors=colour_of, linewidths=width))


def shades(leads: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Colours of leads from -1 to 1: roots, so that a small lead shows whose it is."""
    return np.sign(leads) * np.sqrt(np.abs(leads))


def _borders(
    looks: IntArray, chosen: npt.NDArray[np.bool_], top: float, left: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Lines around the looks of chosen locations, a location long each."""
    looks, chosen = np.pad(looks, 1, constant_values=-1), np.pad(chosen, 1)
    down = (looks[1:, 1:-1] != looks[:-1, 1:-1]) & (chosen[1:, 1:-1] | chosen[:-1, 1:-1])
    across = (looks[1:-1, 1:] != looks[1:-1, :-1]) & (chosen[1:-1, 1:] | chosen[1:-1, :-1])
    flat = [((left + x, top + y), (left + x + 1, top + y)) for y, x in np.argwhere(down).tolist()]
    return flat + [((left + x, top + y), (left + x, top + y + 1)) for y, x in np.argwhere(across).tolist()]


def _mark_weakest(axes: Axes, shown: Map) -> None:
    """A frame around all that a patch at the weakest place may cover; a pair's frames are joined."""
    if shown.weakest is None:
        return
    sizes = shown.weakest.sizes or (shown.patch.size,) * len(shown.weakest.places)
    frames = [patches_in(box, size) for box, size in zip(shown.weakest.places, sizes, strict=True)]
    centres = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in frames]
    for colour, width in (("white", 3.6), (RED, 1.8)):
        axes.plot(*zip(*centres, strict=True), color=colour, lw=width - 0.6)
        for left, top, right, bottom in frames:
            frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, lw=width)
            axes.add_patch(frame).set_clip_on(False)


def _legend(figure: Figure, axes: Axes, shown: Map, names: Sequence[str]) -> None:
    """What the colours, the lines and the frames mean, as far as they are there."""
    answer, full = class_name(shown.answer, names), FULL[shown.unit]
    (scaled,) = (image for image in axes.images if image.get_cmap().name == COLOURS.name)
    bar = figure.colorbar(scaled, ax=axes, orientation="horizontal", fraction=0.05, pad=0.02)
    bar.set_ticks([-1, -0.5, 0, 0.5, 1], labels=[f"{full * part:g}" for part in (1, 0.25, 0, 0.25, 1)])
    answer = answer if len(answer) <= NAME else f"{answer[: NAME - 1]}…"
    bar.set_label(f"← another class leads · {answer} leads →\n({LEADS[shown.unit]})", fontsize=NOTE)
    closer = sum(place.level > 0 for place in shown.places)
    signs = [Swatch(fc=PLAIN, ec="white", lw=1.5, label=_first_sight(shown, closer))]
    if closer:
        signs.append(Swatch(fc=PLAIN, ec="black", label=f"{closer:,} were looked at closer, with smaller masks"))
    if shown.weakest:
        said = weak_point(shown.weakest.describe(), shown.proved, [level.mask for level in shown.cover.levels])
        signs.append(Swatch(fc="none", ec=RED, lw=2, label=f"{said};\nframed: all that a patch there may cover"))
    figure.legend(handles=signs, loc="outside lower center", ncols=1, frameon=False, fontsize=NOTE)


def _first_sight(shown: Map, closer: int) -> str:
    """What white lines part."""
    count = len(shown.places)
    if shown.cover.levels:
        return f"{count - closer:,} of {count:,} places were settled at first sight; lines part what one mask settled"
    alone = all(len(place.masks) == 1 for place in shown.places)
    top = "; where they overlap, the least sure is on top" if alone else ""
    return f"lines part the {count:,} places that different masks judge{top}"


def _extent(image: Size) -> tuple[float, float, float, float]:
    """Pixels of the model's input are squares of side 1, the first from 0 to 1, however sharp the photo is."""
    return 0, image[1], image[0], 0
