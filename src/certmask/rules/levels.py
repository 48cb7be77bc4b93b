"""Hypotheses about where patches are, and the votes that judge them and pairs of them, from coarse to fine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from certmask.certificate import Place, Weakest
from certmask.covers import Cover
from certmask.errors import CoverError
from certmask.geometry import IntArray
from certmask.passes import NONE, Ballot

TABLE = 1 << 22
"""Up to so many passes, the pools of a level are found once and kept."""


PoolsOf = Callable[[IntArray, int], IntArray]
"""Gives the passes ``[n, members]`` that judge things ``[n, …]`` at a level, filled up with -1."""


class Level(NamedTuple):
    """How one level judges: all of ``juries [places, members]`` hide their place, filled up with -1.

    A pair of places is judged by every mask of one jury with every mask of the other, within each of the ``parts``.
    """

    juries: IntArray
    parts: tuple[IntArray, ...]


class Levels:
    """Hypotheses, each a set of places hidden by every vote that judges it, and so for each pair of hypotheses.

    ``boxes [places, 4]`` say where places are, ``patches [places]`` of which of the cover's patches. A hypothesis is
    where all patches are: a place if there is one patch, as many different ones if there are several; fewer would be
    part of one of these. Two hypotheses are judged by votes that hide the union of their places, and by nothing else:
    those with the same union share their verdict.
    Where finer votes are ``pooled`` with the coarser ones, a pool has the votes of all levels down to its own.
    """

    def __init__(
        self, ballot: Ballot, levels: Sequence[Level], boxes: IntArray, patches: IntArray, pooled: bool = False
    ) -> None:
        self.ballot, self.levels, self.boxes, self.patches, self.pooled = ballot, levels, boxes, patches, pooled
        cover = ballot.cover
        self.sets = place_sets(len(boxes), cover.threat.count)
        """The places of every hypothesis, ``[hypotheses, count]``."""
        steps = cover.threat.steps
        self.steps = len(steps)
        """How many sizes of patches a picture may be certified for; none where it is one or nothing."""
        numbers = [steps.index(patch) if patch in steps else NONE for patch in cover.patches]
        self._steps = np.array(numbers, dtype=np.int64)[patches]
        self._singles = np.append(ballot.singles, NONE)
        self._questions: dict[tuple[str, int | None], Questions] = {}

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def hypotheses(self) -> int:
        """How many there are."""
        return len(self.sets)

    @property
    def count(self) -> int:
        """How many places a hypothesis has."""
        return int(self.sets.shape[1])

    def claim_pools(self, hypotheses: IntArray, level: int) -> IntArray:
        """The passes that judge hypotheses ``[n]`` at a level: ``[n, members]``, filled up with -1."""
        if self.count > 1:
            return self._set_pools(self.sets[hypotheses], level)
        return np.concatenate([self._singles[one.juries[hypotheses]] for one in self._down_to(level)], axis=-1)

    def jury(self, hypothesis: int, level: int) -> tuple[int, ...]:
        """The masks whose votes judge a hypothesis at a level."""
        juries = [one.juries[place] for one in self._down_to(level) for place in self.sets[hypothesis]]
        return tuple(dict.fromkeys(int(mask) for jury in juries for mask in jury if mask >= 0))

    def pair_pools(self, pairs: IntArray, level: int) -> IntArray:
        """The passes that judge pairs of hypotheses ``[n, 2]`` at a level: ``[n, members]``, filled up with -1."""
        if self.count > 1:
            return self._set_pools(self.sets[pairs].reshape(*pairs.shape[:-1], -1), level)
        parts = [_combined(self.ballot, part, pairs) for one in self._down_to(level) for part in one.parts]
        return np.concatenate(parts, axis=-1)

    def _set_pools(self, places: IntArray, level: int) -> IntArray:
        """The passes that hide all of the places ``[n, places]``, one for each part of a level: ``[n, members]``."""
        parts = [part for one in self._down_to(level) for part in one.parts]
        return np.stack([self.ballot.numbers(part[places, 0]) for part in parts], axis=-1)

    def place(self, hypothesis: int, claim: int, lead: float, level: int) -> Place:
        """What a hypothesis claims, with this lead, settled at this level."""
        own = self.sets[hypothesis]
        boxes = tuple(tuple(box) for box in self.boxes[own].tolist())
        return Place(boxes, self.jury(hypothesis, level), claim, lead, level, int(self.patches[own[0]]))

    def weakest(self, hypotheses: IntArray, lead: float, level: int) -> Weakest:
        """Where hypotheses ``[n]`` are, settled with this lead at this level; of which sizes, if there are several."""
        places, patches = np.unique(self.sets[hypotheses]), self.ballot.cover.patches
        boxes = tuple(tuple(box) for box in self.boxes[places].tolist())
        sizes = tuple(patches[number].size for number in self.patches[places]) if len(patches) > 1 else ()
        return Weakest(boxes, lead, level, sizes)

    def _down_to(self, level: int) -> Sequence[Level]:
        return self.levels[0 if self.pooled else level : level + 1]

    @cached_property
    def opponents(self) -> IntArray:
        """Pairs of different hypotheses, ``[n, 2]``, the smaller one first: every union of two once."""
        if self.count == 1:
            return np.stack(np.triu_indices(self.hypotheses, k=1), axis=1).astype(np.int64)
        return _unions(self.sets, len(self.boxes))

    def claims(self, step: int | None = None) -> Questions:
        """The questions about all hypotheses, or about the places of one step; found once."""
        if ("claims", step) not in self._questions:
            asked = np.arange(self.hypotheses) if step is None else np.flatnonzero(self._steps == step)
            self._questions["claims", step] = Questions(self.claim_pools, asked, len(self))
        return self._questions["claims", step]

    def duels(self, step: int | None = None) -> Questions:
        """The questions about all pairs of hypotheses, or about pairs of places of which one is of this step."""
        if ("duels", step) not in self._questions:
            of_step = slice(None) if step is None else (self._steps[self.opponents] == step).any(axis=1)
            asked = np.arange(len(self.opponents))[of_step]
            self._questions["duels", step] = Questions(self._opponent_pools, asked, len(self))
        return self._questions["duels", step]

    def _opponent_pools(self, pairs: IntArray, level: int) -> IntArray:
        return self.pair_pools(self.opponents[pairs], level)


def place_sets(places: int, count: int) -> IntArray:
    """All sets of so many different places, ``[sets, count]``, each in rising order; of fewer places, the whole."""
    chosen = list(combinations(range(places), min(count, places)))
    return np.array(chosen, dtype=np.int64)


def _unions(sets: IntArray, places: int) -> IntArray:
    """Two of the ``sets [n, count]`` for every union of two different ones, by their numbers, ``[m, 2]``.

    A union in rising order begins with one and ends with the other.
    """
    count = sets.shape[1]
    digits = places ** np.arange(count, dtype=np.int64)[::-1]
    names = sets @ digits  # rising, as the sets are
    found = [np.empty((0, 2), dtype=np.int64)]
    for size in range(count + 1, min(2 * count, places) + 1):
        unions = place_sets(places, size)
        ends = unions[:, :count], unions[:, size - count :]
        found.append(np.stack([np.searchsorted(names, end @ digits) for end in ends], axis=1))
    return np.concatenate(found)


class Questions:
    """What is asked about things (places, or pairs of them), level by level; things that share their votes are one.

    Two things are one question of a level if the votes on them are the same there and at all levels before. So every
    question has a parent in the level before, and those with one parent follow one another. ``pools`` gives the votes
    of a level on things ``[n]``, ``[n, members]``; ``things`` are the numbers of those that are asked about.
    """

    def __init__(self, pools: PoolsOf, things: IntArray, levels: int) -> None:
        self._pools, self.asked = pools, things
        self.roots: IntArray = np.arange(len(things))
        """The question of the first level about each thing that is asked about, ``[things]``."""
        self._some = [things]
        """One thing of each question, level by level."""
        self._first: list[IntArray] = []
        """The first child of each question, and where those of the last one end, level by level."""
        self._tables: dict[int, IntArray] = {}
        if levels == 1:
            return
        self._some.clear()
        parents = np.zeros(len(things), dtype=np.int64)
        for level in range(levels):
            keys = np.concatenate([parents[:, None], pools(things, level)], axis=1)
            _, some, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            if level == 0:
                self.roots = numbers.ravel()
            else:
                self._first.append(np.searchsorted(parents[some], np.arange(len(self._some[-1]) + 1)))
            self._some.append(things[some])
            parents = numbers.ravel()

    def count(self, level: int) -> int:
        """How many there are."""
        return len(self._some[level])

    def things(self, level: int) -> IntArray:
        """One of the things that each question is about, ``[questions]``."""
        return self._some[level]

    def passes(self, questions: IntArray, level: int) -> IntArray:
        """The votes that answer them, ``[n, members]``, filled up with -1; from a table where it is not too large."""
        some = self._some[level]
        if level not in self._tables:
            members = self._pools(some[:1], level).shape[1]
            if len(some) * members > TABLE:
                return self._pools(some[questions], level)
            self._tables[level] = self._pools(some, level)
        return self._tables[level][questions]

    def children(self, questions: IntArray, level: int) -> tuple[IntArray, IntArray]:
        """The questions of the next level below these, and the place of each one's parent among these, ``[n]`` each."""
        begin, counts = self._first[level][questions], np.diff(self._first[level])[questions]
        parents = np.repeat(np.arange(len(questions)), counts)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return begin[parents] + within, parents


