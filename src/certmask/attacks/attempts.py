"""The attempts that a budget buys: which images, what for, and where the patch goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from certmask.attacks.certified_run import CertifiedRun
from certmask.attacks.goals import Goal, Juries, goals_against
from certmask.data.dataset import evenly_spaced
from certmask.defences import MaskedDefence
from certmask.errors import AttackError
from certmask.geometry import IntArray
from certmask.geometry.shapes import Span

RANKS = 3
"""Restarts of one place go for the best, second-best and third-best wrong class in turn."""
SEARCHED = "searched"
PLACES = (SEARCHED, "random", "lowest fold", "border", "edge")
"""Kinds of places, in the order in which a gauntlet takes them."""


@dataclass(frozen=True)
class Budget:
    """Images per defence, places per image, restarts per place, steps per attempt, masked views per step."""

    images: int = 20
    locations: int = 5
    restarts: int = 1
    steps: int = 60
    views: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("images", "locations", "restarts", "steps", "views"):
            if getattr(self, name) < 1:
                raise AttackError(f"expected at least 1 for {name}, got {getattr(self, name)}")

    def chance(self, *what: object) -> np.random.Generator:
        """Random numbers that depend on the seed and on what they are for, and on nothing else."""
        return np.random.default_rng([self.seed, crc32("/".join(map(str, what)).encode())])


@dataclass(frozen=True)
class Attempt:
    """One patch on one certified image against one defence."""

    defence: str
    image: str
    label: int
    location: int
    restart: int
    goal: Goal

    @property
    def place(self) -> str:
        return PLACES[self.location % len(PLACES)]

    @property
    def searched(self) -> bool:
        return self.place == SEARCHED

    @property
    def rank(self) -> int:
        return self.restart % RANKS

    @property
    def key(self) -> str:
        return f"{self.defence}/{self.image}/{self.location}/{self.restart}"

    def corner(self, budget: Budget, juries: Juries) -> IntArray:
        """Where the patch goes; restarts share a place."""
        return pick_corner(self.place, juries, budget.chance(self.image, self.location))

    def describe(self) -> dict[str, Any]:
        return {
            "attempt": self.key,
            "defence": self.defence,
            "image": self.image,
            "label": self.label,
            "place": self.place,
            "goal": self.goal.name,
            "restart": self.restart,
        }


def plan_attempts(certified: CertifiedRun, defences: Sequence[MaskedDefence], budget: Budget) -> list[Attempt]:
    """All attempts of a budget, defence by defence, on evenly spaced images; goals take turns over places."""
    attempts = []
    for defence in defences:
        goals = goals_against(defence.rule)
        rows = certified.attackable(defence)
        for number, row in enumerate(evenly_spaced(rows, min(budget.images, len(rows)))):
            for location in range(budget.locations):
                for restart in range(budget.restarts):
                    goal = goals[(number + location + restart) % len(goals)]
                    attempts.append(Attempt(defence.name, row["image"], row["label"], location, restart, goal))
    return attempts


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


def _beside(runs: tuple[Span, ...], length: int, chance: np.random.Generator) -> int:
    """A position that sticks out of one of the runs by one pixel."""
    low, high = runs[chance.integers(len(runs))]
    return int(chance.choice([low - 1, high - length + 1]))


def _positions(juries: Juries) -> IntArray:
    return np.array(juries.cover.patch.positions(juries.cover.image), dtype=np.int64)
