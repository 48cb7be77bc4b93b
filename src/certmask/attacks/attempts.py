"""The attempts that a budget buys: which images, what for, and where the patch goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from certmask.attacks.certified_run import CertifiedRun
from certmask.attacks.goals import Goal, Juries, goals_against
from certmask.attacks.means import patches_to_try
from certmask.data.dataset import evenly_spaced
from certmask.defences import PhotoDefence, RuledDefence
from certmask.errors import AttackError
from certmask.geometry import IntArray
from certmask.geometry.shapes import Span
from certmask.results.file import Row
from certmask.threat import Box, Patch, Size, Threat

Pick = Callable[[Juries, np.random.Generator], IntArray]
"""Picks a corner, or those of several patches."""
RANKS = 3
"""Restarts of one place go for the best, second-best and third-best wrong class in turn."""
SEARCHED, WEAKEST = "searched", "weakest"
PLACES = (SEARCHED, "flush", "beyond", WEAKEST, "random", "lowest fold", "border")
"""Kinds of places, in the order in which a gauntlet takes them; each image goes on where the one before stopped."""
SIDE_BY_SIDE, FAR_APART = "side by side", "far apart"
JOINT_PLACES = (SEARCHED, SIDE_BY_SIDE, *PLACES[1:4], FAR_APART, *PLACES[4:])
"""The same where there are several patches: of each kind all of them, or all of them together."""
DRAWS = 8
"""How many places are drawn for each further patch until one overlaps none before."""


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
    """One patch on one image against one defence; ``weakest`` is where the image's proof is, or where it failed.

    Where the threat has several patches, it is so many. Attempts take ``turn``s over what the threat allows, up to the
    ``side`` for which the image is certified, where that is told.
    """

    defence: str
    image: str
    label: int
    location: int
    restart: int
    goal: Goal
    place: str
    weakest: tuple[Box, ...] = ()
    certified: bool = True
    turn: int = 0
    side: int | None = None

    @property
    def searched(self) -> bool:
        return self.place == SEARCHED

    @property
    def rank(self) -> int:
        return self.restart % RANKS

    @property
    def key(self) -> str:
        return f"{self.defence}/{self.image}/{self.location}/{self.restart}"

    def patch(self, threat: Threat, image: Size) -> Patch:
        """What is put on the image; restarts share it."""
        tried = patches_to_try(threat, image, self.side)
        return tried[self.turn % len(tried)]

    def corner(self, budget: Budget, juries: Juries) -> IntArray:
        """Where the patch goes, ``[2]``, or where several go, ``[count, 2]``; restarts share a place."""
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
            **({"side": self.side} if self.side else {}),
        }


@dataclass(frozen=True)
class Prospect:
    """An image to attack: its name, its label, and where its proof is weakest or failed, as far as that was told.

    ``side`` is that of the largest patch for which it is certified, where patches of several sizes were asked about.
    """

    image: str
    label: int
    weakest: tuple[Box, ...] = ()
    side: int | None = None

    @classmethod
    def of(cls, row: Row, outcome: Row) -> Prospect:
        """From the row of a results file, and what it says about one defence."""
        boxes = (outcome.get("weakest") or {}).get("places", ())
        weakest = tuple((box[0], box[1], box[2], box[3]) for box in boxes)
        return cls(row["image"], row["label"], weakest, outcome.get("side") or None)


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
        places = places_for(one.threat.count)
        attempts += planned(defence.name, prospects, goals_against(one), budget, places=places)
    return attempts


def places_for(count: int) -> tuple[str, ...]:
    """Kinds of places for one patch, or for several."""
    return PLACES if count == 1 else JOINT_PLACES


def planned(
    defence: str,
    prospects: Sequence[Prospect],
    goals: Sequence[Goal],
    budget: Budget,
    certified: bool = True,
    places: Sequence[str] = PLACES,
) -> Iterator[Attempt]:
    """All attempts on these images, for goals in turn.

    Turns over what a threat allows are even in number for each image, and so out of step with the goals.
    """
    turns = budget.locations + budget.locations % 2
    for number, prospect in enumerate(prospects):
        kinds = [kind for kind in places[1:] if kind != WEAKEST or prospect.weakest]
        for location in range(budget.locations):
            place = place_for(number, location, budget.locations, kinds)
            for restart in range(budget.restarts):
                goal = goals[(number + location + restart) % len(goals)]
                what = (defence, prospect.image, prospect.label, location, restart, goal, place, prospect.weakest)
                yield Attempt(*what, certified, number * turns + location, prospect.side)


def place_for(image: int, location: int, locations: int, others: Sequence[str] = PLACES[1:]) -> str:
    """The first place of every image is searched; the other kinds take turns over the places of all images."""
    return SEARCHED if not location else others[(image * (locations - 1) + location - 1) % len(others)]


def pick_corner(place: str, juries: Juries, chance: np.random.Generator, weakest: Sequence[Box] = ()) -> IntArray:
    """One corner ``(top, left)`` of the given kind; ``searched`` needs a network and is found elsewhere.

    For several patches ``[count, 2]``: each of the kind, or as the kind says of all together.
    """
    count = juries.patch.count
    if count > 1 and place in JOINT:
        return JOINT[place](juries, chance)
    if place == WEAKEST and weakest:
        order = [int(chance.integers(len(weakest)))] if count == 1 else chance.permutation(len(weakest)).tolist()
        corners = [_inside(weakest[order[n % len(order)]], juries, chance) for n in range(count)]
        return corners[0] if count == 1 else np.stack(corners)
    pick = PICKED.get(place)
    if pick is None:
        raise AttackError(f"expected a place among {', '.join(places_for(count)[1:])}, got {place!r}")
    return pick(juries, chance) if count == 1 else _each(pick, juries, chance)


def _each(pick: Pick, juries: Juries, chance: np.random.Generator) -> IntArray:
    """A corner for each of several patches, ``[count, 2]``; where a few draws can have it so, none overlap."""
    corners = [pick(juries, chance)]
    while len(corners) < juries.patch.count:
        drawn = [pick(juries, chance) for _ in range(DRAWS)]
        apart = [own for own in drawn if (np.abs(corners - own) >= juries.patch.size).any(axis=1).all()]
        corners.append((apart or drawn)[0])
    return np.stack(corners)


def _inside(box: Box, juries: Juries, chance: np.random.Generator) -> IntArray:
    """A corner in a box of corners, which may be those of a smaller patch."""
    top, bottom, left, right = box
    return np.minimum(chance.integers((top, left), (bottom, right)), _positions(juries) - 1)


def _side_by_side(juries: Juries, chance: np.random.Generator) -> IntArray:
    """In a row, or one above the other, without a gap: together like one larger patch."""
    patch, image = juries.patch, np.array(juries.cover.image)
    along = np.eye(2, dtype=np.int64)[chance.integers(2)] * patch.size
    first = np.minimum(_random(juries, chance), np.maximum(image - patch.size - (patch.count - 1) * along, 0))
    return np.asarray(np.minimum(first + np.arange(patch.count)[:, None] * along, _positions(juries) - 1))


def _far_apart(juries: Juries, chance: np.random.Generator) -> IntArray:
    """Near the corners of the image, opposite ones first; more than four anywhere."""
    last, count = _positions(juries) - 1, juries.patch.count
    start = chance.integers(0, 2, size=2)
    extremes = last * np.stack([start, 1 - start, start ^ [0, 1], start ^ [1, 0]])
    inner = np.stack([_random(juries, chance) for _ in range(max(count, 4))])
    near = extremes + (inner[:4] - extremes) // 8
    return np.asarray(np.concatenate([near, inner[4:]])[:count])


def _random(juries: Juries, chance: np.random.Generator) -> IntArray:
    return chance.integers(0, _positions(juries))


def _lowest_fold(juries: Juries, chance: np.random.Generator) -> IntArray:
    """A place that as few masks cover as any."""
    corners = juries.districts.corner
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
    axes = zip((mask.top, mask.left), (mask.height, mask.width), juries.patch.size, cover.image, beyond, strict=True)
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
    return np.array(juries.patch.positions(juries.cover.image), dtype=np.int64)


PICKED: dict[str, Pick] = {
    "flush": _flush,
    "beyond": _beyond,
    "random": _random,
    "lowest fold": _lowest_fold,
    "border": _border,
}
"""How a corner of each kind is picked."""

JOINT: dict[str, Pick] = {SIDE_BY_SIDE: _side_by_side, FAR_APART: _far_apart}
"""How corners of several patches are picked together."""
