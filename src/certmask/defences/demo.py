"""The defences that `certmask demo` compares."""

from __future__ import annotations

from certmask.covers import default_cover, offset_cover, patchcleanser_cover, spread_cover
from certmask.defences.masked import MaskedDefence
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Published, Undefended
from certmask.threat import Patch

PATCH = Patch(32, 32)


def demo_defences() -> list[MaskedDefence]:
    """Six defences against a 32×32 patch (2 % of the picture)."""
    offset = offset_cover(224, PATCH, 96, (2, 3))
    single = spread_cover(224, PATCH, 80)
    fourfold = default_cover(224, PATCH)
    return [
        MaskedDefence(single, Undefended(), "undefended"),
        MaskedDefence(offset, Published(), "published rule k=6"),
        MaskedDefence(fourfold, JuryDetection(), "jury detection k=4"),
        MaskedDefence(single, JuryRecovery("all"), "jury recovery k=1"),
        MaskedDefence(fourfold, JuryRecovery("aligned"), "jury recovery k=4"),
        MaskedDefence(patchcleanser_cover(224, PATCH, 4), PatchCleanser(), "PatchCleanser 4×4"),
    ]
