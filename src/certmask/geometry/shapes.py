"""Masks, and which patch locations they cover. Integers only."""

from __future__ import annotations

from dataclasses import dataclass

from certmask.threat import Patch, Size, checked_size

Span = tuple[int, int]
"""Half-open interval ``[start, stop)`` of pixels or of patch positions along one axis."""


@dataclass(frozen=True, order=True)
class Mask:
    """A rectangle to blank out; over the border it is clipped, or goes on at the opposite border if it wraps."""

    top: int
    left: int
    height: int
    width: int
    wraps: bool = False

    def __post_init__(self) -> None:
        checked_size((self.height, self.width), "mask")

    def rows(self, image: Size) -> tuple[Span, ...]:
        """The pixel rows that the mask blanks out."""
        return pixel_spans(self.top, self.height, image[0], self.wraps)

    def columns(self, image: Size) -> tuple[Span, ...]:
        """The pixel columns that the mask blanks out."""
        return pixel_spans(self.left, self.width, image[1], self.wraps)

    def footprint(self, image: Size) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Rows and columns; two masks with one footprint are the same mask to a classifier."""
        return self.rows(image), self.columns(image)

    def covers(self, location: Size, patch: Patch, image: Size) -> bool:
        """Whether a patch with its top-left corner at ``location`` lies wholly inside the mask."""
        return _inside(location[0], self.rows(image), patch.height) and _inside(
            location[1], self.columns(image), patch.width
        )


def pixel_spans(start: int, length: int, extent: int, wraps: bool) -> tuple[Span, ...]:
    """The pixels of ``[0, extent)`` that an interval from ``start`` blanks out, as sorted runs."""
    if wraps and length >= extent:
        return ((0, extent),)
    if wraps:
        start %= extent
        overflow = start + length - extent
        return ((0, overflow), (start, extent)) if overflow > 0 else ((start, start + length),)
    low, high = max(start, 0), min(start + length, extent)
    return ((low, high),) if low < high else ()


def position_spans(pixels: tuple[Span, ...], patch_length: int) -> tuple[Span, ...]:
    """The patch positions along one axis that lie wholly inside one of the pixel runs."""
    return tuple((low, high - patch_length + 1) for low, high in pixels if high - low >= patch_length)


def _inside(position: int, pixels: tuple[Span, ...], patch_length: int) -> bool:
    return any(low <= position < high for low, high in position_spans(pixels, patch_length))
