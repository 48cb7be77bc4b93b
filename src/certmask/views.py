"""Views: a picture as it is, mirrored or upside down. A classifier may look at several and take the mean."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from certmask.errors import ClassifierError

if TYPE_CHECKING:
    from torch import Tensor

VIEWS: dict[str, tuple[int, ...]] = {"plain": (), "mirror": (3,), "upside-down": (2,)}
"""The axes of a batch ``[n, 3, height, width]`` along which a view turns its pictures over."""
PLAIN = ("plain",)


def checked_views(views: Any) -> tuple[str, ...]:
    """The views that are named, each once, in the order of the table: their mean is the same, to the last bit."""
    found = tuple(name for name in VIEWS if name in views) if isinstance(views, Collection) else ()
    if not found or len(found) != len(views):
        raise ClassifierError(f"expected views among {', '.join(VIEWS)}, each once, got {views!r}")
    return found


def turned(images: Tensor, view: str) -> Tensor:
    """A batch as one view shows it."""
    return images.flip(VIEWS[view]) if VIEWS[view] else images
