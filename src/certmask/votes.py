"""Votes: what the classifier said about each picture of a cohort under each set of masks. Numbers only, no network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from certmask.certificate import NO_CLASS
from certmask.covers import Cover
from certmask.errors import VoteError
from certmask.geometry import IntArray
from certmask.passes import NONE, Ask, Ballot, Passes

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]

UNIT = 2.0**-24
"""Votes are whole multiples of this, which float32 holds exactly, leads of one vote over another included; float64 adds
up millions of them exactly. So whoever decides and whoever certifies compare the same numbers, in any order."""


class Heads(NamedTuple):
    """What most rules need to know of a vote: its first class, how probable that is, its lead over the second."""

    labels: IntArray
    confidence: npt.NDArray[np.float64]
    lead: npt.NDArray[np.float64]

    def wins(self, label: IntArray | int, margin: float) -> BoolArray:
        """Whether ``label`` comes first and leads by more than ``margin``."""
        return np.asarray((self.labels == label) & (self.lead > margin))


def as_votes(probabilities: Tensor) -> Tensor:
    """Probabilities ``[n, classes]`` in whole units; all zeros, a silent vote, where the network gave no numbers."""
    spoken = probabilities.isfinite().all(dim=1, keepdim=True)
    return torch.where(spoken, (probabilities / UNIT).round() * UNIT, 0.0)


def head_of(votes: Tensor) -> Tensor:
    """First class (the smallest on a tie), its probability, and its lead over the second: ``[n, 3]``."""
    label = votes.argmax(dim=1, keepdim=True)
    first = votes.gather(1, label)
    second = votes.scatter(1, label, -1.0).amax(dim=1, keepdim=True)
    named = torch.where(first > 0, label.to(votes.dtype), float(NO_CLASS))
    return torch.cat([named, first, first - second], dim=1)


def logarithms(votes: Tensor) -> Tensor:
    """Log-probabilities in float64; less than a unit counts as one, and a silent vote says 0 of every class."""
    spoken = votes.amax(dim=1, keepdim=True) > 0
    return torch.where(spoken, votes.double().clamp(min=UNIT).log(), 0.0)


class Margin(NamedTuple):
    """By how much a lead must exceed 0: in probabilities and, for rules that read them, in their logarithms, or in sums
    of local evidence."""

    probability: float = 0.0
    logarithm: float = 0.0
    evidence: float = 0.0

    @classmethod
    def of(cls, margin: float) -> Margin:
        """The same number in every unit."""
        return cls(margin, margin, margin)


def lead_changes(votes: Tensor, others: Tensor) -> Margin:
    """The most by which any lead changes if these votes ``[n, classes]`` become those: twice what one number does.

    Of local evidence, whose mean these are the softmax of, sums have moved by at least as much.
    """
    if not votes.numel():
        return Margin()
    apart = (votes - others).abs().amax(), (logarithms(votes) - logarithms(others)).abs().amax()
    probability, logarithm = (2 * float(change) for change in apart)
    return Margin(probability, logarithm, evidence=probability)


def incomplete() -> VoteError:
    """What to raise where a rule looks for a vote that was never cast."""
    return VoteError("expected every vote that the rule needs, got a table without some of them")


class VoteStore:
    """Class probabilities of a cohort of pictures, at most one row per picture and pass.

    Rows are added as they are computed and never change.
    """

    def __init__(self, pictures: int, passes: Passes, classes: int, device: torch.device | str = "cpu") -> None:
        self.pictures, self.passes = pictures, passes
        self.probabilities: Tensor = torch.empty(0, classes, device=device)
        self.count = 0
        self._slots: npt.NDArray[np.int32] = np.full((pictures, len(passes)), NONE, dtype=np.int32)
        self._heads: list[Tensor] = []
        self._summary: FloatArray = np.empty((0, 3), dtype=np.float32)

    def slots(self, pictures: IntArray, passes: IntArray) -> IntArray:
        """Row numbers of the passes of the pictures, shaped as both together; -1 where no vote was cast."""
        if self._slots.shape[1] < len(self.passes):
            more = max(len(self.passes) - self._slots.shape[1], self._slots.shape[1] // 2)
            self._slots = np.pad(self._slots, ((0, 0), (0, more)), constant_values=NONE)
        return self._slots[pictures, passes].astype(np.int64)

    def missing(self, ask: Ask) -> Ask:
        """What of it has no vote yet, each once."""
        open_ = self.slots(*ask) < 0
        width = self._slots.shape[1]
        wanted = np.unique(ask.pictures[open_] * width + ask.passes[open_])
        return Ask(*np.divmod(wanted, width))

    def add(self, ask: Ask, probabilities: Tensor, heads: Tensor | None = None) -> None:
        """Write down new votes ``[n, classes]``; one that is already there is an error.

        ``heads`` are their ``head_of``, on the host; they may still be on their way when they are handed over. Where
        there are none, the probabilities are first rounded to whole units.
        """
        if (self.slots(*ask) >= 0).any():
            raise VoteError("expected passes without a vote, got one that has voted")
        if heads is None:
            probabilities = as_votes(probabilities)
            heads = head_of(probabilities).cpu()
        self._grow(len(ask))
        self.probabilities[self.count : self.count + len(ask)] = probabilities
        self._slots[ask.pictures, ask.passes] = np.arange(self.count, self.count + len(ask))
        self.count += len(ask)
        self._heads.append(heads)

    def heads(self) -> FloatArray:
        """Class, confidence and lead of every row, on the host: ``[rows, 3]``."""
        if self._heads:
            self._summary = np.concatenate([self._summary, *(head.numpy() for head in self._heads)])
            self._heads.clear()
        return self._summary

    def rows_of(self, picture: int) -> IntArray:
        """The rows of one picture's votes."""
        slots = self._slots[picture]
        return np.asarray(slots[slots >= 0], dtype=np.int64)

    def voices(self, picture: int) -> tuple[int, int]:
        """How many votes there are about one picture, and how many of them are silent."""
        silent = self.heads()[self.rows_of(picture), 0] == NO_CLASS
        return len(silent), int(silent.sum())

    def cast(self, picture: int) -> tuple[IntArray, Tensor]:
        """All votes about one picture: the passes' numbers ``[n]`` and their probabilities ``[n, classes]``."""
        passes = np.flatnonzero(self._slots[picture] >= 0)
        rows = torch.from_numpy(self._slots[picture, passes]).to(self.probabilities.device)
        return passes, self.probabilities[rows]

    def _grow(self, extra: int) -> None:
        capacity, classes = self.probabilities.shape
        if self.count + extra > capacity:
            larger = self.probabilities.new_empty(max(self.count + extra, 2 * capacity), classes)
            larger[: self.count] = self.probabilities[: self.count]
            if larger.is_cuda:  # the copy may still be waiting: nobody else may have this memory before it is done
                self.probabilities.record_stream(torch.cuda.current_stream(larger.device))
            self.probabilities = larger


