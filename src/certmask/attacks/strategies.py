"""Strategies of an attacker who controls votes: what is known to beat rules, and chance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from certmask.attacks.vote_game import CLEAN, Strategy, VoteGame
from certmask.geometry import IntArray

SPARED = 6
"""How many different masks are spared in turn."""


def turning(masks: IntArray, row: int) -> Strategy:
    """Turn the passes whose masks are all among ``masks`` (and the bare one); leave the others alone."""
    return lambda passes: np.where(np.isin(passes, np.append(masks, -1)).all(axis=1), row, CLEAN)


def known_strategies(game: VoteGame, chance: np.random.Generator) -> Iterator[Strategy]:
    """For every output: turn all; spare one mask; turn masks with exactly k votes; turn ever more masks."""
    free = game.free_masks
    for row in range(len(game.palette)):
        yield turning(free, row)
        for spared in chance.permutation(free)[:SPARED]:
            yield turning(free[free != spared], row)
        exactly = votes_summing_to(np.array(game.votes.cover.copies)[free], game.votes.cover.k)
        if exactly is not None:
            yield turning(free[exactly], row)
        order = chance.permutation(free)
        for count in _counts(len(free), game.votes.cover.k):
            yield turning(order[:count], row)


def random_strategies(game: VoteGame, count: int, chance: np.random.Generator) -> Iterator[Strategy]:
    """Outputs drawn at random, with a favourite that is preferred more or less."""
    for _ in range(count):
        favourite, zeal = int(chance.integers(len(game.palette))), chance.choice([0.0, 0.5, 0.8, 0.95])

        def strategy(passes: IntArray, favourite: int = favourite, zeal: float = zeal) -> IntArray:
            other = chance.integers(CLEAN, len(game.palette), size=len(passes))
            return np.where(chance.random(len(passes)) < zeal, favourite, other)

        yield strategy


def votes_summing_to(weights: IntArray, total: int) -> IntArray | None:
    """Positions whose weights add up to ``total`` exactly; None if there are none."""
    last = {0: -1}
    for position, weight in enumerate(weights.tolist()):
        for reached in sorted(last, reverse=True):
            if reached + weight <= total:
                last.setdefault(reached + weight, position)
    if total not in last:
        return None
    chosen = []
    while total:
        chosen.append(last[total])
        total -= int(weights[last[total]])
    return np.array(chosen, dtype=np.int64)


def _counts(free: int, k: int) -> list[int]:
    """How many masks to turn: around k, half of them, and nearly all."""
    wanted = {1, 2, k - 1, k, k + 1, free // 2, free // 2 + 1, free - 2, free - 1}
    return sorted(count for count in wanted if 0 < count < free)
