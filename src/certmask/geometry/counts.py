"""How many masks a k-fold cover needs, exactly (masks that do not wrap)."""

from __future__ import annotations

from certmask.errors import GeometryError
from certmask.threat import Patch, Size, checked_size


def reach(patch: Patch, mask: Size) -> Size:
    """How many consecutive patch positions one mask covers along each axis."""
    if mask[0] < patch.height or mask[1] < patch.width:
        raise GeometryError(
            f"expected a mask at least as large as the patch {patch.height}×{patch.width}, got {mask[0]}×{mask[1]}"
        )
    return mask[0] - patch.height + 1, mask[1] - patch.width + 1


def smallest_mask(image: Size, patch: Patch, per_axis: Size, align: int = 1) -> Size:
    """The smallest mask with which so many masks per axis cover every position once, all edges multiples of ``align``.

    Along an axis where no mask inside the image will do, it is as long as the image.
    """
    n_y, n_x = patch.positions(image)
    return (
        _smallest_side(image[0], patch.height, n_y, per_axis[0], align),
        _smallest_side(image[1], patch.width, n_x, per_axis[1], align),
    )


def _smallest_side(image: int, patch: int, positions: int, count: int, align: int) -> int:
    """Each mask starts ``stride`` after the one before; the last one covers what is left."""
    for stride in range(align, image, align):
        side = align * -(-(stride + patch - 1) // align)
        if (count - 1) * stride + side - patch + 1 >= positions:
            return min(side, image)
    return image


def minimum_per_axis(image: Size, patch: Patch, mask: Size) -> Size:
    """The fewest masks per axis that cover every position once: ``⌈n/s⌉``."""
    (n_y, n_x), (s_y, s_x) = patch.positions(image), reach(patch, mask)
    return -(-n_y // s_y), -(-n_x // s_x)


def minimum_masks(image: Size, patch: Patch, mask: Size, k: int = 1) -> int:
    """No k-fold cover by masks of this size has fewer masks than this, and one has exactly this many."""
    checked_size(k, "fold")
    per_y, per_x = minimum_per_axis(image, patch, mask)
    return k * per_y * per_x
