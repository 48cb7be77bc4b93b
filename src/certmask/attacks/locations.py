"""Where to put a patch: at random, and where a defence has its weak spots or a program its off-by-ones."""

from __future__ import annotations

import numpy as np

from certmask.attacks.juries import Juries
from certmask.errors import AttackError
from certmask.geometry import IntArray
from certmask.geometry.shapes import Run

SEARCHED = "searched"
PLACES = (SEARCHED, "random", "lowest fold", "border", "edge")
"""Kinds of places, in the order in which a gauntlet takes them."""


def pick_corner(place: str, juries: Juries, chance: np.random.Generator) -> IntArray:
    """One corner ``(top, left)`` of the given kind; ``searched`` needs a network and is found elsewhere."""
    pick = {"random": _random, "lowest fold": _lowest_fold, "border": _border, "edge": _edge}.get(place)
    if pick is None:
        raise AttackError(f"expected a place among {', '.join(PLACES[1:])}, got {place!r}")
    return pick(juries, chance)


def _random(juries: Juries, chance: np.random.Generator) -> IntArray:
    return chance.integers(0, _positions(juries))


def _lowest_fold(juries: Juries, chance: np.random.Generator) -> IntArray:
    """A place that as few masks cover as any."""
    corners = juries.cover.districts.corner
    folds = juries.folds(corners)
    return np.asarray(corners[chance.choice(np.flatnonzero(folds == folds.min()))])


def _border(juries: Juries, chance: np.random.Generator) -> IntArray:
    """On the border of the image; in a corner every second time."""
    last = _positions(juries) - 1
    extreme = last * chance.integers(0, 2, size=2)
    inner = _random(juries, chance)
    free = chance.integers(0, 4)
    return np.asarray(np.where(np.arange(2) == free, inner, extreme))


def _edge(juries: Juries, chance: np.random.Generator) -> IntArray:
    """Where a mask misses the patch by one pixel; at the seam of a wrapped mask, if there is one."""
    cover = juries.cover
    prints = [mask.footprint(cover.image) for mask in cover.masks]
    split = [rows for rows in prints if any(len(runs) > 1 for runs in rows)]
    footprint = (split or prints)[chance.integers(len(split or prints))]
    corner = [_beside(runs, length, chance) for runs, length in zip(footprint, cover.patch.size, strict=True)]
    inside = [runs[0][0] for runs in footprint]
    wanted = np.where(np.arange(2) == chance.integers(0, 3), inside, corner)
    return np.asarray(np.clip(wanted, 0, _positions(juries) - 1))


def _beside(runs: tuple[Run, ...], length: int, chance: np.random.Generator) -> int:
    """A position that sticks out of one of the runs by one pixel."""
    low, high = runs[chance.integers(len(runs))]
    return int(chance.choice([low - 1, high - length + 1]))


def _positions(juries: Juries) -> IntArray:
    return np.array(juries.cover.patch.positions(juries.cover.image), dtype=np.int64)
