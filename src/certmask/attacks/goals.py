"""What an attacker wants of each vote, one goal per way to beat a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from certmask.attacks.juries import Juries
from certmask.geometry import IntArray
from certmask.rules import Rule

HIDDEN, TURN, KEEP = 0, 1, 2
Wishes = npt.NDArray[np.int8]
"""One of HIDDEN (out of reach), TURN (to the target) or KEEP (on the true class) per mask."""


Wish = Callable[[Juries, IntArray, np.random.Generator], Wishes]
"""What is wanted of each mask's vote when the patch is at each corner ``[n, 2]``: ``[n, masks]``."""


@dataclass(frozen=True)
class Goal:
    """A way to beat a rule: which votes to turn, whether through pairs of masks too, and by how much.

    ``bare`` looks at the picture without masks. A ``narrow`` goal is content with a small lead, so that all effort
    goes to the votes that still resist.
    """

    name: str
    wish: Wish
    bare: bool = False
    pairs: bool = False
    narrow: bool = False


def turn_all(juries: Juries, corners: IntArray, _chance: np.random.Generator) -> Wishes:
    """Turn every vote within reach."""
    return np.where(juries.members(corners), HIDDEN, TURN).astype(np.int8)


def spare_one(juries: Juries, corners: IntArray, chance: np.random.Generator) -> Wishes:
    """Turn all but the vote of the mask that hides most of the patch: it is the hardest to turn."""
    wishes = turn_all(juries, corners, chance)
    spared = np.where(wishes == TURN, juries.hidden(corners), -1).argmax(axis=1)
    rows = np.flatnonzero((wishes == TURN).sum(axis=1) > 1)
    wishes[rows, spared[rows]] = KEEP
    return wishes


def exactly_k(juries: Juries, corners: IntArray, chance: np.random.Generator) -> Wishes:
    """Turn masks that lie together and have k votes, or as many as add up to less; keep the others."""
    cover, covered = juries.cover, juries.members(corners)
    wishes = np.where(covered, HIDDEN, KEEP).astype(np.int8)
    starts = np.array([(mask.top, mask.left) for mask in cover.masks])
    for row, reachable in zip(wishes, map(np.flatnonzero, ~covered), strict=True):
        first = starts[chance.choice(reachable)] if len(reachable) else starts[0]
        votes = 0
        for mask in reachable[np.argsort(np.abs(starts[reachable] - first).sum(axis=1), kind="stable")]:
            if votes + cover.copies[mask] <= cover.k:
                votes += cover.copies[mask]
                row[mask] = TURN
    return wishes


BARE_PICTURE = Goal("plain", turn_all, bare=True)
TURN_ALL = Goal("turn all", turn_all)
TURN_NARROWLY = Goal("turn all narrowly", turn_all, narrow=True)
WIN_DUELS = Goal("win the duels", turn_all, pairs=True)
SPARE_ONE = Goal("spare one", spare_one)
EXACTLY_K = Goal("exactly k", exactly_k)

GOALS: dict[str, tuple[Goal, ...]] = {
    "undefended": (BARE_PICTURE,),
    "published": (SPARE_ONE, SPARE_ONE, SPARE_ONE, EXACTLY_K),
    "jury detection": (TURN_ALL, TURN_NARROWLY),
    "minority reports": (TURN_ALL, TURN_NARROWLY),
    "jury recovery": (WIN_DUELS, TURN_ALL),
    "patchcleanser": (WIN_DUELS, TURN_ALL),
}


def goals_against(rule: Rule) -> tuple[Goal, ...]:
    """The goals for a rule, the most promising first; a rule that nobody thought of is attacked in every way."""
    general = (TURN_ALL, WIN_DUELS, TURN_NARROWLY, SPARE_ONE)
    return GOALS.get(rule.name, general)
