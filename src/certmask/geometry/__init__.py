"""Masks, districts, juries and counts: integers only, no images and no models."""

from certmask.geometry.counts import minimum_masks, minimum_per_axis, reach, smallest_mask
from certmask.geometry.districts import Districts, IntArray, find_districts
from certmask.geometry.shapes import Mask

__all__ = [
    "Districts",
    "IntArray",
    "Mask",
    "find_districts",
    "minimum_masks",
    "minimum_per_axis",
    "reach",
    "smallest_mask",
]
