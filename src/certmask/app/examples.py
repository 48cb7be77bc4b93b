"""Photos that anybody may use, for whoever has none at hand, and photos that people bring."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from certmask.errors import UsageError, any_of

FOLDER = Path(__file__).parent / "photos"
EXAMPLES = ("cat", "cup", "rocket")


@dataclass(frozen=True)
class Photo:
    """A photo as its file has it: what it is called, and its bytes, which are not looked at before they are needed.

    A ``shipped`` one comes with certmask, and is looked at however little visitors may bring.
    """

    name: str
    content: bytes = field(repr=False)
    shipped: bool = False


def example(name: str) -> Photo:
    """One of the photos that come with certmask."""
    if name not in EXAMPLES:
        raise UsageError(f"expected the example {any_of(EXAMPLES)}, got {name!r}")
    return Photo(name, (FOLDER / f"{name}.jpg").read_bytes(), shipped=True)


def chosen_photo(name: str | None, own: Photo | None) -> Photo:
    """The example that is chosen by name or, if none is, the visitor's own photo, which is not kept for ever."""
    if name is not None:
        return example(name)
    if own is None:
        raise UsageError("expected your photo, got none: it is kept for half an hour, please upload it again")
    return own
