"""The ways to build a cover. Sizes and folds are ``(height, width)``; one number stands for both."""

from __future__ import annotations

from collections.abc import Callable

from certmask.covers.cover import Cover, build
from certmask.errors import CoverError
from certmask.geometry import Mask, reach, smallest_mask
from certmask.geometry.paper import effective_coverage
from certmask.threat import Patch, Size, checked_patch, checked_size

Starts = Callable[[int, int, int], list[list[int]]]


def minimal_cover(image: Size | int, patch: Patch | Size | int, mask: Size | int, fold: Size | int = 1) -> Cover:
    """Every place of the patch lies inside k masks, exactly ``N*(k)`` in all: no k-fold cover has fewer.

    Masks differ wherever the slack allows; one as large as the image always blanks out the same pixels.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    mask: the size of a mask, at least that of the patch
    fold: how many masks cover a place along each axis; ``(2, 3)`` makes k = 6
    """
    return _grid_cover("minimal", minimal_starts, image, patch, mask, fold)


def spread_cover(
    image: Size | int, patch: Patch | Size | int, mask: Size | int, fold: Size | int = 1, align: int = 1
) -> Cover:
    """Every place of the patch lies inside k masks, spread evenly so that juries really differ.

    Takes at most ``fold − 1`` more starts per axis than the minimum.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    mask: the size of a mask, at least that of the patch
    fold: how many masks cover a place along each axis, at most the positions that one mask covers
    align: masks start at multiples of it, such as 16 for the tokens of a ViT
    """
    return _grid_cover("spread", spread_starts, image, patch, mask, fold, align)


