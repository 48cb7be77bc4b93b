"""Mask starts along one axis. A start ``a`` covers the patch positions ``a … a + reach − 1``."""

from __future__ import annotations

from certmask.errors import CoverError


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
