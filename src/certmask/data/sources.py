"""Where labelled photos come from: one file and one row of this table for each form."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from certmask.data.labels import CIFAR10, Classes
from certmask.errors import DataError, any_of

if TYPE_CHECKING:
    from certmask.data.dataset import Dataset
    from certmask.data.framing import Framing


@dataclass(frozen=True)
class Source:
    """One form of labelled photos, in the words of the help and of an error, with the classes that it always has.

    ``file`` names the file of this room that reads it, with two functions: ``recognises(source) -> bool`` and
    ``read(source, classes, framing) -> Dataset``.
    """

    file: str
    words: str
    expected: str | None = None
    classes: tuple[str, ...] = ()

    @property
    def reader(self) -> Any:
        return import_module(f"certmask.data.{self.file}")


SOURCES = (
    Source("folders", "folder of class folders", "a folder of class folders"),
    Source("tar", "tar", "a tar"),
    Source("csv_file", "CSV", "a CSV file"),
    Source("cifar10", "CIFAR-10", classes=CIFAR10),
    Source("remote", "a URL of class folders", "a URL"),
    Source("shards", "tar shards (*.tar)", "tar shards"),
    Source("parquet", "Parquet", "Parquet files"),
    Source("demo", "demo or demo-cifar10", "a built-in set (demo, demo-cifar10)"),
)
"""From the general to the special: the last row that recognises a string reads it."""


def sources_help() -> str:
    """All forms in one line."""
    words = ", ".join(row.words for row in SOURCES)
    return f"{words[0].upper()}{words[1:]}."


def load_dataset(source: str, classes: Classes, framing: Framing | float) -> Dataset:
    """A folder of class folders, a tar of one (``FILE.tar:FOLDER``), a CSV, CIFAR-10's batches, or a demo set.

    Tar shards (``FOLDER/*.tar``) and Parquet files, too, and all three behind a URL that fsspec knows.

    ``classes[c]`` lists the names that stand for class ``c``, a class number is understood, too; None takes the
    folders' names in order. A number for ``framing`` is the share that a centre crop keeps.
    """
    from certmask.data.framing import Framing

    framing = framing if isinstance(framing, Framing) else Framing(framing)
    dataset: Dataset = _source_of(source).reader.read(source, classes, framing)
    return dataset


def check_source(source: str) -> None:
    """An error if there is nothing at a source: known before a model is loaded for it."""
    _source_of(source)


def class_folders(source: str) -> list[str]:
    """The class names that a data set brings, in order."""
    known = _source_of(source).classes
    return list(known or dict.fromkeys(s.name.split("/")[0] for s in load_dataset(source, None, 1.0).samples))


def _source_of(source: str) -> Source:
    """The row of the table that a string belongs to; an error if none recognises it."""
    for row in reversed(SOURCES):
        if row.reader.recognises(source):
            return row
    raise DataError(f"expected {any_of(row.expected for row in SOURCES if row.expected)}, got {source!r}")
