"""What every worker builds for itself, and how workers are known to have built the same function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from certmask.certification import Defences, function_header
from certmask.engine import Engine
from certmask.errors import ResultsError
from certmask.results.file import Row, first_difference
from certmask.votes import Margin


class Setting(Protocol):
    """A recipe that can be pickled: the engine, and the defences once the margin is known."""

    def engine(self) -> Engine:
        """The classifier with the masks of all defences, on the device of this process."""

    def defences(self, engine: Engine, margin: Margin) -> Defences:
        """The defences that the engine was made for."""


@dataclass(frozen=True)
class Workplace:
    """Where a worker works: the folder of the command, so that relative paths mean the same, and its threads."""

    folder: Path
    threads: int

    def enter(self) -> None:
        """Compute with as many threads as were reserved; an error where the folder is not there."""
        torch.set_num_threads(self.threads)
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ResultsError(
                f"expected the folder {self.folder} on every node, got none on {os.uname().nodename} ({error.strerror})"
            ) from None


def check_same_function(said: Row, engine: Engine, defences: Defences) -> None:
    """Refuse a worker that is another function than the run's: a fingerprint, a version or a switch that differs."""
    difference = first_difference(said, function_header(engine, defences))
    if difference:
        raise ResultsError(
            f"expected the same function on every worker, got another {difference.replace('the file', 'the run')} "
            f"on {os.uname().nodename}"
        )
