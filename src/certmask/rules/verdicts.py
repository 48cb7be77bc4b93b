"""Verdicts on many pools of votes: from the votes' first classes where those settle it, else from all probabilities."""

from __future__ import annotations

import numpy as np
import torch

from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, FloatArray
from certmask.rules.rule import majority
from certmask.votes import Votes

FIRST_BLOCK, GROWTH = 32, 4
"""What is looked at before the first chance to stop, and how much larger each further block is."""


def verdicts(aggregate: Aggregate, votes: Votes, pools: IntArray) -> IntArray:
    """The winning class of each pool of passes ``[pools, members, 2]``."""
    rows, heads = votes.rows(pools), votes.all_heads()
    favourite = majority(heads.labels[rows[:, 0]])
    doubtful = ~(aggregate.least(heads, rows, favourite, 0.0) > 0)
    labels = np.full(len(rows), favourite)
    if doubtful.any():
        there = torch.from_numpy(rows[doubtful]).to(votes.outputs.device)
        labels[doubtful] = aggregate.labels(votes.outputs, there).cpu().numpy()
    return labels


def least_leads(aggregate: Aggregate, votes: Votes, pools: IntArray, label: int, margin: float) -> FloatArray:
    """Where this is positive, ``label`` wins the pool by more than the margin."""
    return aggregate.least(votes.all_heads(), votes.rows(pools), label, margin)


def all_won(aggregate: Aggregate, votes: Votes, pools: IntArray, label: int, margin: float) -> bool:
    """Whether ``label`` wins every pool by more than the margin; the most doubtful are looked at first."""
    rows = votes.rows(pools)
    least = aggregate.least(votes.all_heads(), rows, label, margin)
    order = np.argsort(least, kind="stable")
    for part in blocks(rows[order[~(least[order] > 0)]], FIRST_BLOCK):
        there = torch.from_numpy(part).to(votes.outputs.device)
        if not aggregate.wins(votes.outputs, there, label, margin).all():
            return False
    return True


def blocks(rows: IntArray, first: int) -> list[IntArray]:
    """The rows in consecutive blocks, each ``GROWTH`` times as long as the one before."""
    cuts, size, start = [], first, first
    while start < len(rows):
        cuts.append(start)
        size *= GROWTH
        start += size
    return np.split(rows, cuts) if len(rows) else []
