"""The attacker's means: which patches a threat allows, and which of them are worth trying."""

from __future__ import annotations

from itertools import chain

from certmask.errors import AttackError
from certmask.threat import Patch, Size, Threat


def patches_to_try(threat: Threat, image: Size, side: int | None = None) -> tuple[Patch, ...]:
    """Patches within a threat, to be tried in turn: as large as it allows, all shapes of a family, spread over it.

    Of a patch of unknown size, the largest has every other turn, beside smaller ones; ``side`` is the largest for which
    an image is certified, where that is less than the threat.
    """
    if threat.steps:
        return _of_sizes(threat, side or threat.steps[-1].height)
    boxes = threat.boxes_on(image)
    squarest = min(range(len(boxes)), key=lambda n: abs(boxes[n][0] - boxes[n][1]))
    order = dict.fromkeys([squarest, 0, len(boxes) - 1, *sorted(range(len(boxes)), key=_bits_reversed)])
    return tuple(Patch(*boxes[number], threat.count) for number in order)


def _of_sizes(threat: Threat, side: int) -> tuple[Patch, ...]:
    """The largest in every other turn; then one pixel less, which no step has, and the steps below."""
    below = {side - 1, *(step.height for step in threat.steps)}
    smaller = sorted((own for own in below if 0 < own < side), reverse=True)
    return tuple(Patch(own, own) for own in chain.from_iterable((side, less) for less in smaller or [side]))


def _bits_reversed(number: int) -> int:
    """Numbers in the order of these are spread evenly, however few are taken."""
    return int(f"{number:032b}"[::-1], 2)


def check_allowed(patch: Patch, threat: Threat, image: Size, side: int | None = None) -> None:
    """An error unless the threat, or that part of it up to a certified ``side``, allows such patches."""
    boxes = ((side, side),) if side else threat.boxes_on(image)
    within = any(patch.height <= height and patch.width <= width for height, width in boxes)
    if not within or patch.count > threat.count:
        limit = Patch(side, side) if side else threat
        raise AttackError(f"expected no more than {limit}, got {patch}")
