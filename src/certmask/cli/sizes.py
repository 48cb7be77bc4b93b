"""Sizes and folds as people type them."""

from __future__ import annotations

import re

from certmask.covers import TILINGS, Cover
from certmask.covers.default import FOLD, default_fold, default_mask
from certmask.errors import CertmaskError
from certmask.geometry import minimum_masks
from certmask.threat import Patch, Size

MOST_MASKS = 200_000


def parse_size(text: str, what: str) -> Size:
    """``224`` or ``224x320`` (height × width)."""
    found = re.fullmatch(r"(\d+)(?:[x×,](\d+))?", text.strip())
    if not found or not all(1 <= int(number or 1) <= 100_000 for number in found.groups()):
        raise CertmaskError(f"expected {what} like {'1 or 3x2' if what == 'fold' else '32 or 32x48'}, got {text!r}")
    return int(found[1]), int(found[2] or found[1])


def make_patch(text: str | None, image: Size) -> Patch:
    """The patch that was asked for, else a seventh of the model's input along each side: 32×32 on 224×224."""
    if text is not None:
        return Patch(*parse_size(text, "patch"))
    return Patch(*(max(1, round(side / 7)) for side in image))


def mask_and_fold(
    image: Size, patch: Patch, mask: str | None, tiling: str, fold: str | None, rule: str = "jury-recovery"
) -> tuple[Size, Size]:
    """What was asked for; what was left open is chosen to suit the rule."""
    many = rule == "jury-recovery" and tiling == "spread"
    wanted = parse_size(fold, "fold") if fold is not None else FOLD if many else (1, 1)
    size = parse_size(mask, "mask") if mask is not None else default_mask(image, patch, wanted)
    return size, default_fold(patch, size) if many and fold is None else wanted


def make_cover(
    image: Size, patch: Patch, mask: str | None, tiling: str, fold: str | None, rule: str = "jury-recovery"
) -> Cover:
    """The cover that the options describe."""
    if tiling not in TILINGS:
        raise CertmaskError(f"expected tiling to be one of {', '.join(TILINGS)}, got {tiling!r}")
    size, folds = mask_and_fold(image, patch, mask, tiling, fold, rule)
    count = minimum_masks(image, patch, size, folds[0] * folds[1])
    if count > MOST_MASKS:
        raise CertmaskError(
            f"expected a cover of at most {MOST_MASKS:,} masks, got {count:,} or more: take a larger mask"
        )
    if tiling == "patchcleanser":
        if folds != (1, 1):
            raise CertmaskError(f"expected fold 1x1 for the patchcleanser tiling, got {fold}")
        return TILINGS[tiling](image, patch, mask=size)
    return TILINGS[tiling](image, patch, size, folds)
