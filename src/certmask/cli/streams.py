"""The two streams that every command prints to: any letter on any terminal, and notes of the library on stderr."""

from __future__ import annotations

import codecs
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLAIN = {"×": "x", "–": "-", "—": "-", "…": "...", "·": "-", "≤": "<=", "≥": ">=", "→": "->", "’": "'"}
"""What stands in for a sign where the terminal has no such letter."""


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """A sign by its plain stand-in, any other letter by its number as JSON spells it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter) or _spelled(letter) for letter in letters), error.end


def _spelled(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_any_letter() -> None:
    """From here on no letter stops a command, whatever the encoding of its output."""
    codecs.register_error("plain-letters", _in_plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain-letters")


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"note: {record.getMessage()}\n")


def _one_line(usual: Callable[..., None]) -> Callable[..., None]:
    """Show certmask's own warnings without the line of the program that they come from."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if category is UserWarning and "certmask" in filename:
            logging.getLogger("certmask").warning(str(message))
        else:
            usual(message, category, filename, *rest)

    return show


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """What the library has to say meanwhile, its warnings included, one line each."""
    log, notes = logging.getLogger("certmask"), _Notes()
    before = log.level
    log.addHandler(notes)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line(warnings.showwarning)
            yield
    finally:
        log.removeHandler(notes)
        log.setLevel(before)
