"""Results files: a header with full provenance, then one row per image; append-only and safe to kill at any moment."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import platform
import warnings
import zlib
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError

FORMAT = 2
FORMER = {"schemes": "defences", "scheme": "defence"}
"""How format 1 called what format 2 calls; its files are read, not continued."""
OWN_SOURCE = ("certmask", "certmask source")
VOID = "void"
"""The one field of a line that takes back all others: the model turned out to be no function of one picture."""
Row = dict[str, Any]


def provenance() -> dict[str, str]:
    """Versions of everything that the numbers depend on."""
    versions = {"python": platform.python_version()}
    for package in ("certmask", "torch", "timm", "numpy", "pillow", "openvino"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {**versions, "certmask source": source_digest()}


@lru_cache(maxsize=1)
def source_digest() -> str:
    """A short hash of certmask's own program text, which a version number does not pin down while it is developed."""
    house, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(house.rglob("*.py")):
        digest.update(f"{file.relative_to(house).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


class ResultsFile:
    """Appends rows under a header; opening an existing file continues it if, and only if, the header is the same."""

    def __init__(self, path: Path, header: Row) -> None:
        self.path = path
        if path.suffix == ".gz":
            raise ResultsError(f"expected a results file that can be appended to, got the packed {path}")
        header = json.loads(json.dumps({"certmask_results": FORMAT, **header}))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+")
        except OSError as error:
            raise ResultsError(f"expected a writable results file, got {path} ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResultsError(f"expected {path} for this run alone, got one that another run is writing") from None
        self.rows = self._continue(header)

    def _continue(self, header: Row) -> list[Row]:
        """Check the header, drop a half-written last line, and return the rows that are there.

        Nothing is cut off a file that is not ours.
        """
        lines, whole = _whole_lines(self.path)
        if not lines:
            if not _line(header).startswith(self.path.read_bytes()):
                raise ResultsError(f"expected a new or a certmask results file, got another file at {self.path}")
            self._file.truncate(0)
            self._append(header)
            return []
        found = _parsed(lines, self.path)
        difference = _first_difference(found[0], self._own_source_told(found[0], header))
        if difference:
            raise ResultsError(
                f"expected to continue {self.path} with the same inputs, got another {difference}; "
                "delete the file or name another one with --out"
            )
        self._file.truncate(whole)
        return found[1:]

    def _own_source_told(self, old: Row, header: Row) -> Row:
        """The header with the file's version and source of certmask: another one is told, not refused."""
        then, now = old.get("versions", {}), header.get("versions", {})
        told = {key: then[key] for key in OWN_SOURCE if key in then and then[key] != now.get(key)}
        for key, value in told.items():
            warnings.warn(f"{self.path} was begun with {key} {value}, here {now.get(key)}", stacklevel=4)
        return {**header, "versions": {**now, **told}} if told else header

    def write(self, row: Row) -> None:
        """Add one row; when this returns, the row survives a crash."""
        self._append(row)
        self.rows.append(json.loads(json.dumps(row)))

    def void(self, reason: str) -> None:
        """Mark the file so that nobody reads it as results any more."""
        self._append({VOID: reason})

    def _append(self, row: Row) -> None:
        try:
            self._file.write(_line(row))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ResultsError(f"expected room to write {self.path}, got {error.strerror}") from None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_results(path: Path) -> tuple[Row, list[Row]]:
    """Header and rows of a results file, packed (``.gz``) or not; a half-written last line is left out."""
    if not path.is_file():
        raise ResultsError(f"expected a results file, got {'a folder' if path.is_dir() else 'nothing'} at {path}")
    lines, _ = _whole_lines(path)
    if not lines:
        raise ResultsError(f"expected a results file with a header, got an empty or truncated one at {path}")
    header, *rows = _parsed(lines, path)
    return header, rows


def picture_folder(attempts: Path) -> Path:
    """Where the pictures of an attempts file lie."""
    return attempts.with_name(f"{attempts.stem}-pictures")


def _line(row: Row) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def _whole_lines(path: Path) -> tuple[list[bytes], int]:
    content = _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
    whole = content.rfind(b"\n") + 1
    return content[:whole].splitlines(), whole


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ResultsError(f"expected a gzip file at {path}, got {error}") from None


def _parsed(lines: Iterable[bytes], path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            raise ResultsError(f"expected JSON in every line of {path}, got something else in line {number}") from None
        if not isinstance(row, dict) or (number == 1 and row.get("certmask_results") not in (1, FORMAT)):
            raise ResultsError(f"expected a certmask results file of format {FORMAT}, got {path}")
        if VOID in row:
            raise ResultsError(f"expected results that hold, got {path}, which is void: {row[VOID]}")
        rows.append(row)
    return [_renamed(row) for row in rows] if rows[0]["certmask_results"] == 1 else rows


def _renamed(row: Row) -> Row:
    """A row of format 1 with the names of format 2; ``certmask_results`` still says 1."""
    row = {FORMER.get(key, key): value for key, value in row.items()}
    if "certmask_results" in row and isinstance(row.get("defences"), dict):
        row["defences"] = {name: _with_threat(defence) for name, defence in row["defences"].items()}
    return row


def _with_threat(described: Any) -> Any:
    """Format 1 left the threat to the cover."""
    try:
        (height, width), image = described["cover"]["patch"], described["cover"]["image"]
    except (KeyError, TypeError, ValueError):
        return described
    return {**described, "threat": {"kind": "patch", "height": height, "width": width}, "image": image}


def _first_difference(old: Any, new: Any, where: str = "") -> str:
    """The first field in which two headers differ, with both values; empty if none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            difference = _first_difference(old.get(key), new.get(key), f"{where}.{key}" if where else key)
            if difference:
                return difference
        return ""
    return "" if old == new else f"{where} ({_short(new)}, where the file has {_short(old)})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
