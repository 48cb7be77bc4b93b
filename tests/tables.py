"""Tables of votes about small covers, and what the plain-Python reference says about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np
import reference_rules as reference
import torch
from torch import Tensor

from certmask.covers import Cover
from certmask.passes import NONE, Ask, Ballot
from certmask.rules import (
    HiCert,
    JuryDetection,
    JuryRecovery,
    MinorityReports,
    PatchCleanser,
    Published,
    Rule,
    Undefended,
)
from certmask.votes import Votes, VoteStore

CLASSES = 4
Outputs = dict[tuple[int, int], list[float]]
"""What is said about a picture under two masks, one, or none."""


def random_table(cover: Cover, label: int, smooth: bool, rng: Random) -> Outputs:
    """Outputs that mostly favour the label or do not, as 64ths that add up to 1 (exact sums, many ties) or smooth."""
    table = {}
    passes = [(NONE, NONE), *((i, j) for j in range(len(cover)) for i in range(j + 1))]
    dissent, firmness = rng.choice([0.0, 0.02, 0.1, 1.0]), rng.choice([0, 20, 44])
    for one in passes:
        favourite = rng.randrange(CLASSES) if rng.random() < dissent else label
        if smooth:
            weights = [rng.random() ** 3 + (firmness / 20 if c == favourite else 0) for c in range(CLASSES)]
            row = torch.tensor(weights).div(sum(weights)).tolist()
        else:
            parts = Counter(rng.choices(range(CLASSES), k=(64 - firmness) // 4))
            row = [(4 * parts[c] + (firmness if c == favourite else 0)) / 64 for c in range(CLASSES)]
        table[one] = row
    return table


def silenced(table: Outputs, rng: Random) -> Outputs:
    """The same, with a few votes that gave no numbers."""
    rate = rng.choice([0.0, 0.05, 0.5])
    return {one: [0.0] * len(row) if rng.random() < rate else row for one, row in table.items()}


class Drawn(NamedTuple):
    """Tables on one cover, as both sides hold them, and their labels."""

    cover: Cover
    votes: Votes
    tables: Sequence[Outputs]
    labels: Sequence[int]


@cache
def drawn(covers: Sequence[Cover], smooth: bool, count: int, seed: int, silent: bool = False) -> list[Drawn]:
    """Random tables by cover, the same for all rules."""
    rng, found = Random(seed), dict[Cover, list[tuple[Outputs, int]]]()
    for _ in range(count):
        cover, label = rng.choice(covers), rng.randrange(CLASSES)
        table = random_table(cover, label, smooth, rng)
        found.setdefault(cover, []).append((silenced(table, rng) if silent else table, label))
    return [
        Drawn(cover, as_votes(cover, *(table for table, _ in some)), *zip(*some, strict=True))
        for cover, some in found.items()
    ]


def as_votes(cover: Cover, *tables: Outputs) -> Votes:
    """The same tables as the library holds them, of one picture each; all have the same passes."""
    ballot = ballot_of(cover)
    store = VoteStore(len(tables), ballot.passes, CLASSES)
    passes = ballot.numbers(np.array(list(tables[0]), dtype=np.int64))
    asked = Ask(np.repeat(np.arange(len(tables)), len(passes)), np.tile(passes, len(tables)))
    store.add(asked, torch.tensor([row for table in tables for row in table.values()]))
    return Votes(ballot, store)


def votes_under(cover: Cover, sets: Sequence[Sequence[int]], outputs: Tensor) -> Votes:
    """One picture's votes under these sets of masks and no others."""
    ballot = ballot_of(cover)
    store = VoteStore(1, ballot.passes, outputs.shape[1])
    passes = ballot.numbers(np.array(sets, dtype=np.int64))
    store.add(Ask(np.zeros_like(passes), passes), outputs)
    return Votes(ballot, store)


@cache
def ballot_of(cover: Cover) -> Ballot:
    """The numbers of a cover's passes, shared by all its tables, as by all pictures of a run."""
    return Ballot(cover)


@cache
def places_of(cover: Cover, pairs: str) -> list[reference.Place]:
    """How each place of a cover is judged: cells level by level, or districts by their whole jury."""
    if cover.levels:
        return [
            [reference.Level(masks[columns], masks[columns][:, None]) for columns in cover.level_columns]
            for masks in cover.cells.masks
        ]
    juries = [cover.districts.jury(district) for district in range(len(cover.districts))]
    grids = cover.grids if pairs == "aligned" else [range(len(cover))]
    return [[reference.Level(jury, [[i for i in jury if i in grid] for grid in grids])] for jury in juries]


def judges_of(rule: JuryDetection | JuryRecovery, cover: Cover) -> reference.Judges:
    """What a jury rule was told, for the reference; of more thresholds than levels, the last ones count."""
    below = max(len(cover.levels) - 1, 0)

    def judge(thresholds: float | tuple[float, ...]) -> reference.Judge:
        bars = thresholds[-below:] if isinstance(thresholds, tuple) else [thresholds] * below
        return reference.Judge(reference.AGGREGATES[rule.aggregate.name], bars if below else (), rule.pooled, last)

    last = getattr(rule, "last", -inf)
    duels = judge(rule.thresholds) if isinstance(rule, JuryRecovery) else None
    return reference.Judges(judge(rule.claim_thresholds), duels)


def by_reference(rule: Rule, cover: Cover, table: Outputs, label: int) -> tuple[reference.Recovered, bool]:
    """Decision, its basis and certificate in plain Python."""
    n, margin = len(cover), rule.margin
    if isinstance(rule, (JuryDetection, JuryRecovery)):
        judges, places = judges_of(rule, cover), places_of(cover, rule.pairs)
        holds = reference.proved(places, table, judges, label, margin)
        if isinstance(rule, JuryRecovery):
            return reference.jury_recovery(places, table, judges, rule.last_resort), holds
        return reference.Recovered(reference.jury_detection(places, table, judges), ""), holds
    if isinstance(rule, MinorityReports):
        juries = [cover.districts.jury(district) for district in range(len(cover.districts))]
        decision = reference.minority_reports(n, table, cover.copies, rule.threshold)
        holds = reference.minority_reports_certifies(juries, table, rule.threshold, label, margin)
        return reference.Recovered(decision, ""), holds
    if isinstance(rule, HiCert):
        juries = [cover.districts.jury(district) for district in range(len(cover.districts))]
        decision = reference.hicert(n, table, cover.copies, rule.threshold)
        holds = reference.hicert_certifies(juries, table, rule.threshold, label, margin)
        return reference.Recovered(decision, ""), holds
    if isinstance(rule, PatchCleanser):
        found = reference.patchcleanser(n, table, rule.challenger, rule.last_resort)
        return found, reference.two_mask_correct(n, table, label, margin)
    if isinstance(rule, Published):
        decision = reference.published(n, table, cover.copies, cover.k)
        return reference.Recovered(decision, ""), reference.published_test(n, table, label, margin)
    assert isinstance(rule, Undefended)
    return reference.Recovered(reference.undefended(table), ""), False
