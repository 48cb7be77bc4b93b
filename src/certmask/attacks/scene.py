"""A stored photo as an attacker has it: patches are written into it, and the model sees what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from certmask.data import Framing, to_tensor
from certmask.data.framing import RESAMPLINGS
from certmask.data.reach import Spans, Stored, spans, touched
from certmask.errors import BrokenCertificateError
from certmask.geometry import IntArray
from certmask.threat import Patch, Size

LEVELS = 255


@dataclass(frozen=True)
class Scene:
    """A photo, upright as ``read`` gives it, a patch of so many of its pixels, and the patch in the input to hold that.

    A *corner* is that of the ``threat`` in the input, a *place* the patch's top left pixel in the photo.
    """

    read: Callable[[], Image.Image]
    size: Size
    framing: Framing
    image: Size
    patch: Size
    threat: Patch

    @property
    def photo(self) -> Stored:
        """The upright photo as it is attacked: after it was decoded and turned."""
        return Stored(*self.size)

    def snapped(self, corner: Sequence[int]) -> list[int]:
        """The nearest corner at which the threat's box holds all that the patch touches from some place."""
        axes = zip(*self._axes(), self.image, corner, strict=True)
        return [_nearest(_holding(span, side, extent), at) for span, side, extent, at in axes]

    def place(self, corner: Sequence[int]) -> list[int]:
        """Where the patch touches most, and nothing outside of the threat's box at this corner."""
        return [_widest(span, at, at + side) for span, side, at in zip(*self._axes(), corner, strict=True)]

    def _axes(self) -> tuple[tuple[Spans, Spans], Size]:
        return spans(self.photo, self.framing, self.image, self.patch), self.threat.size

    def painted(self, content: NDArray[np.uint8], place: Sequence[int]) -> Tensor:
        """The model's input of the photo with this content ``[h, w, 3]`` written into it; an error beyond its reach.

        That nothing else changes is Theorem 16, and is looked at every time.
        """
        photo = self.read()
        clean, pixels = self._input(photo), np.array(photo)
        (top, left), (height, width) = place, self.patch
        pixels[top : top + height, left : left + width] = content
        picture = self._input(Image.fromarray(pixels))
        box = touched(self.photo, self.framing, self.image, (top, top + height, left, left + width))
        outside = (picture != clean).any(dim=0)
        if box is not None:
            outside[box[0] : box[1], box[2] : box[3]] = False
        if outside.any():
            raise BrokenCertificateError(
                f"expected a patch at {tuple(place)} of the photo to change nothing outside of {box} in the input, "
                "got another pixel changed: a fault in the reach"
            )
        return picture

    def _input(self, photo: Image.Image) -> Tensor:
        return to_tensor(self.framing(photo, self.image))

    def seen(self, corner: Sequence[int], place: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of the patch's rows and columns in those of the box, and what the box shows of a black patch."""
        resized, cut = self.framing.cut(self.size, self.image)
        pixels = np.array(self.read(), dtype=np.float32) / LEVELS
        pixels[place[0] : place[0] + self.patch[0], place[1] : place[1] + self.patch[1]] = 0
        box = [slice(c + at, c + at + side) for c, at, side in zip(cut, corner, self.threat.size, strict=True)]
        rows, columns = (
            _weights(self.size[axis], resized[axis], self.framing.resampling, place[axis], self.patch[axis])[box[axis]]
            for axis in (0, 1)
        )
        planes = [_resized(plane, resized, self.framing.resampling)[tuple(box)] for plane in pixels.transpose(2, 0, 1)]
        return torch.from_numpy(rows.copy()), torch.from_numpy(columns.copy()), torch.from_numpy(np.stack(planes))

    def describe(self, corner: Sequence[int]) -> dict[str, Any]:
        """As an attempts file records it: where the patch is in the upright photo, and what it becomes."""
        return {"corner": self.place(corner), "patch": list(self.patch), "threat": list(self.threat.size)}


@dataclass(frozen=True)
class Lens:
    """How patches in photos look in the model's input, differentiable: sums with the weights of the resampling.

    ``rows [n, p, h]`` and ``columns [n, q, w]`` weigh patches ``[n, 3, h, w]``, smaller ones filled up with zeros;
    ``ground [n, 3, p, q]`` is what the photo adds. Rounding is left out: this guides an attack and decides nothing.
    """

    rows: Tensor
    columns: Tensor
    ground: Tensor

    @classmethod
    def of(cls, scenes: Sequence[Scene], corners: Tensor) -> Lens:
        """Of photos with patches that touch what lies at these corners ``[n, 2]``, on the corners' device."""
        seen = [scene.seen(corner, scene.place(corner)) for scene, corner in zip(scenes, corners.tolist(), strict=True)]
        rows, columns, ground = zip(*seen, strict=True)
        return cls(*(part.to(corners.device) for part in (_filled(rows), _filled(columns), torch.stack(ground))))

    @property
    def size(self) -> Size:
        """Height and width of the largest patch."""
        return self.rows.shape[2], self.columns.shape[2]

    def __call__(self, patches: Tensor) -> Tensor:
        """What patches ``[n, 3, h, w]`` are in the input, ``[n, 3, p, q]``; slopes pass where values are cut off."""
        summed = self.ground + self.rows[:, None] @ patches @ self.columns[:, None].transpose(2, 3)
        return summed + (summed.clamp(0, 1) - summed).detach()


def snapped(scenes: Sequence[Scene], corners: Tensor) -> Tensor:
    """The nearest corners ``[n, 2]`` that patches in these photos can be sent to."""
    near = [scene.snapped(corner) for scene, corner in zip(scenes, corners.tolist(), strict=True)]
    return torch.tensor(near, device=corners.device)


def painted(scenes: Sequence[Scene], patches: Tensor, corners: Tensor) -> Tensor:
    """The inputs ``[n, 3, H, W]`` of photos into which patches ``[n, 3, h, w]`` were really written, in 8 bits."""
    contents = (patches.detach().cpu().clamp(0, 1) * LEVELS).round().byte().permute(0, 2, 3, 1).numpy()
    return torch.stack(
        [
            scene.painted(content[: scene.patch[0], : scene.patch[1]], scene.place(corner))
            for scene, content, corner in zip(scenes, contents, corners.tolist(), strict=True)
        ]
    )


def _holding(span: Spans, side: int, extent: int) -> IntArray:
    """Where runs of this length begin that hold all that is touched from some place, where something is."""
    begin, end = span
    known = end > begin
    least, most = end[known] - side, begin[known]
    corners = np.arange(extent - side + 1)
    return np.flatnonzero(((corners >= least[:, None]) & (corners <= most[:, None])).any(axis=0))


def _nearest(corners: IntArray, wish: int) -> int:
    return int(corners[np.abs(corners - wish).argmin()])


def _widest(span: Spans, low: int, high: int) -> int:
    """The place from which most is touched between two pixels and nothing beyond; of several, the middle one."""
    begin, end = span
    lengths = np.where((begin >= low) & (end <= high), end - begin, -1)
    best = np.flatnonzero(lengths == lengths.max())
    return int(best[len(best) // 2])


def _weights(length: int, resized: int, resampling: str, start: int, count: int) -> NDArray[np.float32]:
    """What each of ``count`` pixels of a line weighs in each pixel of the resized line, ``[resized, count]``."""
    lines = np.eye(count, length, start, dtype=np.float32)
    return np.asarray(_resized(lines, (count, resized), resampling).T)


def _resized(plane: NDArray[np.float32], size: Size, resampling: str) -> NDArray[np.float32]:
    image = Image.fromarray(np.ascontiguousarray(plane))
    return np.asarray(image.resize((size[1], size[0]), RESAMPLINGS[resampling]))


def _filled(weights: Sequence[Tensor]) -> Tensor:
    """Weights ``[p, h]`` of several patches as one tensor, with zeros for what a smaller patch does not have."""
    most = max(own.shape[1] for own in weights)
    return torch.stack([torch.nn.functional.pad(own, (0, most - own.shape[1])) for own in weights])
