"""Duels between hypotheses "the patch is here, so the class is this": the second round of every recovery rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from certmask.certificate import Decision
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, majority

Duels = Callable[[IntArray], Asking[IntArray]]
"""Given pairs of hypotheses about a picture, ``[n, 2]``, the class that each pair's common votes name, ``[n]``."""


def tournament(claims: IntArray, duels: Duels) -> Asking[Decision]:
    """Strike out hypotheses until the survivors claim one class, and answer it; alert if none survives.

    ``claims[t]`` is the class of hypothesis ``t``. A duel strikes out whichever side its outcome does not confirm, so
    a hypothesis whose every duel confirms it survives. The rarest claim challenges the others, in rounds of 1, 2, 4, …
    duels. Survivors against the majority of claims must also have won against those that fell to others: where a
    certificate holds, one has; where none has, no patch explains the picture and the majority is the better answer.
    """
    alive = np.ones(len(claims), dtype=bool)
    round_size = 1
    while alive.any() and (claims[alive] != claims[alive][0]).any():
        champion = _rarest(claims, alive)
        rivals = np.flatnonzero(alive & (claims != claims[champion]))[:round_size]
        outcome = yield from duels(np.stack([np.full_like(rivals, champion), rivals], axis=1))
        alive[rivals] = claims[rivals] == outcome
        alive[champion] = bool((outcome == claims[champion]).all())
        round_size = 2 * round_size if alive[champion] else 1
    favourite = majority(claims)
    if not alive.any():
        return Decision(favourite, alert=True)
    claim = int(claims[alive][0])
    if claim == favourite or (yield from _some_unbeaten(np.flatnonzero(alive), claims, duels)):
        return Decision(claim)
    return Decision(favourite)


def _some_unbeaten(survivors: IntArray, claims: IntArray, duels: Duels) -> Asking[bool]:
    """Whether one of the survivors wins against every hypothesis with another claim."""
    for survivor in survivors:
        rivals = np.flatnonzero(claims != claims[survivor])
        outcome = yield from duels(np.stack([np.full_like(rivals, survivor), rivals], axis=1))
        if (outcome == claims[survivor]).all():
            return True
    return False


def _rarest(claims: IntArray, alive: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """The first surviving hypothesis of the class that fewest survivors claim."""
    counts = np.bincount(claims[alive]).astype(float)
    counts[counts == 0] = np.inf
    return int(np.flatnonzero(alive & (claims == counts.argmin()))[0])
