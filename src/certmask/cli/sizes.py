"""Sizes and folds as people type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from certmask.errors import CertmaskError

if TYPE_CHECKING:
    from certmask.threat import Patch, Size


def parse_size(text: str, what: str) -> Size:
    """``224`` or ``224x320`` (height × width)."""
    found = re.fullmatch(r"(\d+)(?:[x×,](\d+))?", text.strip())
    if not found or not all(1 <= int(number or 1) <= 100_000 for number in found.groups()):
        raise CertmaskError(f"expected {what} like {'1 or 3x2' if what == 'fold' else '32 or 32x48'}, got {text!r}")
    return int(found[1]), int(found[2] or found[1])


def optional_size(text: str | None, what: str) -> Size | None:
    return None if text is None else parse_size(text, what)


def make_patch(text: str | None, image: Size) -> Patch:
    """The patch that was asked for, else the default one."""
    from certmask.covers.default import default_patch
    from certmask.threat import Patch

    return default_patch(image) if text is None else Patch(*parse_size(text, "patch"))
