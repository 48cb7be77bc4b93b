"""The CertMask paper's own formulas (Lyu et al., AAAI 2026), kept beside the exact counts for comparison.

They let the patch *centre* range over the whole image and so count more masks than are needed.
"""

from __future__ import annotations

from certmask.errors import GeometryError
from certmask.threat import Patch, Size


def effective_coverage(patch: Patch, mask: Size) -> Size:
    """``M − 2r`` along each axis (the paper's Theorem 1); it must be positive for the paper's formulas to apply."""
    height, width = mask[0] - patch.height, mask[1] - patch.width
    if height < 1 or width < 1:
        raise GeometryError(
            f"expected a mask larger than the patch {patch.height}×{patch.width} (the paper's formulas divide by "
            f"the difference), got {mask[0]}×{mask[1]}"
        )
    return height, width


def theorem2_bound(length: int, patch_length: int, mask_length: int) -> int:
    """Theorem 2: at least ``⌈L/(M − 2r)⌉`` masks in one dimension (above the true minimum)."""
    e, _ = effective_coverage(Patch(patch_length, 1), (mask_length, 2))
    return -(-length // e)


def theorem3_bound(image: Size, patch: Patch, mask: Size, k: int) -> int:
    """Theorem 3: at least ``k·⌈L_x L_y / ((M_x − 2r_x)(M_y − 2r_y))⌉`` masks (above the true minimum)."""
    e_y, e_x = effective_coverage(patch, mask)
    return k * -(-(image[0] * image[1]) // (e_y * e_x))


def theorem4_ratio(image: Size, patch: Patch, mask: Size) -> float:
    """Theorem 4 claims that Replicated Tiling's count over Theorem 3's bound is at most 2."""
    return replicated_count(image, patch, mask, 1) / theorem3_bound(image, patch, mask, 1)


def replicated_count(image: Size, patch: Patch, mask: Size, k: int) -> int:
    """Masks of Replicated Tiling: ``k·⌈L_x/(M_x − 2r_x)⌉·⌈L_y/(M_y − 2r_y)⌉``."""
    return k * offset_count(image, patch, mask, (1, 1))


def offset_count(image: Size, patch: Patch, mask: Size, fold: Size) -> int:
    """Masks of Offset Tiling: ``⌈m·L_x/(M_x − 2r_x)⌉·⌈n·L_y/(M_y − 2r_y)⌉``."""
    e_y, e_x = effective_coverage(patch, mask)
    return -(-fold[0] * image[0] // e_y) * -(-fold[1] * image[1] // e_x)
