"""Votes that outlive a run: one safetensors file per picture and function, found again by the masks' pixels."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from certmask.engine.engine import Engine
from certmask.engine.masking import footprint_from
from certmask.errors import VoteError
from certmask.geometry import IntArray
from certmask.identity import UNKNOWN
from certmask.passes import NONE, Passes, widened

VOTES_FORMAT = "1"
STRANGER = -2


class KeptVotes:
    """A folder of votes. ``digests[n]`` names the n-th picture by its pixels; it may grow while pictures are read.

    A file's name holds the picture's hash and that of the function: its description (weights, precision, batch, fill,
    …) with its fingerprint, so that a network whose layers are called as before but do something else is another
    function, and torch's version. A callable without weights is refused.
    """

    def __init__(self, folder: Path, engine: Engine, digests: list[str]) -> None:
        self.folder, self.engine, self.digests = folder, engine, digests
        if engine.classifier.weights == UNKNOWN:
            raise VoteError(f"expected a model whose weights can be hashed, got {engine.classifier.name}, a callable")
        function = json.dumps([engine.describe(), torch.__version__], sort_keys=True)
        self._function = hashlib.sha256(function.encode()).hexdigest()[:16]
        self._batch = engine.batch
        self._written: set[Path] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise VoteError(f"expected a folder for votes, got {folder} ({error.strerror})") from None

    def path(self, number: int) -> Path:
        """Where the votes about one picture lie."""
        return self.folder / f"{self.digests[number]}-{self._function}.safetensors"

    def recall(self, number: int, passes: Passes) -> tuple[IntArray, Tensor]:
        """Passes ``[n]`` whose masks all belong to this engine, and their probabilities ``[n, classes]``.

        None once the batch was halved for want of memory: then the function is another one.
        """
        if self.engine.batch != self._batch:
            return np.empty(0, dtype=np.int64), torch.empty(0, self.engine.classifier.width)
        footprints, sets, probabilities = self._read(number)
        known = _renumbered(sets, self.engine.forward.masks.numbers(footprints))
        few = (sets != NONE).sum(axis=1) <= self.engine.forward.together
        here = few & (known != STRANGER).all(axis=1)
        return passes.numbers(known[here]), probabilities[torch.from_numpy(here)]

    def keep(self, number: int, passes: Passes, made: IntArray, probabilities: Tensor) -> None:
        """Write down all votes about one picture, beside those of other engines; a reader never sees half a file.

        Nothing is written once the batch was halved.
        """
        if self.engine.batch != self._batch:
            return
        masks, before, old = self._read(number)
        foreign = (_renumbered(before, self.engine.forward.masks.numbers(masks)) == STRANGER).any(axis=1)
        place = {footprint_from(mask): n for n, mask in enumerate(masks)}
        own = self.engine.forward.masks.footprints
        sets = passes.sets(made)
        index = np.full(len(own) + 1, NONE)  # -1 finds itself at the end
        for mask in np.unique(sets[sets != NONE]).tolist():
            index[mask] = place.setdefault(own[mask], len(place))
        sets = index[sets]
        width = max(sets.shape[1], before.shape[1])
        self._write(
            number,
            list(place),
            np.concatenate([widened(before[foreign], width), widened(sets, width)]),
            torch.cat([old[torch.from_numpy(foreign)], probabilities.cpu()]),
        )

    def forget(self) -> None:
        """Take back what was written: the model turned out not to be a function of one picture."""
        for path in self._written:
            path.unlink(missing_ok=True)

    def _read(self, number: int) -> tuple[list[Any], IntArray, Tensor]:
        """Footprints of masks, sets ``[n, width]`` of their numbers, probabilities; all empty where nothing is kept."""
        path = self.path(number)
        if not path.exists():
            return [], np.empty((0, 1), dtype=np.int64), torch.empty(0, self.engine.classifier.width)
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata()
                masks, sets = json.loads(about["masks"]), file.get_tensor("sets").numpy()
                if about["certmask_votes"] != VOTES_FORMAT or sets.max(initial=NONE) >= len(masks):
                    raise ValueError(f"format {about['certmask_votes']} with {len(masks)} masks")
                return masks, sets, file.get_tensor("probabilities")
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise VoteError(f"expected kept votes in {path}, got {error}: delete it to have them made again") from None

    def _write(self, number: int, masks: list[Any], sets: IntArray, probabilities: Tensor) -> None:
        path = self.path(number)
        half = path.with_suffix(f".{uuid4().hex}")
        tensors = {"sets": torch.from_numpy(sets), "probabilities": probabilities.contiguous()}
        try:
            save_file(tensors, half, metadata={"certmask_votes": VOTES_FORMAT, "masks": json.dumps(masks)})
            half.replace(path)
            self._written.add(path)
        except (OSError, SafetensorError) as error:
            raise VoteError(f"expected room for votes in {self.folder}, got {error}") from None


def _renumbered(sets: IntArray, own: IntArray) -> IntArray:
    """Sets of a file's masks as sets of an engine's, ``STRANGER`` for a mask that it does not have."""
    return np.append(np.where(own == NONE, STRANGER, own), NONE)[sets]
