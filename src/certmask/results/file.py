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
from importlib import import_module, metadata
from io import FileIO
from pathlib import Path
from typing import Any

from certmask.errors import ResultsError

FORMAT = 2
FORMER = {"schemes": "defences", "scheme": "defence"}
"""How format 1 called what format 2 calls; its files are read, not continued."""
OWN_SOURCE = ("certmask", "certmask source")
VOID = "void"
"""The one field of a line that takes back all others: the model turned out to be no function of one picture."""
SET_ASIDE = "set_aside"
"""The field of a line about a photo that has no row: a note, which is not among the rows."""
OPENING = b'{"certmask_results": '
"""How every results file begins."""
Row = dict[str, Any]


def provenance(others: Iterable[str] = ()) -> dict[str, str]:
    """Versions of everything that the numbers depend on, ``others`` where a model needs them."""
    packages = ("torch", "timm", "numpy", "pillow", "openvino", *others)
    versions = {package: _version(package) for package in packages}
    own = {"certmask": import_module("certmask").__version__, "certmask source": source_digest()}
    return {"python": platform.python_version(), **own, **versions}


@lru_cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


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
        self.path, self._place = path, path.absolute()
        if path.suffix == ".gz":
            raise ResultsError(f"expected a results file that can be appended to, got the packed {path}")
        self.header = json.loads(json.dumps({"certmask_results": FORMAT, **header}))
        self._file = _opened(path)
        try:
            _lock(self._file, path)
            self.rows = self._continue()
        except BaseException:
            self.close()
            raise

    def _continue(self) -> list[Row]:
        """Check the header, drop a half-written last line, and return the rows that are there.

        Nothing is cut off a file that is not ours.
        """
        content = _content(self.path)
        lines, whole = _whole_lines(content)
        if not lines:
            self._check_begun(content)
            self._file.truncate(0)
            self._append(self.header)
            return []
        found = _parsed(lines, self.path)
        difference = first_difference(found[0], self._own_source_told(found[0], self.header))
        if difference:
            raise self._other_inputs(f"another {difference}")
        self._file.truncate(whole)
        return [row for row in found[1:] if SET_ASIDE not in row]

    def _own_source_told(self, old: Row, header: Row) -> Row:
        """The header with the file's version and source of certmask: another one is told, not refused."""
        then, now = old.get("versions", {}), header.get("versions", {})
        told = {key: then[key] for key in OWN_SOURCE if key in then and then[key] != now.get(key)}
        for key, value in told.items():
            warnings.warn(f"{self.path} was begun with {key} {value}, here {now.get(key)}", stacklevel=4)
        return {**header, "versions": {**now, **told}} if told else header

    def _check_begun(self, content: bytes) -> None:
        """What holds no whole line must be the beginning of this header; a crash may have left zeros for the rest."""
        begun, header = content.rstrip(b"\0"), _line(self.header)
        if header.startswith(begun) and len(content) <= len(header):
            return
        if begun.startswith(OPENING):
            raise self._other_inputs("half the header of another run")
        raise ResultsError(f"expected a new or a certmask results file, got another file at {self.path}")

    def _other_inputs(self, got: str) -> ResultsError:
        return ResultsError(
            f"expected to continue {self.path} with the same inputs, got {got}; delete the file or name another one"
        )

    def write(self, row: Row, keep: bool = True) -> None:
        """Add one row; when this returns, the row survives a crash, and when it fails, the file is as before.

        Without ``keep`` it is not among ``rows``, so that memory does not grow with them.
        """
        self._append(row)
        if keep:
            self.rows.append(json.loads(json.dumps(row)))

    def set_aside(self, image: str, error: str) -> None:
        """Note that a photo has no row, and why; it is no result, and whoever goes on tries the photo again."""
        self._append({SET_ASIDE: image, "error": error})

    def void(self, reason: str) -> None:
        """Mark the file so that nobody reads it as results any more; where there is no room for a mark, by its name."""
        try:
            self._write({VOID: reason})
        except ResultsError:
            if _same_file(self._file, self._place):
                self._place.replace(self._place.with_name(f"{self._place.name}.void"))

    def _append(self, row: Row) -> None:
        if not _same_file(self._file, self._place):
            raise ResultsError(f"expected {self.path} to stay where it is during a run, got it moved or deleted")
        self._write(row)

    def _write(self, row: Row) -> None:
        """Add a line, wherever the file lies meanwhile; when it fails, the file is as before."""
        end = self._file.seek(0, os.SEEK_END)
        rest = _line(row)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
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
        raise ResultsError(f"expected a results file, got {_kind(path)} at {path}")
    lines, _ = _whole_lines(content(path))
    if not lines:
        raise ResultsError(f"expected a results file with a header, got an empty or truncated one at {path}")
    header, *rows = _parsed(lines, path)
    return header, [row for row in rows if SET_ASIDE not in row]


