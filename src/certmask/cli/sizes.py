"""Sizes and folds as people type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from certmask.errors import UsageError

if TYPE_CHECKING:
    from certmask.threat import Patch, Size


def parse_size(text: str, what: str) -> Size:
    """``224`` or ``224x320`` (height × width)."""
    found = re.fullmatch(r"(\d+)(?:[x×,](\d+))?", text.strip())
    if not found or not all(1 <= int(number or 1) <= 100_000 for number in found.groups()):
        raise UsageError(f"expected {what} like {'1 or 3x2' if what == 'fold' else '32 or 32x48'}, got {text!r}")
    return int(found[1]), int(found[2] or found[1])


def optional_size(text: str | None, what: str) -> Size | None:
    return None if text is None else parse_size(text, what)


def make_patch(text: str | None, image: Size) -> Patch:
    """The patch that was asked for, else the default one; an error unless it fits into the image."""
    from certmask.cli.usage import asked_rightly
    from certmask.covers.default import default_patch
    from certmask.threat import Patch

    patch = default_patch(image) if text is None else Patch(*parse_size(text, "patch"))
    with asked_rightly():
        patch.positions(image)
    return patch


def check_mask(mask: Size, image: Size) -> None:
    """An error if a mask reaches beyond the input, or hides all of it: every picture would then look the same."""
    if mask[0] > image[0] or mask[1] > image[1] or mask == image:
        raise UsageError(
            f"expected a mask that leaves a part of the {image[0]}×{image[1]} input to be seen (else nothing about it "
            f"can be proved), got {mask[0]}×{mask[1]}"
        )
