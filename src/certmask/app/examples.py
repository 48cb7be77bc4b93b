"""Photos that anybody may use, for whoever has none at hand, and photos that people bring."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from certmask.data import Framing
from certmask.errors import UsageError, any_of
from certmask.service.limits import Limits
from certmask.service.photos import Darkroom
from certmask.threat import Size

FOLDER = Path(__file__).parent / "photos"
EXAMPLES = ("cat", "cup", "rocket")


@dataclass(frozen=True)
class Photo:
    """A photo as its file has it: what it is called, and its bytes, which are not looked at before they are needed."""

    name: str
    content: bytes = field(repr=False)

    def seen(self, framing: Framing, size: Size, limits: Limits) -> Image.Image:
        """What a model is shown of it; refused where it is no photo, or has too many bytes or pixels."""
        limits.check_upload(len(self.content))
        return Darkroom(framing, size, limits).framed(self.content)


def example(name: str) -> Photo:
    """One of the photos that come with certmask."""
    if name not in EXAMPLES:
        raise UsageError(f"expected the example {any_of(EXAMPLES)}, got {name!r}")
    return Photo(name, (FOLDER / f"{name}.jpg").read_bytes())