def _grid_cover(
    tiling: str,
    starts: Starts,
    image: Size | int,
    patch: Patch | Size | int,
    mask: Size | int,
    fold: Size | int,
    align: int = 1,
) -> Cover:
    image, patch, mask, fold = _checked(image, patch, mask, fold)
    s_y, s_x = aligned_reach(image, patch, mask, align)
    n_y, n_x = (-(-n // align) for n in patch.positions(image))
    grids = [
        [Mask(align * top, align * left, *mask) for top in tops for left in lefts]
        for tops in starts(n_y, s_y, fold[0])
        for lefts in starts(n_x, s_x, fold[1])
    ]
    return build(tiling, image, patch, mask, fold, grids, complete=True, align=align)


def replicated_cover(image: Size | int, patch: Patch | Size | int, mask: Size | int, fold: Size | int = 1) -> Cover:
    """Every place of the patch lies inside a mask that votes k times: the paper's Replicated Tiling.

    Effective areas of ``M − 2r`` stand side by side from the corner on. The copies are one mask, and cost one pass.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    mask: the size of a mask, larger than the patch along both axes
    fold: k as a product of two numbers; only the product counts
    """
    image, patch, mask, fold = _checked(image, patch, mask, fold)
    e_y, e_x = effective_coverage(patch, mask)
    grid = [
        Mask(top, left, *mask)
        for top in range(-(patch.height // 2), image[0] - patch.height // 2, e_y)
        for left in range(-(patch.width // 2), image[1] - patch.width // 2, e_x)
    ]
    return build("replicated", image, patch, mask, fold, [grid] * (fold[0] * fold[1]), complete=True)


def offset_cover(image: Size | int, patch: Patch | Size | int, mask: Size | int, fold: Size | int = 1) -> Cover:
    """Every place of the patch lies inside k masks: the paper's Offset Tiling, wrapped at the borders.

    Masks start every ``(M − 2r)/m`` pixels, rounded down; the part that leaves the image comes in on the other side.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    mask: the size of a mask, larger than the patch along both axes
    fold: how many masks cover a place along each axis; ``(2, 3)`` makes k = 6
    """
    image, patch, mask, fold = _checked(image, patch, mask, fold)
    e_y, e_x = effective_coverage(patch, mask)
    tops = [i * e_y // fold[0] - mask[0] // 2 for i in range(-(-fold[0] * image[0] // e_y))]
    lefts = [i * e_x // fold[1] - mask[1] // 2 for i in range(-(-fold[1] * image[1] // e_x))]
    grid = [Mask(top, left, *mask, wraps=True) for top in tops for left in lefts]
    return build("offset", image, patch, mask, fold, [grid], complete=fold == (1, 1))


def patchcleanser_cover(
    image: Size | int,
    patch: Patch | Size | int,
    per_axis: Size | int | None = None,
    mask: Size | int | None = None,
    align: int = 1,
) -> Cover:
    """Every place of the patch lies inside a mask, none of which leaves the image: PatchCleanser's (Xiang et al. 2022).

    With masks on a grid, ``align``, the last ones may stick out of the image; ``per_axis`` then also ends them there.

    image: the size of the model's input, (height, width) or the side of a square
    patch: what the attacker may put on it; a number stands for a square
    per_axis: how many masks along each axis, as large as they must be; or
    mask: the size of a mask, at least that of the patch, as many as it takes
    align: masks start at multiples of it, such as 16 for the tokens of a ViT
    """
    image, patch = checked_size(image, "image"), checked_patch(patch)
    if (per_axis is None) == (mask is None):
        raise CoverError(f"expected either per_axis or mask, got per_axis={per_axis!r} and mask={mask!r}")
    if per_axis is not None:
        mask = smallest_mask(image, patch, checked_size(per_axis, "masks per axis"), checked_size(align, "align")[0])
    assert mask is not None
    image, patch, mask, _ = _checked(image, patch, mask, 1)
    s_y, s_x = (align * steps for steps in aligned_reach(image, patch, mask, align))
    (n_y, n_x), (r_y, r_x) = patch.positions(image), reach(patch, mask)
    tops = clamped_starts(image[0], mask[0], s_y) if align == 1 else range(0, max(n_y - r_y, 0) + s_y, s_y)
    lefts = clamped_starts(image[1], mask[1], s_x) if align == 1 else range(0, max(n_x - r_x, 0) + s_x, s_x)
    grid = [Mask(top, left, *mask) for top in tops for left in lefts]
    return build("patchcleanser", image, patch, mask, (1, 1), [grid], complete=True, align=align)


def aligned_reach(image: Size, patch: Patch, mask: Size, align: int) -> Size:
    """How many steps of ``align`` there may be between two masks in a row, along each axis."""
    checked_size(align, "align")
    steps = tuple(
        max(reached // align, int(reached >= positions))
        for reached, positions in zip(reach(patch, mask), patch.positions(image), strict=True)
    )
    if not all(steps):
        least = patch.height + align - 1, patch.width + align - 1
        raise CoverError(
            f"expected a mask of at least {least[0]}×{least[1]} where masks start every {align} pixels, "
            f"got {mask[0]}×{mask[1]}"
        )
    return steps[0], steps[1]


def _checked(
    image: Size | int, patch: Patch | Size | int, mask: Size | int, fold: Size | int
) -> tuple[Size, Patch, Size, Size]:
    image, mask, fold = checked_size(image, "image"), checked_size(mask, "mask"), checked_size(fold, "fold")
    patch = checked_patch(patch)
    patch.positions(image)
    reach(patch, mask)
    return image, patch, mask, fold


# Mask starts along one axis: a start ``a`` covers the patch positions ``a … a + reach − 1``.


def minimal_starts(positions: int, reach: int, fold: int) -> list[list[int]]:
    """``fold`` grids of exactly ``⌈positions/reach⌉`` starts, shifted against each other as far as the slack allows."""
    count = -(-positions // reach)
    slack = count * reach - positions
    shifts = [slack // 2] if fold == 1 else [g * slack // (fold - 1) for g in range(fold)]
    return [[j * reach - shift for j in range(count)] for shift in shifts]


def spread_starts(positions: int, reach: int, fold: int) -> list[list[int]]:
    """``fold`` complete grids, interleaved at stride ``reach/fold``: at most ``fold − 1`` starts over the minimum.

    ``⌊j·reach/fold⌋`` puts exactly ``fold`` starts into every window of ``reach``, so the fold holds everywhere.
    """
    if fold > reach:
        raise CoverError(
            f"expected a fold of at most {reach} per axis (the positions one mask covers), got {fold}: "
            "the masks would repeat; take a larger mask or a smaller fold"
        )
    first, last = 1 - fold, -(-positions * fold // reach) - 1
    shift = ((last + 1) * reach // fold - positions) // 2
    starts = {j: j * reach // fold - shift for j in range(first, last + 1)}
    return [[start for j, start in starts.items() if j % fold == g] for g in range(fold)]


def clamped_starts(length: int, mask: int, stride: int) -> list[int]:
    """Starts ``0, stride, …``, the last one moved back so that its mask ends at the border."""
    last = max(length - mask, 0)
    return [*range(0, last, stride), last]
