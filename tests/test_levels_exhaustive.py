"""Levels by enumeration: covers of two and three levels, certified tables, every attack that can reach a rule.

The attacker may turn every pass without a mask that hides the patch, those that decide whether to look closer included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from game import (
    GATED,
    HARD,
    LEADS,
    QUIET,
    SOFT,
    Table,
    attacker,
    certified,
    deciding,
    every_attack,
    keeps,
    line_zoom,
    plays,
    plays_of_all,
    seen_by_jury,
    some_attacks,
    total,
)
from members import ZOOMING, told_apart
from torch import Tensor
from unsound import TakenAtItsWord

from certmask.certificate import BASES, Decision
from certmask.covers import Cover, custom_cover, spread_cover, stacked_cover, zoom_cover
from certmask.geometry import Mask
from certmask.rules import (
    AGGREGATES,
    Aggregate,
    JuryDetection,
    JuryHiCert,
    JuryRecovery,
    LabelMajority,
    MeanLogProbability,
    MeanProbability,
    PatchCleanser,
    Rule,
    jury_detection,
    tournament,
)
from certmask.rules.jury import Verdicts
from certmask.rules.rule import Asking, answer, majorities
from certmask.rules.verdicts import Pools, settled
from certmask.threat import Patch
from certmask.votes import Votes

torch.set_num_threads(1)

ONE = Patch(1, 1)
WHOLE = line_zoom(2, (2, [0]), (1, [0, 1]))
TWICE = line_zoom(2, (1, [0, 1]), (1, [0, 1]))
SHARED = line_zoom(3, (2, [0, 2]), (1, [0, 1, 2]))
"""Two places share a coarse mask; the third one's is the same at both levels."""
HALVES = line_zoom(4, (2, [0, 2]), (1, range(4)))
THREE = line_zoom(4, (4, [0]), (2, [0, 2]), (1, [0, 1, 2, 3]))
JURY = stacked_cover(
    [custom_cover((1, 3), ONE, [Mask(0, 0, 1, 2), Mask(0, 2, 1, 2)]), spread_cover((1, 3), ONE, (1, 2), (1, 2))]
)
"""The finer level judges every place by one mask of each of two grids."""


@pytest.mark.parametrize("rule", told_apart(ZOOMING), ids=repr)
def test_every_attack_on_two_levels(rule: Rule) -> None:
    """Exhaustive, with ties, silence and leads of exactly the threshold, for the class that loses every tie."""
    seen = every_attack(WHOLE, rule, LEADS, labels=(2,))
    seen += total(every_attack(cover, rule, GATED, labels=(2,)) for cover in (TWICE, JURY))
    assert seen["tables"] >= 4, "unanimity, at least, is certified on every cover"
    assert seen["attacks"] > 10


@pytest.mark.parametrize("aggregate", [kind() for kind in AGGREGATES.values()], ids=lambda one: one.name)
@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
def test_every_attack_on_places_that_share_a_mask(aggregate: Aggregate, pooled: bool) -> None:
    """Exhaustive, with leads of exactly the threshold."""
    bar = 0.5 if aggregate.unit == "probability" else 1.0
    rule = JuryRecovery(aggregate=aggregate, thresholds=bar, claim_thresholds=bar, pooled=pooled)
    assert every_attack(SHARED, rule, GATED, labels=(2,))["attacks"] > 5


@pytest.mark.parametrize(
    "rule",
    [
        JuryRecovery(thresholds=0.5, claim_thresholds=0.5),
        JuryDetection(thresholds=0.5, pooled=True),
        JuryHiCert(thresholds=0.5),
    ],
    ids=repr,
)
def test_every_attack_on_three_levels(rule: Rule) -> None:
    """Exhaustive on four places."""
    assert every_attack(THREE, rule, GATED, labels=(2,))["attacks"] > 100


