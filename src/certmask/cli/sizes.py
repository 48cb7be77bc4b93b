"""Sizes and folds as people type them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING

from certmask.errors import UsageError

if TYPE_CHECKING:
    from certmask.covers import Cover
    from certmask.covers.zoom import Level
    from certmask.threat import Patch, Size, Threat, UpTo

MOST_CELLS = 2_500
"""So many places can be judged in pairs before their tables fill a memory."""


def parse_size(text: str, what: str) -> Size:
    """``224`` or ``224x320`` (height × width)."""
    found = re.fullmatch(r"(\d+)(?:[x×,](\d+))?", text.strip())
    if not found or not all(1 <= int(number or 1) <= 100_000 for number in found.groups()):
        raise UsageError(f"expected {what} like {'1 or 3x2' if what == 'fold' else '32 or 32x48'}, got {text!r}")
    return int(found[1]), int(found[2] or found[1])


def optional_size(text: str | None, what: str) -> Size | None:
    return None if text is None else parse_size(text, what)


def optional_levels(text: str | None) -> tuple[Level, ...] | None:
    """``2,3,6:2`` → masks per axis of every level, coarse to fine, and a fold where one is given."""
    if text is None:
        return None
    found = [re.fullmatch(r"(\d{1,3})(?::(\d))?", part.strip()) for part in text.split(",")]
    levels = [(int(one[1]), int(one[2] or 1)) for one in found if one]
    if len(levels) < len(found) or any(not all(level) for level in levels):
        raise UsageError(f"expected levels as masks per axis, like 2,3,6,12 or 3,6:2,12, got {text!r}")
    return tuple(per_axis if fold == 1 else (per_axis, fold) for per_axis, fold in levels)


def parse_thresholds(text: str) -> float | list[float]:
    """``0.5`` for all levels but the last, or ``0.9,0.5,0.3``, one for each."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"expected thresholds like 0.5 or 0.9,0.5,0.3, got {text!r}") from None
    return numbers if len(numbers) > 1 else numbers[0]


def make_patch(text: str | None, image: Size) -> Patch:
    """The patch that was asked for, else the default one; an error unless it fits into the image."""
    from certmask.cli.usage import asked_rightly
    from certmask.covers.default import default_patch
    from certmask.threat import Patch

    patch = default_patch(image) if text is None else Patch(*parse_size(text, "patch"))
    with asked_rightly():
        patch.positions(image)
    return patch


def make_threat(patch: str | None, patches: int, area: str | None, sizes: str | None, image: Size) -> Threat:
    """What was asked for: some patches of one size, or a rectangle of an area, or a patch of unknown size."""
    from dataclasses import replace

    from certmask.cli.usage import asked_rightly
    from certmask.threat import AnyRectangle

    kinds = {"--patch": patch, "--patch-area": area, "--patch-sizes": sizes}
    given = [option for option, text in kinds.items() if text is not None]
    if len(given) > 1:
        raise UsageError(f"expected one of --patch, --patch-area and --patch-sizes, got {given[0]} and {given[1]}")
    if patches > 1 and given and given != ["--patch"]:
        raise UsageError(f"expected --patches beside --patch, got {patches} beside {given[0]}")
    with asked_rightly():
        if area is not None:
            threat: Threat = AnyRectangle(_area(area, image))
        else:
            threat = replace(make_patch(patch, image), count=patches) if sizes is None else _up_to(sizes)
        threat.boxes_on(image)
    return threat


def _area(text: str, image: Size) -> int:
    """``1024``, or ``2%``: the square of whole pixels that has at least this share of the image, in pixels."""
    percent = re.fullmatch(r"(\d{1,2}(?:\.\d+)?) ?%", text.strip())
    if percent:
        pixels = math.ceil(Fraction(percent[1]) * image[0] * image[1] / 100)
        return (math.isqrt(pixels - 1) + 1) ** 2 if pixels else 0
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise UsageError(f"expected an area like 1024 or 2%, got {text!r}")
    return int(text)


def _up_to(text: str) -> UpTo:
    """``48``, or ``16,32,48``."""
    from certmask.threat import UpTo

    if not re.fullmatch(r"\d{1,5}( ?, ?\d{1,5})*", text.strip()):
        raise UsageError(f"expected sides of squares like 16,32,48, or the largest alone, got {text!r}")
    sizes = [int(part) for part in text.split(",")]
    return UpTo(max(sizes), tuple(sizes) if len(sizes) > 1 else ())


def check_mask(mask: Size, image: Size) -> None:
    """An error if a mask reaches beyond the input, or hides all of it: every picture would then look the same."""
    if mask[0] > image[0] or mask[1] > image[1] or mask == image:
        raise UsageError(
            f"expected a mask that leaves a part of the {image[0]}×{image[1]} input to be seen (else nothing about it "
            f"can be proved), got {mask[0]}×{mask[1]}"
        )


def check_levels(cover: Cover) -> None:
    """An error if a mask of a level hides the whole input, or if there are too many places to be judged in pairs."""
    for level in cover.levels:
        check_mask(level.mask, cover.image)
    if len(cover.cells) > MOST_CELLS:
        raise UsageError(
            f"expected levels that tell at most {MOST_CELLS:,} places apart, got {len(cover.cells):,}: "
            "take fewer masks per axis"
        )
