"""What an attacker knows of levels: which of them each mask belongs to, and the lead that settles a question there."""

from __future__ import annotations

from math import atanh

import numpy as np
import numpy.typing as npt

from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules import Rule
from certmask.rules.jury import JuryRule

SURE = 1 - 1e-6
"""A lead of probabilities that counts as certain: no number of logits reaches 1."""


def levels_of(cover: Cover) -> IntArray:
    """The coarsest level that each mask belongs to, ``[masks]``; 0 where a cover has no levels."""
    found: IntArray = np.zeros(len(cover), dtype=np.int64)
    for level, grids in reversed(list(enumerate(cover.level_grids))):
        for grid in grids:
            found[list(cover.grids[grid])] = level
    return found


def thresholds_of(rule: Rule, cover: Cover) -> tuple[float, ...]:
    """The threshold of each level but the last; none where the rule or the cover knows no levels."""
    if not isinstance(rule, JuryRule) or not cover.levels:
        return ()
    given = rule.thresholds
    return given if isinstance(given, tuple) else (given,) * (len(cover.levels) - 1)


def settling_logits(rule: Rule, cover: Cover) -> npt.NDArray[np.float32]:
    """By how many logits a class must lead under each mask alone to settle its question there, at least, ``[masks]``.

    A vote whose first class leads the second by no more leaves its question to a finer level; at the last one any lead
    will do.
    """
    bars = [float(bar) if rule.unit == "logarithm" else 2 * atanh(min(bar, SURE)) for bar in thresholds_of(rule, cover)]
    return np.array([*bars, 0.0], dtype=np.float32)[np.minimum(levels_of(cover), len(bars))]


def one_grid_at_a_time(rule: Rule, cover: Cover) -> bool:
    """Whether the rule combines only masks of one grid: on levels every jury does."""
    pairs = getattr(rule, "pairs", "all")
    return pairs == "aligned" or (bool(cover.levels) and isinstance(rule, JuryRule))
