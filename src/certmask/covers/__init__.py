"""The ways to build a cover; each returns masks together with their verified fold."""

from certmask.covers.bands import band_cover, block_cover
from certmask.covers.cover import Cover, cover_text, custom_cover
from certmask.covers.default import default_cover
from certmask.covers.register import TILINGS, cover_from
from certmask.covers.tilings import (
    minimal_cover,
    offset_cover,
    patchcleanser_cover,
    replicated_cover,
    spread_cover,
)
from certmask.covers.zoom import joined_cover, stacked_cover, zoom_cover

__all__ = [
    "TILINGS",
    "Cover",
    "band_cover",
    "block_cover",
    "cover_from",
    "cover_text",
    "custom_cover",
    "default_cover",
    "joined_cover",
    "minimal_cover",
    "offset_cover",
    "patchcleanser_cover",
    "replicated_cover",
    "spread_cover",
    "stacked_cover",
    "zoom_cover",
]