def jury_levels(cover: Cover, pairs: str) -> tuple[Level, ...]:
    """The levels of a cover, coarse to fine: one mask of each grid for every cell, or all masks of every district.

    ``pairs`` says which masks of two districts a duel combines: ``all``, or ``aligned``, those of one grid.
    """
    if cover.levels:
        levels = [cover.cells.masks[:, columns] for columns in cover.level_columns]
        return tuple(Level(juries, tuple(np.hsplit(juries, juries.shape[1]))) for juries in levels)
    if pairs == "all":
        return (Level(cover.districts.juries, (cover.districts.juries,)),)
    if not cover.grids:
        raise CoverError(f"expected a cover of complete grids for aligned pairs, got {cover}: take pairs='all'")
    return (Level(cover.districts.juries, cover.grid_juries),)


def mask_levels(cover: Cover) -> tuple[Level, ...]:
    """One level, on which every mask is judged by itself."""
    masks = np.arange(len(cover))[:, None]
    return (Level(masks, (masks,)),)


def _combined(ballot: Ballot, juries: IntArray, places: IntArray) -> IntArray:
    """Every mask of one place's jury with every mask of the other's, ``[..., members]``, filled up with -1."""
    pool = ballot.pairs(juries[places[..., 0], :, None], juries[places[..., 1], None, :])
    return pool.reshape(*places.shape[:-1], -1)
