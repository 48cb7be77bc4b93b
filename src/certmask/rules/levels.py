"""Places, and the votes that judge them and pairs of them, level by level from coarse to fine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

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
    """Places, each hidden by every vote that judges it, and each pair of places by every vote that judges it.

    ``boxes [places, 4]`` say where they are. Where finer votes are ``pooled`` with the coarser ones, a pool has the
    votes of all levels down to its own.
    """

    def __init__(self, ballot: Ballot, levels: Sequence[Level], boxes: IntArray, pooled: bool = False) -> None:
        self.ballot, self.levels, self.boxes, self.pooled = ballot, levels, boxes, pooled
        self.places = len(boxes)
        self._singles = np.append(ballot.singles, NONE)

    def __len__(self) -> int:
        return len(self.levels)

    def claim_pools(self, places: IntArray, level: int) -> IntArray:
        """The passes that judge places ``[n]`` at a level: ``[n, members]``, filled up with -1."""
        first = 0 if self.pooled else level
        return np.concatenate([self._singles[one.juries[places]] for one in self.levels[first : level + 1]], axis=-1)

    def jury(self, place: int, level: int) -> tuple[int, ...]:
        """The masks whose votes judge a place at a level."""
        levels = self.levels[0 if self.pooled else level : level + 1]
        return tuple(dict.fromkeys(int(mask) for one in levels for mask in one.juries[place] if mask >= 0))

    def pair_pools(self, places: IntArray, level: int) -> IntArray:
        """The passes that judge pairs of places ``[n, 2]`` at a level: ``[n, members]``, filled up with -1."""
        levels = self.levels[0 if self.pooled else level : level + 1]
        parts = [_combined(self.ballot, part, places) for one in levels for part in one.parts]
        return np.concatenate(parts, axis=-1)

    @cached_property
    def claims(self) -> Questions:
        """The questions about all places."""
        return Questions(self.claim_pools, self.places, len(self))

    @cached_property
    def opponents(self) -> IntArray:
        """Every pair of places, ``[n, 2]``, the smaller one first."""
        return np.stack(np.triu_indices(self.places, k=1), axis=1).astype(np.int64)

    @cached_property
    def duels(self) -> Questions:
        """The questions about all pairs of places."""
        return Questions(
            lambda pairs, level: self.pair_pools(self.opponents[pairs], level), len(self.opponents), len(self)
        )


class Questions:
    """What is asked about things (places, or pairs of them), level by level; things that share their votes are one.

    Two things are one question of a level if the votes on them are the same there and at all levels before. So every
    question has a parent in the level before, and those with one parent follow one another. ``pools`` gives the votes
    of a level on things ``[n]``, ``[n, members]``.
    """

    def __init__(self, pools: PoolsOf, things: int, levels: int) -> None:
        self._pools = pools
        everything = np.arange(things)
        self.roots: IntArray = everything
        """The question of the first level about each thing, ``[things]``."""
        self._some = [everything]
        """One thing of each question, level by level."""
        self._first: list[IntArray] = []
        """The first child of each question, and where those of the last one end, level by level."""
        self._tables: dict[int, IntArray] = {}
        if levels == 1:
            return
        self._some.clear()
        parents = np.zeros(things, dtype=np.int64)
        for level in range(levels):
            keys = np.concatenate([parents[:, None], pools(everything, level)], axis=1)
            _, some, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            if level == 0:
                self.roots = numbers.ravel()
            else:
                self._first.append(np.searchsorted(parents[some], np.arange(len(self._some[-1]) + 1)))
            self._some.append(some)
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
        columns = [tuple(cover.cells.masks[:, [grid]] for grid in grids) for grids in cover.level_grids]
        return tuple(Level(np.concatenate(parts, axis=1), parts) for parts in columns)
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
