"""A patch in the stored photo, as people ask for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from certmask.cli.usage import asked_rightly
from certmask.errors import UsageError

if TYPE_CHECKING:
    from certmask.cli.choices import Choices
    from certmask.data.sticker import Sticker
    from certmask.threat import Patch, PhotoPatch


def wanted_patch(
    in_photo: str | None, before_jpeg: bool, in_input: Sequence[object], defence: Path | None = None
) -> PhotoPatch | None:
    """``60``, ``60x40`` or ``5%``; None where nobody asks for a patch in the photo.

    ``in_input`` are the options that ask for another threat, None or 1 where they do not.
    """
    from certmask.threat import photo_patch

    if in_photo is None:
        if before_jpeg:
            raise UsageError("expected --before-jpeg beside --patch-in-photo, got it alone")
        return None
    if any(told not in (None, 1) for told in in_input):
        raise UsageError(
            "expected --patch-in-photo alone, or a threat in the model's input (--patch, --patches, --patch-area, "
            "--patch-sizes), got both"
        )
    if defence is not None:
        raise UsageError("expected --patch-in-photo or a defence that is made for its patch, got both")
    with asked_rightly():
        return photo_patch(in_photo, before_jpeg)


def chosen_for(choices: Choices, stickers: Sequence[Sticker]) -> list[Choices]:
    """What was chosen, against each patch in the input that one in some photo becomes, smallest first.

    Sizes that no mask can hide without hiding all are left out; an error if the smallest is one of these.
    """
    from certmask.data.sticker import classes_of
    from certmask.errors import DataError

    classes = classes_of(stickers)
    if not classes:
        raise DataError(f"expected a photo with a patch that leaves a part of the input alone, got {stickers[0]}")
    first, *others = (replace(choices, patch=typed(patch)) for patch in classes)
    first.check()
    return [first, *filter(_suits, others)]


def _suits(choices: Choices) -> bool:
    try:
        choices.check()
    except UsageError:
        return False
    return True


def reached(wanted: PhotoPatch, stickers: Sequence[Sticker], family: Sequence[Choices]) -> str:
    """In how many photos the patch becomes which patch in the input, in words."""
    sizes = [one.patch for one in family]
    counts = Counter(typed(one.threat) if typed(one.threat) in sizes else None for one in stickers)
    told = [f"at most {size.replace('x', '×')} in {counts[size]:,}" for size in sizes if size]
    if counts[None]:
        told.append(f"too much of it to prove anything in {counts[None]:,}")
    return f"{wanted}: of the input it reaches {', '.join(told)} of {len(stickers):,} photos"


def typed(patch: Patch) -> str:
    """A patch in the input as ``--patch`` takes it."""
    return "x".join(map(str, patch.size))
