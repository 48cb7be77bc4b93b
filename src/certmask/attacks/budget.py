"""How much attacking there shall be, and the list of attempts that it buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from certmask.attacks.certified_run import CertifiedRun
from certmask.attacks.goals import Goal, goals_against
from certmask.attacks.juries import Juries
from certmask.attacks.locations import PLACES, SEARCHED, pick_corner
from certmask.data.dataset import evenly_spaced
from certmask.defences import MaskedDefence
from certmask.errors import AttackError
from certmask.geometry import IntArray

RANKS = 3
"""Restarts of one place go for the best, second-best and third-best wrong class in turn."""


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


def plan_attempts(run: CertifiedRun, defences: Sequence[MaskedDefence], budget: Budget) -> list[Attempt]:
    """All attempts of a budget, defence by defence, on evenly spaced images; goals take turns over places."""
    attempts = []
    for defence in defences:
        goals = goals_against(defence.rule)
        rows = run.attackable(defence)
        for number, row in enumerate(evenly_spaced(rows, min(budget.images, len(rows)))):
            for location in range(budget.locations):
                for restart in range(budget.restarts):
                    goal = goals[(number + location + restart) % len(goals)]
                    attempts.append(Attempt(defence.name, row["image"], row["label"], location, restart, goal))
    return attempts
