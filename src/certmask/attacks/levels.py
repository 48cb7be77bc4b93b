"""What an attacker knows of levels: which of them each mask belongs to, and the lead that settles a question there."""

from __future__ import annotations

from math import atanh

import numpy as np
import numpy.typing as npt

from certmask.covers import Cover
from certmask.geometry import IntArray
from certmask.rules import JuryHiCert, Rule
from certmask.rules.jury import JuryRule, bars_of

SURE = 1 - 1e-6
"""A lead of probabilities that counts as certain: no number of logits reaches 1."""


def levels_of(cover: Cover) -> IntArray:
    """The coarsest level that each mask belongs to, ``[masks]``; 0 where a cover has no levels."""
    found: IntArray = np.zeros(len(cover), dtype=np.int64)
    for level, columns in reversed(list(enumerate(cover.level_columns))):
        found[cover.cells.masks[:, columns]] = level
    return found


def thresholds_of(rule: Rule, cover: Cover) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The thresholds of claims and those of duels, for each level but the last; none where there are no levels."""
    if not isinstance(rule, JuryRule) or not cover.levels:
        return (), ()
    return bars_of(rule.claim_thresholds, cover.levels), bars_of(rule.thresholds, cover.levels)


def settling_logits(rule: Rule, cover: Cover) -> npt.NDArray[np.float32]:
    """By how many logits a class must lead under each mask to settle a claim, and a duel, at least: ``[2, masks]``.

    A vote whose first class leads the second by no more leaves its question to a finer level; at the last one any lead
    will do, but for a rule that has a threshold there, too.
    """
    last = rule.last if isinstance(rule, JuryHiCert) else 0.0
    logits = float if rule.unit == "logarithm" else lambda bar: 2 * atanh(min(bar, SURE))
    bars = np.array([[*map(logits, (*own, last))] for own in thresholds_of(rule, cover)], dtype=np.float32)
    return bars[:, np.minimum(levels_of(cover), bars.shape[1] - 1)]


def one_grid_at_a_time(rule: Rule, cover: Cover) -> bool:
    """Whether the rule combines only masks of one grid: on levels every jury does."""
    pairs = getattr(rule, "pairs", "all")
    return pairs == "aligned" or (bool(cover.levels) and isinstance(rule, JuryRule))