class Votes:
    """The votes of a cohort of pictures as a rule on one cover sees them; ``ballot`` has the numbers of its passes.

    Wherever passes are named, their first axis is that of the pictures: ``[n, …]``, or ``[1, …]`` for the same ones.
    """

    def __init__(self, ballot: Ballot, store: VoteStore) -> None:
        self.ballot, self.store = ballot, store
        self.cover = ballot.cover
        self.everyone: IntArray = np.arange(store.pictures)

    @classmethod
    def from_table(cls, cover: Cover, singles: Tensor, doubles: Tensor | None = None) -> Votes:
        """Votes about one picture from ``[masks, classes]`` and, for two rounds, ``[masks, masks, classes]``.

        A row of zeros is a silent vote.
        """
        n = len(cover)
        for table in (singles, *([] if doubles is None else [doubles])):
            if not ((table >= 0) & (table <= 1)).all():
                raise VoteError(f"expected probabilities from 0 to 1, got {table.min():.3g} to {table.max():.3g}")
        if singles.ndim != 2 or singles.shape[0] != n:
            raise VoteError(f"expected single votes of shape ({n}, classes), got {tuple(singles.shape)}")
        classes = singles.shape[1]
        if doubles is not None and doubles.shape != (n, n, classes):
            raise VoteError(f"expected pair votes of shape {(n, n, classes)}, got {tuple(doubles.shape)}")
        ballot = Ballot(cover)
        votes = cls(ballot, VoteStore(1, ballot.passes, classes))
        votes.store.add(votes.ask(ballot.singles[None]), singles.float())
        if doubles is not None and n > 1:
            i, j = np.triu_indices(n, k=1)
            votes.store.add(votes.ask(ballot.pairs(i, j)[None]), doubles[i, j].float())
        return votes

    @property
    def outputs(self) -> Tensor:
        """All probabilities cast so far, ``[rows, classes]``."""
        return self.store.probabilities

    def ask(self, passes: IntArray, pictures: IntArray | None = None) -> Ask:
        """These passes of all pictures, or of some; what is filled up is left out."""
        pictures = self.everyone if pictures is None else pictures
        passes = np.broadcast_to(passes, (len(pictures), *passes.shape[1:])).reshape(len(pictures), -1)
        wanted = passes != NONE
        if wanted.all():
            return Ask(np.repeat(pictures, passes.shape[1]), passes.ravel())
        who, which = np.nonzero(wanted)
        return Ask(pictures[who], passes[who, which])

    def rows(self, passes: IntArray, pictures: IntArray | None = None) -> IntArray:
        """Rows of ``outputs`` that hold these passes, -1 where they are filled up; a missing vote is an error."""
        pictures = self.everyone if pictures is None else pictures
        passes = np.broadcast_to(passes, (len(pictures), *passes.shape[1:]))
        rows = self.store.slots(pictures.reshape(-1, *[1] * (passes.ndim - 1)), passes)
        if ((rows < 0) & (passes != NONE)).any():
            raise incomplete()
        return np.where(passes == NONE, NONE, rows)

    def all_rows(self, passes: IntArray, who: IntArray, pictures: IntArray) -> IntArray:
        """Rows by the passes' numbers, ``[pictures, passes + 1]``, the last for what is filled up; -1 without a vote.

        One of the ``passes [n, members]`` of the pictures in the places ``who [n]`` that has no vote is an error.
        """
        count = len(self.store.passes)
        rows = np.full((len(pictures), count + 1), NONE)
        rows[:, :count] = self.store.slots(pictures[:, None], np.arange(count))
        needed = np.zeros(rows.shape, dtype=bool)
        needed[who[:, None], passes] = True
        needed[:, count] = False
        if (needed & (rows < 0)).any():
            raise incomplete()
        return rows

    def sent(self, numbers: IntArray | BoolArray) -> Tensor:
        """Numbers beside the outputs, on their device."""
        return torch.from_numpy(numbers).to(self.outputs.device)

    def of(self, sets: IntArray, picture: int = 0) -> Tensor:
        """What one picture's votes say under these sets ``[n, width]`` of the cover's masks: ``[n, classes]``."""
        rows = self.rows(self.ballot.numbers(sets)[None], np.array([picture]))[0]
        return self.outputs[self.sent(rows)]

    def heads(self, passes: IntArray, pictures: IntArray | None = None) -> Heads:
        """First class, its probability and its lead over the second, shaped as the passes."""
        return self.heads_at(self.rows(passes, pictures))

    def heads_at(self, rows: IntArray) -> Heads:
        """The same by rows of ``outputs``."""
        summary = self.store.heads()[rows]
        numbers = summary[..., 1:].astype(np.float64)  # exact, and no margin is rounded to fewer digits beside them
        return Heads(summary[..., 0].astype(np.int64), numbers[..., 0], numbers[..., 1])
