"""The defences that `certmask demo` compares."""

from __future__ import annotations

from certmask.covers import default_cover, offset_cover, patchcleanser_cover
from certmask.defences.masked import MaskedDefence
from certmask.rules import JuryRecovery, PatchCleanser, Published, Undefended
from certmask.threat import Patch

IMAGE, PATCH = 32, Patch(5, 5)
UNDEFENDED, PUBLISHED, ZOOM = "undefended", "published rule k=6", "zoom"


def demo_defences(margin: float = 0.0) -> list[MaskedDefence]:
    """Four defences against a 5×5 patch (2.4 % of the picture)."""
    zoom = default_cover(IMAGE, PATCH)
    return [
        MaskedDefence(zoom, Undefended(), UNDEFENDED),
        MaskedDefence(offset_cover(IMAGE, PATCH, 14, (2, 3)), Published(margin), PUBLISHED),
        MaskedDefence(patchcleanser_cover(IMAGE, PATCH, 6), PatchCleanser(margin=margin), "PatchCleanser 6×6"),
        MaskedDefence(zoom, JuryRecovery(margin=margin), ZOOM),
    ]
