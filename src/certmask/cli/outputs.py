"""Where a command is asked to write: refused before any work is done if that cannot be."""

from __future__ import annotations

from pathlib import Path

from certmask.errors import ResultsError, UsageError
from certmask.results.file import read_results
from certmask.results.run import check_begun


def check_picture(path: Path | None) -> None:
    """An error unless a picture can be drawn there, as far as its name says."""
    if path is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise UsageError(f"expected a picture file ending in .png, .pdf or .svg, got {path}")
    check_file(path)


def check_file(path: Path) -> None:
    """An error if something lies there that is no file to write into: a folder, a device, a pipe."""
    if path.exists() and not path.is_file():
        got = "a folder" if path.is_dir() else "a device, pipe or socket"
        raise ResultsError(f"expected a file to write into, got {got} at {path}")


def check_folder(path: Path) -> None:
    """An error if something else than a folder lies there."""
    if path.exists() and not path.is_dir():
        raise ResultsError(f"expected a folder to write into, got something else at {path}")


def check_continued(out: Path) -> None:
    """An error if a results file cannot be gone on with: no file at all, or a row that cannot be true."""
    check_file(out)
    if out.is_file() and b"\n" in out.read_bytes():
        check_begun(out, *read_results(out))
