"""Verdicts on many pools of votes: from the votes' first classes where those settle it, else from all probabilities."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import torch

from certmask.geometry import IntArray
from certmask.passes import NONE
from certmask.rules.aggregates import Aggregate, Judged, Leads, Numbers
from certmask.votes import BoolArray, Votes

LAST = -inf
"""The threshold of the last level, which every lead exceeds."""


class Pools(NamedTuple):
    """Pools of votes about pictures of a cohort: of which picture ``[n]``, and which passes ``[n, members]``.

    A pool that has fewer passes than others is filled up with -1.
    """

    pictures: IntArray
    passes: IntArray

    @property
    def sizes(self) -> IntArray:
        return np.asarray((self.passes != NONE).sum(axis=1))


class Told(NamedTuple):
    """What pools say for a certificate of a label, ``[n]`` each, whatever changes of votes the margin allows.

    ``wrong``: some change makes the pool settle for another class. ``open``: some change makes a finer level decide.
    ``leads``: by how much the label leads at least, on average over the votes; negative where another class does.
    """

    wrong: BoolArray
    open: BoolArray
    leads: Leads


class Settled(NamedTuple):
    """Verdicts on pools, ``[n]`` each: the winning class, whether its lead exceeds the threshold, and the lead.

    The lead is on average over the pool's votes; of a pool of several that is ``clear``, it may be a lower bound.
    """

    labels: IntArray
    clear: BoolArray
    leads: Leads


def settled(aggregate: Aggregate, votes: Votes, pools: Pools, threshold: float = LAST) -> Settled:
    """The verdict on each pool at a level with this threshold."""
    bars = threshold * pools.sizes
    if pools.passes.shape[1] == 1:
        found = aggregate.judged_alone(votes.heads(pools.passes, pools.pictures))
        return Settled(found.labels[:, 0].astype(np.int64), np.asarray(found.low[:, 0] > bars), found.low[:, 0])
    labels = votes.heads(pools.passes[:, :1], pools.pictures).labels[:, 0]
    leads = least_leads(aggregate, votes, pools, labels, 0.0)
    clear = leads > np.maximum(bars, 0.0)
    if not clear.all():
        labels, leads = labels.copy(), leads.copy()
        exact = judged(aggregate, votes, Pools(*(column[~clear] for column in pools)))
        labels[~clear], leads[~clear] = exact.labels, exact.low
        clear[~clear] = exact.low > bars[~clear]
    return Settled(labels, clear, leads / pools.sizes)


def told(
    aggregate: Aggregate, votes: Votes, pools: Pools, labels: IntArray, margin: float, threshold: float = LAST
) -> Told:
    """What each pool says for a certificate of its label, ``[n]``, at a level with this threshold."""
    sizes = pools.sizes
    bars = threshold * sizes
    if pools.passes.shape[1] == 1:
        heads = votes.heads(pools.passes, pools.pictures)
        found = Judged(*(column[:, 0] for column in aggregate.judged_alone(heads, margin)))
        return _told(found, labels, bars, sizes)
    least = least_leads(aggregate, votes, pools, labels, margin)
    clear = least > np.maximum(bars, 0.0)
    wrong, open_, leads = np.zeros(len(clear), dtype=bool), np.zeros(len(clear), dtype=bool), least / sizes
    if not clear.all():
        left = Pools(*(column[~clear] for column in pools))
        exact = _told(judged(aggregate, votes, left, margin), labels[~clear], bars[~clear], sizes[~clear])
        wrong[~clear], open_[~clear], leads[~clear] = exact
    return Told(wrong, open_, leads)


def _told(found: Judged[Numbers], labels: IntArray, bars: Leads, sizes: IntArray) -> Told:
    own = found.labels == labels
    wrong = (found.high > bars) & ~(own & (found.low > 0))
    return Told(wrong, found.low <= bars, np.where(own, found.low, -found.high) / sizes)


def judged(aggregate: Aggregate, votes: Votes, pools: Pools, margin: float | None = None) -> Judged[Numbers]:
    """Verdicts from all probabilities, on the votes' device."""
    rows = votes.sent(votes.rows(pools.passes, pools.pictures))
    found = torch.stack([column.double() for column in aggregate.judged(votes.outputs, rows, margin)])
    return Judged(*found.cpu().numpy())


def least_leads(aggregate: Aggregate, votes: Votes, pools: Pools, labels: IntArray, margin: float) -> Leads:
    """A bound from first classes alone, ``[n]``: by how much each pool's label leads at least, summed, less the margin.

    Where many pools share their passes, every vote is looked at once and its weight is looked up.
    """
    pictures, who = np.unique(pools.pictures, return_inverse=True)
    one_each = np.zeros(len(pictures), dtype=np.int64)
    one_each[who] = labels
    if pools.passes.size <= len(pictures) * len(votes.store.passes) or (one_each[who] != labels).any():
        heads = votes.heads(pools.passes, pools.pictures)
        weights = aggregate.weights(heads, labels[:, None], margin)
        return np.asarray(np.where(pools.passes == NONE, 0.0, weights).sum(axis=1))
    rows = votes.all_rows(pools.passes, who, pictures)
    weights = np.where(rows < 0, 0.0, aggregate.weights(votes.heads_at(rows), one_each[:, None], margin))
    return np.asarray(weights[who[:, None], pools.passes].sum(axis=1))
