"""Passes: which sets of masks a picture is looked at under, each with a number that holds for all pictures."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from certmask.covers import Cover
from certmask.errors import VoteError
from certmask.geometry import IntArray

NONE = -1
"""Fills up a set of masks that has fewer members than its neighbours, and a pool that has fewer passes."""

BARE = 0
"""The number of the pass without any mask."""

DENSE = 1 << 22
"""Up to so many possible sets, their numbers stand in a table; beyond, in a dictionary."""


class Passes:
    """Sets of masks from a numbered list, each given a number once, the same for all pictures.

    A set is a row of mask numbers in any order, with repetitions, filled up with -1: ``{3}`` is ``(3, 3)`` or
    ``(-1, 3)``. The empty set, the picture as it came, has the number 0.
    """

    def __init__(self, masks: int) -> None:
        self.masks = masks
        self._sets: IntArray = np.full((1, 1), NONE, dtype=np.int64)
        self._dense: npt.NDArray[np.int32] = np.full(min((masks + 1) ** 2, DENSE), NONE, dtype=np.int32)
        self._dense[0] = BARE
        self._sparse: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def numbers(self, sets: IntArray) -> IntArray:
        """The numbers ``[...]`` of sets ``[..., width]``; a set that was never named before gets the next one."""
        keys = self._keys(sets)
        found = self._known(keys)
        if (found < 0).any():
            self._name(np.unique(keys[found < 0]))
            found = self._known(keys)
        return found

    def sets(self, numbers: IntArray) -> IntArray:
        """The sets ``[n, width]`` of these numbers, each mask once, filled up with -1."""
        return self._sets[numbers]

    @property
    def sizes(self) -> IntArray:
        """How many masks each set has, ``[len(self)]``."""
        return np.asarray((self._sets != NONE).sum(axis=1))

    def _keys(self, sets: IntArray) -> IntArray:
        """One whole number per set: its masks from the largest down, as digits."""
        base, width = self.masks + 1, sets.shape[-1]
        if base**width >= 1 << 63:
            raise VoteError(f"expected sets of masks that can be numbered, got {width} of {self.masks} masks")
        if width == 2:
            low, high = np.minimum(sets[..., 0], sets[..., 1]) + 1, np.maximum(sets[..., 0], sets[..., 1]) + 1
            return np.asarray(high + base * np.where(low == high, 0, low))
        digits = np.sort(sets + 1, axis=-1)[..., ::-1]
        again = np.zeros(digits.shape, dtype=bool)
        again[..., 1:] = digits[..., 1:] == digits[..., :-1]
        digits = np.sort(np.where(again, 0, digits), axis=-1)[..., ::-1]
        return np.asarray(digits @ base ** np.arange(width, dtype=np.int64))

    def _known(self, keys: IntArray) -> IntArray:
        small = keys < len(self._dense)
        found = self._dense[np.where(small, keys, 0)].astype(np.int64)
        if not small.all():
            found[~small] = [self._sparse.get(key, NONE) for key in keys[~small].tolist()]
        return found

    def _name(self, keys: IntArray) -> None:
        numbers = np.arange(len(self), len(self) + len(keys))
        small = keys < len(self._dense)
        self._dense[keys[small]] = numbers[small]
        self._sparse.update(zip(keys[~small].tolist(), numbers[~small].tolist(), strict=True))
        digits, rest = [], keys
        while rest.any():
            digits.append(rest % (self.masks + 1))
            rest = rest // (self.masks + 1)
        new = np.stack(digits, axis=1) - 1
        width = max(new.shape[1], self._sets.shape[1])
        self._sets = np.concatenate([widened(self._sets, width), widened(new, width)])


def widened(sets: IntArray, width: int) -> IntArray:
    """The same sets ``[n, width]``, filled up with -1."""
    if sets.shape[1] == width:
        return sets
    filled = np.full((len(sets), width), NONE, dtype=sets.dtype)
    filled[:, : sets.shape[1]] = sets
    return filled


class Ballot:
    """The passes of one cover in the numbering that all covers of a run share."""

    def __init__(self, cover: Cover, passes: Passes | None = None, index: IntArray | None = None) -> None:
        self.cover = cover
        self.passes = Passes(len(cover)) if passes is None else passes
        self._index = np.append(np.arange(len(cover)) if index is None else index, NONE)  # so that -1 finds itself

    def numbers(self, sets: IntArray) -> IntArray:
        """The passes ``[...]`` that hide these sets ``[..., width]`` of the cover's masks."""
        return self.passes.numbers(self._index[sets])

    @cached_property
    def bare(self) -> IntArray:
        """The pass without any mask, ``[1]``."""
        return np.array([BARE])

    @cached_property
    def singles(self) -> IntArray:
        """One pass per mask, ``[masks]``."""
        return self.numbers(np.arange(len(self.cover))[:, None])

    @cached_property
    def levels(self) -> dict[Any, Any]:
        """What rules have found out about which passes judge what, by the names under which they look for it."""
        return {}

    def pairs(self, first: IntArray, second: IntArray) -> IntArray:
        """The passes that hide one mask and another, ``[...]``; -1 where one of the two is filled up."""
        first, second = np.broadcast_arrays(first, second)
        return np.where((first < 0) | (second < 0), NONE, self.numbers(np.stack([first, second], axis=-1)))


class Ask(NamedTuple):
    """Passes that are wanted: of which picture of the cohort, and which one, ``[n]`` each."""

    pictures: IntArray
    passes: IntArray

    def __len__(self) -> int:
        return len(self.pictures)

    def split(self, count: int) -> tuple[Ask, Ask]:
        """The first ``count`` of them, and the rest."""
        first, rest = slice(count), slice(count, None)
        return Ask(self.pictures[first], self.passes[first]), Ask(self.pictures[rest], self.passes[rest])

    @classmethod
    def nothing(cls) -> Ask:
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    @classmethod
    def joined(cls, asks: Iterable[Ask]) -> Ask:
        """All of these at once."""
        asks = [cls.nothing(), *asks]
        return cls(np.concatenate([a.pictures for a in asks]), np.concatenate([a.passes for a in asks]))
