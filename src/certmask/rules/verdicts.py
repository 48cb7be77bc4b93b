"""Verdicts on many pools of votes: from the votes' first classes where those settle it, else from all probabilities.

``pools`` is ``[pictures, pools, members]`` of passes, filled up with -1, or ``[1, …]`` where all have the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, Scores
from certmask.rules.rule import Asking, majorities
from certmask.votes import BoolArray, Votes

FIRST_BLOCK, GROWTH = 32, 4
"""What is looked at before the first chance to stop, and how much larger each further block is."""


def verdicts(aggregate: Aggregate, votes: Votes, pools: IntArray, pictures: IntArray | None = None) -> IntArray:
    """The winning class of each pool, ``[pictures, pools]``."""
    rows = votes.rows(pools, pictures)
    favourites = majorities(votes.heads_at(rows[..., 0]).labels)
    labels = np.repeat(favourites[:, None], rows.shape[1], axis=1)
    doubtful = ~(aggregate.least(votes.heads_at(rows), rows, favourites, 0.0) > 0)
    if doubtful.any():
        there = torch.from_numpy(rows[doubtful]).to(votes.outputs.device)
        labels[doubtful] = aggregate.labels(votes.outputs, there).cpu().numpy()
    return labels


def jury_claims(aggregate: Aggregate, votes: Votes) -> Asking[IntArray]:
    """What the jury of each district says, ``[pictures, districts]``."""
    juries = votes.ballot.juries[None]
    yield votes.ask(juries)
    return verdicts(aggregate, votes, juries)


def least_leads(
    aggregate: Aggregate,
    votes: Votes,
    pools: IntArray,
    labels: IntArray,
    margin: float,
    pictures: IntArray | None = None,
) -> Scores:
    """Where this is positive, a picture's label wins the pool by more than the margin, ``[pictures, pools]``."""
    rows = votes.rows(pools, pictures)
    return aggregate.least(votes.heads_at(rows), rows, labels, margin)


def all_won(
    aggregate: Aggregate,
    votes: Votes,
    pools: IntArray,
    labels: IntArray,
    margin: float,
    pictures: IntArray | None = None,
) -> BoolArray:
    """Whether each picture's label wins all its pools by more than the margin; the most doubtful are seen first."""
    rows = votes.rows(pools, pictures)
    least = aggregate.least(votes.heads_at(rows), rows, labels, margin)
    order = np.argsort(least, axis=1, kind="stable")
    doubts = (~(least > 0)).sum(axis=1)
    won = np.ones(len(rows), dtype=bool)
    for block in blocks(int(doubts.max(initial=0)), FIRST_BLOCK):
        who, place = np.nonzero(won[:, None] & (np.arange(block.start, block.stop) < doubts[:, None]))
        if not len(who):
            break
        part = rows[who, order[who, place + block.start]]
        wanted = torch.from_numpy(labels[who]).to(votes.outputs.device)
        wins = aggregate.wins(votes.outputs, torch.from_numpy(part).to(votes.outputs.device), wanted, margin)
        won[who[~wins.cpu().numpy()]] = False
    return won


def blocks(count: int, first: int) -> Iterator[slice]:
    """``count`` things in consecutive blocks, each ``GROWTH`` times as long as the one before."""
    start, size = 0, first
    while start < count:
        yield slice(start, min(start + size, count))
        start += size
        size *= GROWTH
