"""The register of tilings, and covers rebuilt from what results files say about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certmask.covers.bands import BAND_TILINGS, band_cover, block_cover
from certmask.covers.cover import Cover, against
from certmask.covers.tilings import minimal_cover, offset_cover, patchcleanser_cover, replicated_cover, spread_cover
from certmask.covers.zoom import joined_cover, stacked_cover, zoom_cover
from certmask.errors import ResultsError
from certmask.threat import Patch

TILINGS: dict[str, Callable[..., Cover]] = {
    "minimal": minimal_cover,
    "spread": spread_cover,
    "replicated": replicated_cover,
    "offset": offset_cover,
    "patchcleanser": patchcleanser_cover,
    "zoom": zoom_cover,
    "bands": band_cover,
    "blocks": block_cover,
}


def cover_from(description: dict[str, Any]) -> Cover:
    """The cover that ``Cover.describe`` described; an error if it cannot be rebuilt to the last mask."""
    tiling = description["tiling"]
    if tiling not in (*TILINGS, "joined"):
        raise ResultsError(f"expected a tiling among {', '.join(TILINGS)}, got {tiling!r}")
    image, patch, mask = tuple(description["image"]), against(description), tuple(description["mask"])
    options = {"align": description["align"]} if "align" in description else {}
    if tiling == "zoom":
        cover = stacked_cover([cover_from(level) for level in description["levels"]])
    elif tiling == "joined":
        patches = [Patch(*size) for size in description["patches"]]
        cover = joined_cover(patch, patches, [cover_from(part) for part in description["parts"]])
    elif tiling in BAND_TILINGS:
        cover = TILINGS[tiling](image, patch, image[1] - mask[1], description.get("align", 1))
    elif tiling == "patchcleanser":
        cover = TILINGS[tiling](image, patch, mask=mask, **options)
    else:
        cover = TILINGS[tiling](image, patch, mask, tuple(description["fold"]), **options)
    rebuilt = {**cover.describe(), "digest": cover.digest_as(str(description.get("digest")))}
    for key in {**description, **rebuilt}:
        if description.get(key) != rebuilt.get(key):
            raise ResultsError(
                f"expected the cover with {key} {description.get(key)!r}, got {rebuilt.get(key)!r} when it was rebuilt"
            )
    return cover
