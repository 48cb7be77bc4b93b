"""Votes that outlive a run: one safetensors file per picture and function, found again by the masks' pixels."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from certmask.engine.engine import Engine
from certmask.errors import VoteError
from certmask.geometry import IntArray
from certmask.votes import NONE, Passes

FORMAT = "1"


class KeptVotes:
    """A folder of votes. ``digests[n]`` names the n-th picture by its pixels; it may grow while pictures are read.

    A file's name holds the picture's hash and that of the function (weights, precision, batch, fill, …): votes of
    another function are never taken for this one's.
    """

    def __init__(self, folder: Path, engine: Engine, digests: list[str]) -> None:
        self.folder, self.engine, self.digests = folder, engine, digests
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise VoteError(f"expected a folder for votes, got {folder} ({error.strerror})") from None

    def path(self, number: int) -> Path:
        """Where the votes about one picture lie."""
        function = json.dumps(self.engine.describe(), sort_keys=True)
        return self.folder / f"{self.digests[number]}-{hashlib.sha256(function.encode()).hexdigest()[:8]}.safetensors"

    def recall(self, number: int, passes: Passes) -> tuple[IntArray, Tensor]:
        """Passes ``[n]`` whose masks all belong to this engine, and their probabilities ``[n, classes]``."""
        path = self.path(number)
        if not path.exists():
            return np.empty(0, dtype=np.int64), torch.empty(0, self.engine.classifier.classes)
        try:
            with safe_open(path, framework="pt") as file:
                footprints = json.loads(file.metadata()["masks"])
                sets, probabilities = file.get_tensor("sets").numpy(), file.get_tensor("probabilities")
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise VoteError(f"expected kept votes in {path}, got {error}: delete it to have them made again") from None
        own = self.engine.forward.masks.numbers(footprints)
        stranger = len(own)
        known = np.append(np.where(own == NONE, stranger, own), NONE)[sets]
        here = (known != stranger).all(axis=1) if stranger else np.ones(len(sets), dtype=bool)
        return passes.numbers(known[here]), probabilities[torch.from_numpy(here)]

    def keep(self, number: int, passes: Passes, made: IntArray, probabilities: Tensor) -> None:
        """Write down all votes about one picture; a reader never sees half a file."""
        path, sets = self.path(number), passes.sets(made)
        used = np.unique(sets[sets != NONE])
        place = np.full(passes.masks + 1, NONE, dtype=np.int64)
        place[used] = np.arange(len(used))
        tensors = {"sets": torch.from_numpy(place[sets]), "probabilities": probabilities.cpu().contiguous()}
        masks: list[Any] = [self.engine.forward.masks.footprints[mask] for mask in used]
        half = path.with_suffix(f".{os.getpid()}")
        try:
            save_file(tensors, half, metadata={"certmask_votes": FORMAT, "masks": json.dumps(masks)})
            half.replace(path)
        except (OSError, SafetensorError) as error:
            raise VoteError(f"expected room for votes in {self.folder}, got {error}") from None
