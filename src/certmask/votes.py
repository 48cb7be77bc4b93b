"""Votes: what the classifier said about one image under each mask and pair of masks. Numbers only, no network."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from certmask.covers import Cover
from certmask.errors import VoteError
from certmask.geometry import IntArray

BARE = -1
"""Stands for "no mask": the pass ``(BARE, BARE)`` is the image as it came."""


class VoteStore:
    """Class probabilities of one image, at most one row per unordered pair of masks from a numbered list.

    A pair ``(i, i)`` is the single mask ``i``. Rows are added as they are computed and never change.
    """

    def __init__(self, masks: int, classes: int, device: torch.device | str = "cpu") -> None:
        self.masks = masks
        self.probabilities: Tensor = torch.empty(0, classes, device=device)
        self.count = 0
        self._heads: list[Tensor] = []
        self._summary: npt.NDArray[np.float32] = np.empty((0, 3), dtype=np.float32)
        self._single: IntArray = np.full(masks + 1, -1, dtype=np.int64)
        self._double: npt.NDArray[np.int32] | None = None  # one more than the row, so that 0 says "no vote"

    def slots(self, pairs: IntArray) -> IntArray:
        """Row numbers of the given pairs ``[n, 2]``; -1 where no vote was cast."""
        first, second = in_order(pairs)
        double = -1 if self._double is None else self._double[first, second] - 1
        return np.asarray(np.where(first == second, self._single[first], double))

    def missing(self, pairs: IntArray) -> IntArray:
        """The given pairs that have no vote yet, each once, smaller index first."""
        return distinct(pairs[self.slots(pairs) < 0])

    def add(self, pairs: IntArray, probabilities: Tensor, heads: Tensor | None = None) -> None:
        """Write down new votes ``[n, classes]``; a pair that is already there is an error.

        ``heads`` are their ``head_of``, on the host; they may still be on their way when they are handed over.
        """
        if (self.slots(pairs) >= 0).any():
            raise VoteError("expected pairs without a vote, got one that has voted")
        self._grow(len(pairs))
        new = np.arange(self.count, self.count + len(pairs))
        self.probabilities[self.count : self.count + len(pairs)] = probabilities
        first, second = in_order(pairs)
        alone = first == second
        self._single[first[alone]] = new[alone]
        if not alone.all():
            if self._double is None:
                self._double = np.zeros((self.masks + 1, self.masks + 1), dtype=np.int32)
            self._double[first[~alone], second[~alone]] = new[~alone] + 1
        self.count += len(pairs)
        self._heads.append(head_of(probabilities).cpu() if heads is None else heads)

    def heads(self) -> npt.NDArray[np.float32]:
        """Class, confidence and lead of every row, on the host: ``[rows, 3]``."""
        if self._heads:
            self._summary = np.concatenate([self._summary, *(head.numpy() for head in self._heads)])
            self._heads.clear()
        return self._summary

    def _grow(self, extra: int) -> None:
        capacity, classes = self.probabilities.shape
        if self.count + extra > capacity:
            larger = self.probabilities.new_empty(max(self.count + extra, 2 * capacity), classes)
            larger[: self.count] = self.probabilities[: self.count]
            self.probabilities = larger


def head_of(probabilities: Tensor) -> Tensor:
    """First class (the smallest on a tie), its probability, and its lead over the second: ``[n, 3]``."""
    label = probabilities.argmax(dim=1, keepdim=True)
    first = probabilities.gather(1, label)
    second = probabilities.scatter(1, label, -1.0).amax(dim=1, keepdim=True)
    return torch.cat([label.to(probabilities.dtype), first, first - second], dim=1)


class Heads(NamedTuple):
    """What most rules need to know of a vote, one entry per pass."""

    labels: IntArray
    confidence: npt.NDArray[np.float32]
    lead: npt.NDArray[np.float32]

    def wins(self, label: int, margin: float) -> npt.NDArray[np.bool_]:
        """Whether ``label`` comes first and leads by more than ``margin``."""
        return np.asarray((self.labels == label) & (self.lead > margin))


class Votes:
    """The votes of one image as a rule sees them: mask numbers are those of its cover."""

    def __init__(self, cover: Cover, store: VoteStore, index: IntArray | None = None) -> None:
        self.cover = cover
        self.store = store
        numbers = np.arange(len(cover), dtype=np.int64) if index is None else index
        self._index = np.append(numbers, BARE)  # so that BARE finds itself at the end

    @classmethod
    def from_table(cls, cover: Cover, singles: Tensor, doubles: Tensor | None = None) -> Votes:
        """Votes from probabilities ``[masks, classes]`` and, for two rounds, ``[masks, masks, classes]``."""
        n = len(cover)
        for table in (singles, *([] if doubles is None else [doubles])):
            if not ((table >= 0) & (table <= 1)).all():
                raise VoteError(f"expected probabilities from 0 to 1, got {table.min():.3g} to {table.max():.3g}")
        singles, doubles = singles.float(), None if doubles is None else doubles.float()
        if singles.ndim != 2 or singles.shape[0] != n:
            raise VoteError(f"expected single votes of shape ({n}, classes), got {tuple(singles.shape)}")
        classes = singles.shape[1]
        if doubles is not None and doubles.shape != (n, n, classes):
            raise VoteError(f"expected pair votes of shape {(n, n, classes)}, got {tuple(doubles.shape)}")
        store = VoteStore(n, classes)
        store.add(single_passes(n), singles)
        if doubles is not None and n > 1:
            i, j = np.triu_indices(n, k=1)
            store.add(np.stack([i, j], axis=1).astype(np.int64), doubles[i, j])
        return cls(cover, store)

    def passes(self, pairs: IntArray) -> IntArray:
        """The same pairs in the numbering of the store."""
        return self._index[pairs]

    def rows(self, pairs: IntArray) -> IntArray:
        """Rows of ``outputs`` that hold the given pairs ``[..., 2]``, -1 for padding; a missing vote is an error."""
        padding = pairs[..., 0] == PAD
        rows = self.store.slots(self.passes(np.where(padding[..., None], BARE, pairs)))
        if ((rows < 0) & ~padding).any():
            raise VoteError("expected every vote that the rule needs, got a table without some of them")
        return np.where(padding, -1, rows)

    @property
    def outputs(self) -> Tensor:
        """All probabilities cast so far, ``[rows, classes]``."""
        return self.store.probabilities

    def heads(self, pairs: IntArray) -> Heads:
        """First class, its probability and its lead over the second, for the given pairs ``[n, 2]``."""
        return _heads(self.store.heads()[self.rows(pairs)])

    def all_heads(self) -> Heads:
        """The same for every row of ``outputs``."""
        return _heads(self.store.heads())

    def of(self, pairs: IntArray) -> Tensor:
        """Probabilities of the given pairs, ``[n, classes]``."""
        return self.outputs[torch.from_numpy(self.rows(pairs)).to(self.outputs.device)]


def _heads(summary: npt.NDArray[np.float32]) -> Heads:
    return Heads(summary[:, 0].astype(np.int64), summary[:, 1], summary[:, 2])


PAD = -2
"""Fills up rows of pairs where juries differ in size."""


MARKED = 1 << 22
"""Up to so many possible pairs, the different ones are found by marking instead of sorting."""


def in_order(pairs: IntArray) -> tuple[IntArray, IntArray]:
    """The smaller and the larger number of each pair."""
    return np.minimum(pairs[..., 0], pairs[..., 1]), np.maximum(pairs[..., 0], pairs[..., 1])


def distinct(pairs: IntArray) -> IntArray:
    """The different unordered pairs among ``pairs [n, 2]``, sorted, the smaller number first."""
    first, second = in_order(pairs)
    width = int(second.max(initial=BARE)) + 2
    keys = (first + 1) * width + second + 1
    if width * width <= MARKED:
        marks = np.zeros(width * width, dtype=bool)
        marks[keys] = True
        keys = np.flatnonzero(marks)
    else:
        keys = np.unique(keys)
    return np.stack([keys // width - 1, keys % width - 1], axis=1)


def single_passes(masks: int) -> IntArray:
    """One pass per mask, as pairs ``(i, i)``."""
    numbers = np.arange(masks, dtype=np.int64)
    return np.stack([numbers, numbers], axis=1)


def bare_pass() -> IntArray:
    """The pass without any mask."""
    return np.array([[BARE, BARE]], dtype=np.int64)


def save_votes(path: Path, store: VoteStore) -> None:
    """Write a store's votes as safetensors: ``pairs`` and ``probabilities``."""
    from safetensors.torch import save_file

    pairs = np.full((store.count, 2), BARE, dtype=np.int64)
    known = np.flatnonzero(store._single[:-1] >= 0)
    pairs[store._single[known]] = known[:, None]
    if store._double is not None:
        i, j = np.nonzero(store._double)
        pairs[store._double[i, j] - 1] = np.stack([i, j], axis=1)
    tensors = {"pairs": torch.from_numpy(pairs), "probabilities": store.probabilities[: store.count].cpu().contiguous()}
    save_file(tensors, path, metadata={"masks": str(store.masks)})


def load_votes(path: Path) -> VoteStore:
    """Read what ``save_votes`` wrote."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        masks = int(file.metadata()["masks"])
        pairs, probabilities = file.get_tensor("pairs").numpy(), file.get_tensor("probabilities")
    store = VoteStore(masks, probabilities.shape[1])
    store.add(pairs, probabilities)
    return store
