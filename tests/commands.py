"""The command line as the tests call it: its entry point, in this process unless the process itself is the subject."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer.main

from certmask.cli import main
from certmask.results.file import read_results

PROGRAM = (sys.executable, "-c", "from certmask.cli import main; main()")
"""The command line as a process of its own; a second of importing torch and timm each."""

COMMANDS = lru_cache(typer.main.get_command)
"""What typer makes of the commands' signatures anew for every call: the same for all calls of a process."""


@dataclass
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


def certmask(*arguments: str | Path, cwd: Path | None = None, code: int = 0, lines: int = 1) -> Done:
    """Run the command line's entry point; an error must be one line (or as many as are given) without a traceback."""
    if arguments[0] in ("predict", "certify") and "--backend" not in arguments:
        arguments = (*arguments, "--backend", "torch")
    out, err, found = StringIO(), StringIO(), 0
    with (
        patch.object(sys, "argv", ["certmask", *map(str, arguments)]),
        patch("typer.main.get_command", COMMANDS),
        patch.dict(os.environ, {"COLUMNS": "160", "NO_COLOR": "1"}),
        chdir(cwd or Path.cwd()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            found = int(stop.code or 0)
    done = Done(out.getvalue(), err.getvalue())
    assert found == code, done
    if code == 1:
        assert any(line.startswith("error: expected") for line in done.stderr.splitlines())
        assert done.stderr.count("\n") == lines
    return done


@contextmanager
def chdir(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def outcomes(path: Path) -> dict[str, Any]:
    """What a results file found, without the timings."""
    return {row["image"]: {k: row[k] for k in ("label", "passes", "defences")} for row in read_results(path)[1]}
