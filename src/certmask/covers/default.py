"""Covers for those who do not want to choose one: docs/appendix/covers.md has the measurement that they rest on."""

from __future__ import annotations

from dataclasses import dataclass

from certmask.covers.bands import BAND_TILINGS
from certmask.covers.cover import Cover
from certmask.covers.register import TILINGS
from certmask.covers.tilings import patchcleanser_cover
from certmask.covers.zoom import Level, default_levels, zoom_cover
from certmask.errors import CertmaskError, CoverError
from certmask.geometry import minimum_masks, reach, smallest_mask
from certmask.threat import Patch, Size, Threat, checked_patch

DEFAULT_FOLD = (2, 2)
PER_AXIS = (4, 4)
SINGLE_PER_AXIS = (6, 6)
"""Masks per axis where one mask per place is asked for."""

MOST_MASKS = 200_000


def default_patch(image: Size) -> Patch:
    """A seventh of the model's input along each side: 32×32 on 224×224."""
    return Patch(*(max(1, round(side / 7)) for side in image))


def default_mask(image: Size, patch: Patch, fold: Size = DEFAULT_FOLD) -> Size:
    """The mask for a fold: the smallest of which 4 per axis cover every place once, 6 per axis for a single fold."""
    return smallest_mask(image, patch, SINGLE_PER_AXIS if fold == (1, 1) else PER_AXIS)


def default_fold(patch: Patch, mask: Size) -> Size:
    """2×2, or less where a mask does not cover two neighbouring places."""
    s_y, s_x = reach(patch, mask)
    return min(DEFAULT_FOLD[0], s_y), min(DEFAULT_FOLD[1], s_x)


def default_cover(image: Size | int, patch: Threat | Size | int) -> Cover:
    """Every place by few large masks and, where those are in doubt, by small ones, for ``JuryRecovery()``.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    """
    return zoom_cover(image, patch)


def mask_and_fold(
    image: Size, patch: Patch, tiling: str, mask: Size | None, fold: Size | None, many: bool
) -> tuple[Size, Size]:
    """What was asked for; what was left open is chosen: several masks per place where ``many`` are worth it."""
    many = many and tiling == "spread"
    wanted = fold if fold is not None else DEFAULT_FOLD if many else (1, 1)
    size = mask if mask is not None else default_mask(image, patch, wanted)
    return size, default_fold(patch, size) if many and fold is None else wanted


@dataclass(frozen=True)
class Wishes:
    """What is asked of a cover; what is None is chosen.

    ``align`` is the grid that masks of several levels lie on, or the stride of bands of width ``band``.
    """

    tiling: str | None = None
    mask: Size | None = None
    fold: Size | None = None
    levels: tuple[Level, ...] | None = None
    align: int | None = None
    band: int | None = None

    @property
    def single(self) -> bool:
        """Whether something is asked for that a cover of several levels does not have."""
        return self.tiling not in (None, "zoom") or self.mask is not None or self.fold is not None


NOTHING_WISHED = Wishes()
ONCE = "zoom-once"
"""What suits rules that judge hypotheses, but no pairs of them."""


def _levels(threat: Threat, wishes: Wishes, suits: str) -> tuple[Level, ...] | None:
    """Those that were asked for; for rules of a single mask per place one level."""
    if wishes.levels is None and suits == "single" and not isinstance(threat, Patch):
        return SINGLE_PER_AXIS[:1]
    if wishes.levels is None and suits == ONCE and threat.count > 1:
        return default_levels(threat, rounds=1)
    return wishes.levels


def suited_cover(image: Size, threat: Threat, wishes: Wishes = NOTHING_WISHED, suits: str = "zoom") -> Cover:
    """The cover that is asked for, as far as it is, else one that ``suits`` a rule, as its register says.

    An error if it has more masks than anybody could want.
    """
    kind = "zoom" if suits == ONCE or not isinstance(threat, Patch) else suits
    tiling = wishes.tiling or (kind if kind in ("zoom", "bands") and not wishes.single else "spread")
    if tiling not in TILINGS:
        raise CertmaskError(f"expected tiling to be one of {', '.join(TILINGS)}, got {tiling!r}")
    if tiling == "zoom":
        return zoom_cover(image, threat, _levels(threat, wishes, suits), wishes.align)
    patch = checked_patch(threat)
    if tiling in BAND_TILINGS:
        return TILINGS[tiling](image, patch, wishes.band, wishes.align or 1)
    size, folds = mask_and_fold(image, patch, tiling, wishes.mask, wishes.fold, suits == "many")
    count = minimum_masks(image, patch, size, folds[0] * folds[1])
    if count > MOST_MASKS:
        raise CoverError(f"expected a cover of at most {MOST_MASKS:,} masks, got {count:,} or more: take a larger mask")
    if tiling == "patchcleanser":
        if folds != (1, 1):
            raise CoverError(f"expected fold 1x1 for the patchcleanser tiling, got {folds[0]}x{folds[1]}")
        return patchcleanser_cover(image, patch, mask=size)
    return TILINGS[tiling](image, patch, size, folds)
