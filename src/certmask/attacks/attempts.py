"""The attempts that a budget buys: which images, what for, and where the patch goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from certmask.attacks.certified_run import CertifiedRun
from certmask.attacks.goals import Goal, Juries, goals_against
from certmask.data.dataset import evenly_spaced
from certmask.defences import PhotoDefence, RuledDefence
from certmask.errors import AttackError
from certmask.geometry import IntArray
from certmask.geometry.shapes import Span
from certmask.results.file import Row
from certmask.threat import Box

RANKS = 3
"""Restarts of one place go for the best, second-best and third-best wrong class in turn."""
SEARCHED, WEAKEST = "searched", "weakest"
PLACES = (SEARCHED, "flush", "beyond", WEAKEST, "random", "lowest fold", "border")
"""Kinds of places, in the order in which a gauntlet takes them; each image goes on where the one before stopped."""


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
    """One patch on one image against one defence; ``weakest`` is where the image's proof is, or where it failed."""

    defence: str
    image: str
    label: int
    location: int
    restart: int
    goal: Goal
    place: str
    weakest: tuple[Box, ...] = ()
    certified: bool = True

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
        return pick_corner(self.place, juries, budget.chance(self.image, self.location), self.weakest)

    def describe(self) -> dict[str, Any]:
        return {
            "attempt": self.key,
            "defence": self.defence,
            "image": self.image,
            "label": self.label,
            "place": self.place,
            "goal": self.goal.name,
            "restart": self.restart,
            "certified": self.certified,
        }


@dataclass(frozen=True)
class Prospect:
    """An image to attack: its name, its label, and where its proof is weakest or failed, as far as that was told."""

    image: str
    label: int
    weakest: tuple[Box, ...] = ()

    @classmethod
    def of(cls, row: Row, outcome: Row) -> Prospect:
        """From the row of a results file, and what it says about one defence."""
        boxes = (outcome.get("weakest") or {}).get("places", ())
        return cls(row["image"], row["label"], tuple((box[0], box[1], box[2], box[3]) for box in boxes))


def plan_attempts(
    certified: CertifiedRun, defences: Sequence[RuledDefence | PhotoDefence], budget: Budget
) -> list[Attempt]:
    """All attempts of a budget, defence by defence, on evenly spaced images; goals take turns over places."""
    attempts: list[Attempt] = []
    for defence in defences:
        rows = certified.attackable(defence)
        chosen = evenly_spaced(rows, min(budget.images, len(rows)))
        prospects = [Prospect.of(row, row["defences"][defence.name]) for row in chosen]
        one = defence.classes[0] if isinstance(defence, PhotoDefence) else defence
        attempts += planned(defence.name, prospects, goals_against(one), budget)
    return attempts


def planned(
    defence: str, prospects: Sequence[Prospect], goals: Sequence[Goal], budget: Budget, certified: bool = True
) -> Iterator[Attempt]:
    """All attempts on these images, for goals in turn."""
    for number, prospect in enumerate(prospects):
        kinds = [kind for kind in PLACES[1:] if kind != WEAKEST or prospect.weakest]
        for location in range(budget.locations):
            place = place_for(number, location, budget.locations, kinds)
            for restart in range(budget.restarts):
                goal = goals[(number + location + restart) % len(goals)]
                what = (defence, prospect.image, prospect.label, location, restart, goal, place, prospect.weakest)
                yield Attempt(*what, certified)


def place_for(image: int, location: int, locations: int, others: Sequence[str] = PLACES[1:]) -> str:
    """The first place of every image is searched; the other kinds take turns over the places of all images."""
    return SEARCHED if not location else others[(image * (locations - 1) + location - 1) % len(others)]


def pick_corner(place: str, juries: Juries, chance: np.random.Generator, weakest: Sequence[Box] = ()) -> IntArray:
    """One corner ``(top, left)`` of the given kind; ``searched`` needs a network and is found elsewhere."""
    if place == WEAKEST and weakest:
        top, bottom, left, right = weakest[int(chance.integers(len(weakest)))]
        return chance.integers((top, left), (bottom, right))
    pick = PICKED.get(place)
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


def _flush(juries: Juries, chance: np.random.Generator) -> IntArray:
    """Inside a mask, in one of its corners: flush with two of its edges, or with the border where it goes over."""
    return _at_edges(juries, chance, np.zeros(2, dtype=np.int64))


def _beyond(juries: Juries, chance: np.random.Generator) -> IntArray:
    """In a corner of a mask, but one pixel beyond one of its edges; beyond two of them every third time."""
    return _at_edges(juries, chance, np.asarray(np.arange(2) != chance.integers(0, 3), dtype=np.int64))


def _at_edges(juries: Juries, chance: np.random.Generator, beyond: IntArray) -> IntArray:
    """In a random corner of a random mask, ``beyond`` pixels outside; from the mask's rectangle and nothing else."""
    cover = juries.cover
    mask = cover.masks[chance.integers(len(cover.masks))]
    axes = zip((mask.top, mask.left), (mask.height, mask.width), cover.patch.size, cover.image, beyond, strict=True)
    corner = []
    for start, length, patch, extent, over in axes:
        pieces = _pieces(start, length, extent) if mask.wraps else [(start, start + length)]
        low, high = pieces[chance.integers(len(pieces))]
        corner.append(chance.choice([low - over, high - patch + over]))
    return np.asarray(np.clip(corner, 0, _positions(juries) - 1))


def _pieces(start: int, length: int, extent: int) -> list[Span]:
    """Where a wrapped mask lies along one axis: its beginning, and what goes on at the opposite border."""
    low, stop = start % extent, start % extent + length
    return [(low, stop)] if stop <= extent else [(low, extent), (0, stop - extent)]


def _positions(juries: Juries) -> IntArray:
    return np.array(juries.cover.patch.positions(juries.cover.image), dtype=np.int64)


PICKED: dict[str, Callable[[Juries, np.random.Generator], IntArray]] = {
    "flush": _flush,
    "beyond": _beyond,
    "random": _random,
    "lowest fold": _lowest_fold,
    "border": _border,
}
"""How a corner of each kind is picked."""