@pytest.mark.parametrize("thresholds", [(0.0, 0.5), (0.5, 0.0), (1.0, 0.25)], ids=str)
def test_every_attack_with_a_threshold_for_each_level(thresholds: tuple[float, float]) -> None:
    """Three levels on two places, the last two of the same masks."""
    cover = line_zoom(2, (2, [0]), (1, [0, 1]), (1, [0, 1]))
    for pooled in (False, True):
        rule = JuryRecovery(thresholds=thresholds, claim_thresholds=thresholds[::-1], pooled=pooled)
        assert every_attack(cover, rule, LEADS, labels=(2,))["attacks"] > 80


AT_ONCE = [
    JuryRecovery(thresholds=0.5, claim_thresholds=0.5),
    JuryRecovery(thresholds=0.5, claim_thresholds=0.5, last_resort="majority"),
    JuryDetection(thresholds=0.5),
    JuryHiCert(thresholds=0.5),
]


@pytest.mark.parametrize("rule", AT_ONCE, ids=repr)
@pytest.mark.parametrize("first", [1, 2])
def test_every_attack_however_little_is_asked_at_once(rule: Rule, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exhaustive: small covers, too, take several rounds of duels and of looking closer then."""
    monkeypatch.setattr(jury_detection, "FIRST_PLACES", first)
    monkeypatch.setattr(tournament, "DUELS_AT_ONCE", first)
    seen = total(every_attack(cover, rule, GATED, labels=(2,)) for cover in (WHOLE, SHARED, JURY, THREE))
    assert seen["attacks"] > 100


@pytest.mark.parametrize("first", [1, 2])
def test_every_attack_on_single_masks_that_duel_one_by_one(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exhaustive on four masks: PatchCleanser with the bare picture as last resort."""
    monkeypatch.setattr(tournament, "DUELS_AT_ONCE", first)
    seen = every_attack(line_zoom(4, (1, range(4))), PatchCleanser(last_resort="bare"), HARD, labels=(2,))
    assert seen["attacks"] > 1000


def test_of_a_certified_picture_every_basis_is_right() -> None:
    """Exhaustive on three places: with a patch an answer may rest on anything, the bare picture included."""
    cover, seen = line_zoom(3, (1, [0, 1, 2])), set[tuple[str, int]]()
    for rule in (JuryRecovery(), JuryRecovery(last_resort="majority")):
        for clean in certified(cover, rule, 2, QUIET):
            for district in range(len(cover.districts)):
                runs = plays(cover, deciding(rule), QUIET, attacker(cover, district, clean, QUIET))
                seen |= {(decision.basis, decision.label) for decision, _ in runs}
    assert seen == {(basis, 2) for basis in BASES}


@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
def test_doubt_certifies_more_and_raises_an_alert(pooled: bool) -> None:
    """All tables on two levels: whatever jury detection certifies is certified, and more, of which the clean one warns.

    A place in doubt has no weakest lead; where all votes on a place are silent, nothing is proved.
    """
    detection, rule = JuryDetection(thresholds=0.5, pooled=pooled), JuryHiCert(thresholds=0.5, pooled=pooled)
    seen = Counter[tuple[bool, bool]]()
    for picks in product(range(len(LEADS)), repeat=len(WHOLE)):
        votes = Votes.from_table(WHOLE, LEADS[list(picks)])
        plain, doubting = detection.certify(votes, 2).holds, rule.certify(votes, 2).holds
        decision = rule.decide(votes)
        assert doubting or not plain
        assert plain or not doubting or decision.alert
        if 6 in picks[1:] and decision != Decision(2):
            assert pooled or not doubting, "a place whose last vote is silent"
        seen[doubting, decision.alert] += 1
    assert min(seen[True, True], seen[True, False], seen[False, True], seen[False, False]) > 5
    unsure = Votes.from_table(WHOLE, LEADS[[4, 4, 4]])
    (proofs,) = (answer(rule.proving(unsure, np.array([2])), unsure),)
    assert (proofs.holds.tolist(), list(proofs.weakest)) == ([True], [None])


def larger() -> list[Cover]:
    """Two and three levels in two dimensions and on longer lines, patches of several pixels, a small jury."""
    return [
        zoom_cover(4, ONE, (2, 4), 1),
        zoom_cover(6, 2, (1, 2, 3), 1),
        zoom_cover((5, 4), (2, 1), (2, 3), 1),
        stacked_cover([line_zoom(6, (3, [0, 3])).levels[0], spread_cover((1, 6), ONE, (1, 2), (1, 2))]),
        line_zoom(6, (3, [0, 3]), (2, [0, 2, 4]), (1, range(6))),
        line_zoom(7, (4, [0, 3]), (3, [0, 2, 4]), (2, range(6)), patch=2),
    ]


@pytest.mark.parametrize("rule", told_apart(ZOOMING), ids=repr)
def test_sampled_attacks_on_larger_levels(rule: Rule) -> None:
    """Seeded sample: tables at the edge of the certificate."""
    rng = Random(9)
    seen = total(some_attacks(cover, rule, rng.choice([HARD, SOFT, QUIET, LEADS]), 2, 4, rng) for cover in larger())
    assert seen["tables"] == seen["covers"] == 6, "unanimity is certified on every cover"
    assert seen["attacks"] > 200


# ----------------------------------------------------------------------------------------------------- margin

NEAR = torch.tensor([[13, 1, 2], [2, 1, 13], [3, 0, 13], [4, 0, 12], [5, 0, 11], [7, 1, 8]]).div(16)
"""Leads around a threshold of one half, in sixteenths: beyond the margin of two, at both its edges, at the threshold
itself, and one that the margin can turn."""


def shaken(palette: Tensor, margin: float, logarithms: bool) -> Tensor:
    """The palette, then every lead of the last class over the first one margin lower, then higher."""
    towards = torch.tensor([-margin / 2, 0.0, margin / 2])
    moved = [palette * (sign * towards).exp() if logarithms else palette + sign * towards for sign in (-1, 1)]
    return torch.cat([palette, *moved])


def shaking_attacks(cover: Cover, rule: Rule, noise: float, near: Tensor = NEAR) -> Iterator[tuple[Decision, Table]]:
    """All attacks on certified tables in which also the votes that hide the patch may come out with other leads."""
    logarithms = rule.unit == "logarithm"
    palette = shaken(near, noise, logarithms)
    tables = list(certified(cover, rule, 2, near))
    players = []
    for district in range(len(cover.districts)):
        for part in sorted({tuple(seen_by_jury(cover, district, clean).items()) for clean in tables}):
            sharp = attacker(cover, district, dict(part), near)

            def options(one: tuple[int, int], sharp: Any = sharp) -> Sequence[int]:
                votes: Sequence[int] = sharp(one)
                return range(votes[0], len(palette), len(near)) if len(votes) == 1 else (0, 1)

            players.append(options)
    return (run for _, run in plays_of_all(cover, deciding(rule), palette, players))


@pytest.mark.parametrize("aggregate", [kind() for kind in AGGREGATES.values()], ids=lambda one: one.name)
@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
@pytest.mark.parametrize("kind", [JuryDetection, JuryHiCert, JuryRecovery])
def test_a_lead_within_the_margin_of_a_threshold_is_right_on_both_sides(
    kind: type[JuryDetection | JuryHiCert | JuryRecovery], pooled: bool, aggregate: Aggregate
) -> None:
    """Exhaustive: every lead up to one margin lower or higher, at any level; without a margin that breaks some."""
    logarithms = isinstance(aggregate, MeanLogProbability)
    bar, margin = (1.0, 0.25) if logarithms else (0.5, 0.125)
    if isinstance(aggregate, LabelMajority):
        bar, margin = 0.0, 0.0625
    told: dict[str, Any] = {"aggregate": aggregate, "thresholds": bar, "pooled": pooled}
    if kind is JuryRecovery:
        told["claim_thresholds"] = bar
    if kind is JuryHiCert:
        told["threshold"] = 0.0
    careful = kind(**told, margin=margin)
    decisions = [decision for decision, _ in shaking_attacks(WHOLE, careful, margin)]
    assert len(decisions) > 20
    assert all(keeps(careful.guarantee, decision, 2) for decision in decisions)
    careless = kind(**told)
    assert not all(keeps(careless.guarantee, decision, 2) for decision, _ in shaking_attacks(WHOLE, careless, margin))


@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
def test_doubt_within_the_margin_of_a_threshold_proves_nothing(pooled: bool) -> None:
    """Exhaustive: another class leads by about the last threshold; without a margin, noise settles some for it."""
    near, margin = torch.cat([NEAR[:2], NEAR[2:].flip(1)]), 0.125
    told: dict[str, Any] = {"thresholds": 1.5, "threshold": 0.5, "pooled": pooled}
    careful, careless = JuryHiCert(**told, margin=margin), JuryHiCert(**told)
    decisions = [decision for decision, _ in shaking_attacks(WHOLE, careful, margin, near)]
    assert len(decisions) > 20
    assert all(keeps(careful.guarantee, decision, 2) for decision in decisions)
    broken = shaking_attacks(WHOLE, careless, margin, near)
    assert not all(keeps(careless.guarantee, decision, 2) for decision, _ in broken)


# --------------------------------------------------------------------------- the enumeration can find mistakes


class GateOfTheMajority(TakenAtItsWord):
    """Looks closer where a coarse vote dissents from most others, which do not hide the place."""

    def judged_places(self, votes: Votes) -> Asking[Verdicts]:
        levels = self.levels(votes)
        everyone = np.tile(np.arange(levels.hypotheses), votes.store.pictures)
        pictures = np.repeat(votes.everyone, levels.hypotheses)
        coarse = Pools(pictures, levels.claim_pools(everyone, 0))
        yield votes.ask(*reversed(coarse))
        labels, _, leads = settled(self.aggregate, votes, coarse)
        found = Verdicts(labels, np.zeros_like(labels), leads)
        open_ = np.flatnonzero(
            labels != np.repeat(majorities(labels.reshape(-1, levels.hypotheses)), levels.hypotheses)
        )
        if len(open_):
            fine = Pools(pictures[open_], levels.claim_pools(everyone[open_], 1))
            yield votes.ask(*reversed(fine))
            found.labels[open_], _, found.leads[open_] = settled(self.aggregate, votes, fine)
            found.levels[open_] = 1
        return found


class BareBeforeUnbeaten(PatchCleanser):
    """Puts the bare picture in the place of the final majority: the majority may hold the unbeaten mask."""

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        decisions = yield from super().deciding(votes)
        labels = votes.heads(votes.ballot.singles[None]).labels
        split = np.flatnonzero((labels != labels[:, :1]).any(axis=1))
        if len(split):
            yield votes.ask(votes.ballot.bare[None], split)
        for picture in split:
            if decisions[picture].label == np.bincount(labels[picture]).argmax():
                bare = votes.heads(votes.ballot.bare[None], np.array([picture])).labels
                decisions[picture] = Decision(int(bare[0, 0]))
        return decisions


@pytest.mark.parametrize(
    ("rule", "cover"),
    [
        (GateOfTheMajority(thresholds=0.5, claim_thresholds=0.5), HALVES),
        (BareBeforeUnbeaten(), line_zoom(3, (1, [0, 1, 2]))),
    ],
    ids=["a gate that reads other votes", "bare for the majority"],
)
def test_the_traps_are_noticed(rule: Rule, cover: Cover) -> None:
    """Rules that fall into one of the traps of docs/guarantees.md are broken by the same enumeration."""
    with pytest.raises(pytest.fail.Exception, match=r"is certified for class 2 but answers .* when attacked"):
        every_attack(cover, rule, GATED, (2,))


def test_one_level_is_what_it_was() -> None:
    """A cover of one level, of masks that are juries of their own, certifies and answers as the cover itself."""
    plain = custom_cover((1, 3), ONE, [Mask(0, left, 1, 1) for left in range(3)])
    alone = stacked_cover([plain])
    for rule in (JuryRecovery("all", MeanProbability()), JuryDetection()):
        tables = [
            sorted(map(sorted, map(dict.items, certified(cover, rule, 2, LEADS[[0, 3, 2]]))))
            for cover in (plain, alone)
        ]
        assert tables[0] == tables[1]
        assert len(tables[0]) > 5
        assert every_attack(alone, rule, LEADS[[0, 3, 2]], (2,)) == every_attack(plain, rule, LEADS[[0, 3, 2]], (2,))
