"""Masks, districts, juries and counts: integers only, no images and no models."""

from certmask.geometry.cells import Cells, find_cells
from certmask.geometry.counts import minimum_masks, minimum_per_axis, reach, smallest_mask
from certmask.geometry.districts import Districts, IntArray, find_districts
from certmask.geometry.shapes import Mask

__all__ = [
    "Cells",
    "Districts",
    "IntArray",
    "Mask",
    "find_cells",
    "find_districts",
    "minimum_masks",
    "minimum_per_axis",
    "reach",
    "smallest_mask",
]