def content(path: Path) -> bytes:
    """What a results file says, byte by byte as it was written, packed since or not."""
    return _unpacked(path) if path.suffix == ".gz" else _content(path)


def read_set_aside(path: Path) -> dict[str, str]:
    """Photos of a results file that have no row, each with the last reason why."""
    lines, _ = _whole_lines(content(path))
    rows = _parsed(lines, path)[1:]
    done = {row.get("image") for row in rows}
    return {row[SET_ASIDE]: str(row.get("error")) for row in rows if SET_ASIDE in row and row[SET_ASIDE] not in done}


def picture_folder(attempts: Path) -> Path:
    """Where the pictures of an attempts file lie, packed or not."""
    return attempts.with_name(f"{Path(attempts.name.removesuffix('.gz')).stem}-pictures")


def _line(row: Row) -> bytes:
    line = json.dumps(row, ensure_ascii=False) + "\n"
    try:
        return line.encode()
    except UnicodeEncodeError as error:
        part = line[max(error.start - 20, 0) : error.end + 20]
        raise ResultsError(f"expected whole characters in every row, got half of one in {part!r}") from None


def _opened(path: Path) -> FileIO:
    """A file to append to, without a buffer: what could not be written is not tried again behind our back."""
    if path.exists() and not path.is_file():
        raise ResultsError(f"expected a writable results file, got {_kind(path)} at {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab+", buffering=0)
    except OSError as error:
        raise ResultsError(f"expected a writable results file, got {path} ({error.strerror})") from None


def _kind(path: Path) -> str:
    """What lies where a file was expected; to read a pipe or a device might never end."""
    if not path.exists():
        return "nothing"
    return "a folder" if path.is_dir() else "a pipe" if path.is_fifo() else "a device"


def _lock(file: FileIO, path: Path) -> None:
    """Keep a file for this process until it is closed, or killed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResultsError(f"expected {path} for this run alone, got one that another run is writing") from None
    except OSError as error:
        raise ResultsError(
            f"expected a file system that can lock {path} against a second run, got {error.strerror}; "
            "name a file on another one"
        ) from None


def _same_file(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultsError(f"expected a readable results file, got {path} ({error.strerror})") from None


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(_content(path))
    except (OSError, EOFError, zlib.error) as error:
        raise ResultsError(f"expected a gzip file at {path}, got {error}") from None


def _whole_lines(content: bytes) -> tuple[list[bytes], int]:
    """All lines but a half-written last one, and the number of their bytes."""
    whole = content.rfind(b"\n") + 1
    return content[:whole].splitlines(), whole


def _parsed(lines: Iterable[bytes], path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            got = "zeros that a crash has left" if b"\0" in line else "something else"
            raise ResultsError(f"expected JSON in every line of {path}, got {got} in line {number}") from None
        if not isinstance(row, dict):
            raise ResultsError(f"expected named fields in every line of {path}, got others in line {number}")
        if number == 1:
            _check_format(row.get("certmask_results"), path)
        if VOID in row:
            raise ResultsError(f"expected results that hold, got {path}, which is void: {row[VOID]}")
        rows.append(row)
    return [_renamed(row) for row in rows] if rows[0]["certmask_results"] == 1 else rows


def _check_format(found: Any, path: Path) -> None:
    if type(found) is not int or found < 1:
        raise ResultsError(f"expected a certmask results file, got another file at {path}")
    if found > FORMAT:
        raise ResultsError(
            f"expected a results file of format {FORMAT} or before, got format {found} in {path}: "
            "a later certmask wrote it, and reads it"
        )


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


def first_difference(old: Any, new: Any, where: str = "") -> str:
    """The first field in which two headers differ, with both values; empty if none. What only one has comes first."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({**old, **new}, key=lambda key: key in old and key in new):
            difference = first_difference(old.get(key), new.get(key), f"{where}.{key}" if where else key)
            if difference:
                return difference
        return ""
    return "" if old == new else f"{where} ({_short(new)}, where the file has {_short(old)})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
