"""Files wherever fsspec reaches them: a local path or pattern, or a URL such as ``s3://…``, ``gs://…``, ``file://…``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from certmask.errors import DataError, first_line


def is_url(source: str) -> bool:
    return "://" in source


def found_files(source: str) -> tuple[Any, list[str]]:
    """The file system of a URL, path or pattern (``*``), and the files there in order; an error if there is none."""
    from fsspec.core import url_to_fs

    with reached(source):
        files, path = url_to_fs(source)
        names = sorted(files.glob(path)) if any(sign in path for sign in "*?[") else [path]
        found = [name for name in names if files.isfile(name)]
    if not found:
        raise DataError(f"expected files at {source}, got none")
    return files, found


def store_of(source: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    from fsspec.core import url_to_fs

    with reached(source):
        files, path = url_to_fs(source)
        return files, str(path).rstrip("/")


@contextmanager
def reached(source: str) -> Iterator[None]:
    """Whatever a file system says is an error about the source; also that its package is not installed."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # every store has errors of its own
        raise DataError(f"expected to reach {source}, got {first_line(error)}") from None


def content(files: Any, path: str, start: int | None = None, size: int | None = None) -> BinaryIO:
    """The bytes of a file, or those from ``start`` on."""
    with reached(path):
        end = None if start is None or size is None else start + size
        return io.BytesIO(files.cat_file(path, start=start, end=end))
