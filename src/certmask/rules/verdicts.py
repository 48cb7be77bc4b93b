"""Verdicts on many pools of votes: from the votes' first classes where those settle it, else from all probabilities.

``pools`` is ``[pictures, pools, members]`` of passes, filled up with -1, or ``[1, …]`` where all have the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from certmask.geometry import IntArray
from certmask.rules.aggregates import Aggregate, Leads
from certmask.rules.rule import Asking, majorities
from certmask.votes import BoolArray, Votes

FIRST_BLOCK, GROWTH = 32, 4
"""What is looked at before the first chance to stop, and how much larger each further block is."""


def verdicts(aggregate: Aggregate, votes: Votes, pools: IntArray, pictures: IntArray | None = None) -> IntArray:
    """The winning class of each pool, ``[pictures, pools]``."""
    favourites = majorities(votes.heads(pools[..., 0], pictures).labels)
    labels = np.repeat(favourites[:, None], pools.shape[1], axis=1)
    doubtful = ~(least_leads(aggregate, votes, pools, favourites, 0.0, pictures) > 0)
    if doubtful.any():
        who, which = np.nonzero(doubtful)
        rows = votes.rows_at(pools, who, which, pictures)
        labels[doubtful] = aggregate.labels(votes.outputs, votes.sent(rows)).cpu().numpy()
    return labels


def jury_claims(aggregate: Aggregate, votes: Votes) -> Asking[IntArray]:
    """What the jury of each district says, ``[pictures, districts]``."""
    yield votes.ask(votes.ballot.jurors[None])
    return verdicts(aggregate, votes, votes.ballot.juries[None])


def least_leads(
    aggregate: Aggregate,
    votes: Votes,
    pools: IntArray,
    labels: IntArray,
    margin: float,
    pictures: IntArray | None = None,
) -> Leads:
    """Where this is positive, a picture's label wins the pool by more than the margin, ``[pictures, pools]``.

    Where many pools share their passes, every vote is looked at once and its weight is looked up.
    """
    count = votes.store.pictures if pictures is None else len(pictures)
    if count * np.prod(pools.shape[1:]) <= count * len(votes.store.passes):
        rows = votes.rows(pools, pictures)
        return aggregate.least(votes.heads_at(rows), rows, labels, margin)
    rows = votes.all_rows(pools, pictures)
    weights = np.where(rows < 0, 0.0, aggregate.weights(votes.heads_at(rows), labels[:, None], margin))
    if len(pools) == 1:
        return np.asarray(weights[:, pools[0]].sum(axis=-1))
    return np.asarray(weights[np.arange(count)[:, None, None], pools].sum(axis=-1))


def all_won(
    aggregate: Aggregate,
    votes: Votes,
    pools: IntArray,
    labels: IntArray,
    margin: float,
    pictures: IntArray | None = None,
) -> BoolArray:
    """Whether each picture's label wins all its pools by more than the margin; the most doubtful are seen first."""
    least = least_leads(aggregate, votes, pools, labels, margin, pictures)
    doubts = (~(least > 0)).sum(axis=1)
    won = np.ones(len(least), dtype=bool)
    order = np.argsort(least, axis=1, kind="stable") if doubts.any() else least
    for block in blocks(int(doubts.max(initial=0)), FIRST_BLOCK):
        who, place = np.nonzero(won[:, None] & (np.arange(block.start, block.stop) < doubts[:, None]))
        if not len(who):
            break
        rows = votes.rows_at(pools, who, order[who, place + block.start], pictures)
        wins = aggregate.wins(votes.outputs, votes.sent(rows), votes.sent(labels[who]), margin)
        won[who[~wins.cpu().numpy()]] = False
    return won


def blocks(count: int, first: int) -> Iterator[slice]:
    """``count`` things in consecutive blocks, each ``GROWTH`` times as long as the one before."""
    start, size = 0, first
    while start < count:
        yield slice(start, min(start + size, count))
        start += size
        size *= GROWTH
