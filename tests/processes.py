"""The command line in a process of its own that can be killed, stopped or starved.

Each is forked from a server that has imported all this, which takes seconds, and has computed nothing yet.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from certmask.cli import main
from certmask.zoo.timm_import import import_timm

for module in ("certmask.certification", "certmask.cli.choices", "certmask.cli.console", "certmask.report.tables"):
    import_module(module)
import_timm()
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


def started(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that does some work; it ends with this one at the latest."""
    process = FORKS.Process(target=work, args=arguments, daemon=True)
    with patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):
        process.start()
    return process


def certify(arguments: list[str], said: Path, room: int | None = None) -> None:
    """``certmask certify``, for ``started``."""
    perform(["certify", *arguments], said, room)


def perform(arguments: list[str], said: Path, room: int | None = None) -> None:
    """A command, for ``started``; what it prints goes to a file, and no file may be larger than ``room``."""
    torch.set_num_threads(1)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    sys.argv = ["certmask", *arguments]
    main()


def await_growth(path: Path, process: BaseProcess) -> None:
    """Wait until a process has written to a file, or for its end."""
    before = _size(path)
    while process.is_alive() and _size(path) <= before:
        time.sleep(0.002)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def children(process: int) -> set[int]:
    """All processes below one, as /proc knows them."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found, grown = {process}, True
    while grown:
        below = {child for child, parent in parents.items() if parent in found}
        grown = not below <= found
        found |= below
    return found - {process}
