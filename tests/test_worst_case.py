"""The vote-space worst case against an independent game tree, the published rule's exact condition, and sound rules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random

import numpy as np
import pytest
import torch
from game import HARD, SOFT, Table, attacker, brittle, certified, deciding, line_covers, plays, seen_by_jury
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from unsound import BareGate

from certmask.attacks import Harm, WorstCase, worst_case
from certmask.attacks.levels import levels_of
from certmask.attacks.vote_game import CLEAN, VoteGame, level_strategies, outputs_at, outputs_for, votes_summing_to
from certmask.attacks.worst_case import harm_of
from certmask.certificate import Decision, Guarantee
from certmask.covers import (
    Cover,
    custom_cover,
    offset_cover,
    patchcleanser_cover,
    replicated_cover,
    spread_cover,
    zoom_cover,
)
from certmask.errors import AttackError, VoteError
from certmask.geometry import IntArray, Mask
from certmask.rules import JuryDetection, JuryRecovery, LabelMajority, MinorityReports, PatchCleanser, Published, Rule
from certmask.rules.rule import Asking, majority
from certmask.threat import Patch
from certmask.votes import UNIT, BoolArray, Votes

torch.set_num_threads(1)

LINE = zoom_cover((1, 12), Patch(1, 2), (2, 4), align=1)
"""Two masks, then four, on a line."""

SOUND: list[Rule] = [
    JuryDetection(),
    JuryDetection(LabelMajority()),
    MinorityReports(),
    JuryRecovery("all"),
    JuryRecovery("all", LabelMajority()),
    PatchCleanser(),
    PatchCleanser(challenger=True),
]


class UnanimousMajority(Rule):
    """Unsound on purpose: certifies recovery when all masks agree, but answers the plain majority."""

    name = "unanimous majority"
    guarantee = Guarantee.RECOVERY

    def deciding(self, votes: Votes) -> Asking[list[Decision]]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return [Decision(majority(labels)) for labels in votes.heads(singles).labels]

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return np.asarray((votes.heads(singles).labels == labels[:, None]).all(axis=1))


class LaxReports(MinorityReports):
    """Unsound on purpose: warns above the threshold, but certifies from the threshold on."""

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        speaks = (heads.labels == labels[:, None]) & (heads.confidence >= self.threshold)
        juries = votes.cover.districts.juries
        return np.asarray(np.asarray((speaks[:, juries] & (juries >= 0)).any(axis=2)).all(axis=1))


def complete(cover: Cover, table: Table, label: int, palette: Tensor) -> Votes:
    """Votes for every mask and pair; what the table leaves open votes for the label."""
    n = len(cover)
    rows = [[table.get((min(i, j), max(i, j)), label) for j in range(n)] for i in range(n)]
    doubles = palette[torch.tensor(rows)]
    return Votes.from_table(cover, doubles[range(n), range(n)], doubles)


def unanimous(cover: Cover, label: int, classes: int) -> Votes:
    outputs = torch.eye(classes)[label]
    return Votes.from_table(cover, outputs.expand(len(cover), -1))


def random_table(cover: Cover, palette: Tensor, rng: Random) -> Table:
    n = len(cover)
    return {(i, j): rng.randrange(len(palette)) for i in range(n) for j in range(i, n)}


def brute_harm(cover: Cover, rule: Rule, label: int, district: int, table: Table, palette: Tensor) -> Harm:
    """The same question, answered by the tests' own game tree."""
    runs = plays(cover, deciding(rule), palette, attacker(cover, district, table, palette))
    return max(harm_of(decision, label) for decision, _ in runs)


def assert_real(case: WorstCase, votes: Votes, rule: Rule, palette_classes: int) -> None:
    """The reported votes leave the jury alone and lead to the reported decision."""
    cover, n = votes.cover, len(votes.cover)
    assert isinstance(case.district, int)
    jury = set(cover.districts.jury(case.district))
    assert all(jury.isdisjoint(one) for one in case.turned)
    pairs = votes.of(torch.cartesian_prod(torch.arange(n), torch.arange(n)).numpy()).clone().view(n, n, palette_classes)
    for masks, output in case.turned.items():
        if masks:
            i, j = masks[0], masks[-1]
            pairs[i, j] = pairs[j, i] = output
    attacked = Votes.from_table(cover, pairs[range(n), range(n)], pairs)
    if () in case.turned:
        attacked.store.add(attacked.ask(attacked.ballot.bare[None]), case.turned[()][None])
    assert rule.decide(attacked) == case.decision


@pytest.mark.parametrize("rule", [*SOUND, Published(), UnanimousMajority()], ids=str)
def test_exact_as_the_independent_game_tree(rule: Rule) -> None:
    """Up to three masks, random tables, every district: the same worst outcome, and votes that bring it about."""
    rng, found = Random(0), set()
    for cover in (*line_covers(2, 6), *line_covers(3, 6)):
        table = random_table(cover, HARD, rng)
        votes = complete(cover, table, 0, HARD)
        for district in range(len(cover.districts)):
            label = rng.randrange(3)
            case = worst_case(votes, rule, label, district, palette=HARD, plays=3000)
            assert case.exact
            assert case.harm is brute_harm(cover, rule, label, district, table, HARD)
            assert harm_of(case.decision, label) is case.harm
            assert_real(case, votes, rule, 3)
            found.add(case.harm)
    assert Harm.WRONG in found


def test_exact_with_soft_outputs() -> None:
    """A palette with ties and with confidences of exactly one half."""
    rng, rule = Random(1), MinorityReports(0.5)
    for cover in line_covers(2, 6):
        table = random_table(cover, SOFT, rng)
        for district in range(len(cover.districts)):
            case = worst_case(complete(cover, table, 0, SOFT), rule, 0, district, palette=SOFT)
            assert case.harm is brute_harm(cover, rule, 0, district, table, SOFT)


def breakable(cover: Cover, district: int, label: int) -> bool:
    """Theorem 8, with copies counted."""
    jury = sum(cover.copies[mask] for mask in cover.districts.jury(district))
    outside = cover.placed - jury
    return outside >= cover.k + 1 or (outside == cover.k and (jury > cover.k or label > 0))


@pytest.mark.parametrize("masks", [2, 3, 4])
def test_published_is_lost_exactly_under_the_stated_condition(masks: int) -> None:
    seen = set()
    for cover in line_covers(masks, 6):
        for label in range(3):
            for district in range(len(cover.districts)):
                case = worst_case(unanimous(cover, label, 3), Published(), label, district)
                assert case.exact
                assert (case.harm is Harm.WRONG) == breakable(cover, district, label)
                seen.add(case.harm)
    assert seen == ({Harm.WRONG, Harm.UNCHANGED} if masks < 4 else seen)


@pytest.mark.parametrize(
    "cover",
    [
        offset_cover(224, Patch(32, 32), 96, (2, 3)),
        replicated_cover(224, Patch(32, 32), 96, (2, 2)),
        spread_cover(224, Patch(32, 32), 80, 2),
        patchcleanser_cover(224, Patch(32, 32), 4),
        offset_cover(24, Patch(5, 5), 20, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("label", [0, 7, 999])
def test_published_is_lost_on_real_covers_too(cover: Cover, label: int) -> None:
    """Large tables, where only the known strategies reach: wherever the theorem says so, the break is found."""
    votes = unanimous(cover, label, 1000)
    for district in range(0, len(cover.districts), max(len(cover.districts) // 6, 1)):
        case = worst_case(votes, Published(), label, district, plays=1)
        assert (case.harm is Harm.WRONG) == breakable(cover, district, label)


@pytest.mark.parametrize("rule", SOUND, ids=str)
def test_no_sound_rule_is_broken_on_a_small_certified_table(rule: Rule) -> None:
    """Certified tables of two masks (all) and three masks (some), every district, every attack.

    What a jury sees of two tables may be the same: then so is every attack.
    """
    for cover in (*line_covers(2, 6), *line_covers(3, 6)[::4]):
        for label in range(2):
            tables = list(certified(cover, rule, label, HARD))
            assert tables
            for district in range(len(cover.districts)):
                some = tables[:: max(len(tables) // 8, 1)]
                parts = {tuple(seen_by_jury(cover, district, table).items()): table for table in some}
                for table in parts.values():
                    case = worst_case(complete(cover, table, label, HARD), rule, label, district, palette=HARD)
                    assert case.exact
                    assert not rule.guarantee.broken_by(case.decision, label)


@settings(max_examples=20, deadline=None)
@given(
    rule=st.sampled_from(SOUND),
    seed=st.integers(0, 10**6),
    cover=st.sampled_from(
        [
            spread_cover((1, 12), Patch(1, 2), (1, 5), (1, 2)),
            spread_cover(8, Patch(2, 2), 5, 2),
            offset_cover(10, Patch(3, 3), 7, (1, 2)),
            patchcleanser_cover(9, Patch(2, 3), 3),
        ]
    ),
)
def test_no_sound_rule_is_broken_on_a_larger_brittle_table(rule: Rule, seed: int, cover: Cover) -> None:
    """Tables with as much dissent as the certificate bears; the attacker tries what is known, and chance."""
    rng = Random(seed)
    label = rng.randrange(3)
    table = brittle(cover, rule, label, HARD, rng)
    assert table is not None
    votes = complete(cover, table, label, HARD)
    case = worst_case(votes, rule, label, rng.randrange(len(cover.districts)), plays=60, seed=seed)
    assert not rule.guarantee.broken_by(case.decision, label)


def test_a_rule_that_certifies_on_unanimity_and_answers_the_majority_is_caught() -> None:
    cover = spread_cover(224, Patch(32, 32), 80, 2)
    rule, votes = UnanimousMajority(), unanimous(cover, 3, 10)
    assert rule.certify(votes, 3).holds
    assert worst_case(votes, rule, 3).harm is Harm.WRONG


EXACTLY = 3
"""From here on, a vote of ``zoom_votes`` leads by exactly one half, and then by a unit more."""


def zoom_votes(clean: Callable[[IntArray], int], bare: int) -> Votes:
    """Votes of three classes about a picture, by the masks that a pass hides: certain ones, or nearly doubtful."""
    count, palette = len(LINE), torch.cat([torch.eye(3), outputs_at([0.5], [0], 3)])
    masks = np.stack(np.meshgrid(np.arange(count), np.arange(count), indexing="ij"), axis=-1)
    doubles = palette[torch.tensor([[clean(np.sort(pair)) for pair in row] for row in masks])]
    votes = Votes.from_table(LINE, doubles[range(count), range(count)], doubles)
    votes.store.add(votes.ask(votes.ballot.bare[None]), palette[[bare]])
    return votes


@pytest.mark.parametrize("thresholds", [0.5, 0.0, 1.0])
def test_a_gate_that_reads_the_bare_picture_is_caught(thresholds: float) -> None:
    """Fine votes are right, coarse ones are not: proved by the unsound gate, which then looks at the coarse ones."""
    levels = levels_of(LINE)
    votes = zoom_votes(lambda pair: int(levels[pair].min() == 0), 0)
    assert BareGate().certify(votes, 0).holds
    assert worst_case(votes, BareGate(), 0, plays=1).harm is Harm.WRONG
    honest = JuryRecovery(thresholds=thresholds, claim_thresholds=thresholds)
    assert honest.certify(votes, 0).holds == (thresholds == 1.0)


@settings(max_examples=15, deadline=None)
@given(
    rule=st.sampled_from(
        [JuryRecovery(thresholds=0.5), JuryDetection(thresholds=0.5), JuryRecovery(pooled=True, margin=0.1)]
    ),
    odd=st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 4), max_size=5),
    coarse=st.sampled_from([0, EXACTLY, EXACTLY + 1]),
    bare=st.integers(0, 2),
    district=st.integers(0, len(LINE.districts) - 1),
)
def test_no_certificate_of_levels_is_broken(
    rule: Rule, odd: dict[tuple[int, int], int], coarse: int, bare: int, district: int
) -> None:
    """Coarse votes that are certain or lead by exactly the threshold, some votes odd: what is certified stands."""
    levels = levels_of(LINE)

    def clean(pair: IntArray) -> int:
        return odd.get((int(pair[0]), int(pair[1])), coarse if levels[pair].max() == 0 else 0)

    votes = zoom_votes(clean, bare)
    if rule.certify(votes, 0).holds:
        case = worst_case(votes, rule, 0, district, plays=20)
        assert not rule.guarantee.broken_by(case.decision, 0)


def test_leads_of_exactly_a_threshold() -> None:
    """For every threshold and class, the lead is the threshold, then a unit more; none that no vote can have."""
    rows = outputs_at([0.5, 0.5, 0.3, 1.0, 7.0], [0, 2], 4).double()
    leads = rows.topk(2, dim=1).values
    near = round(0.3 / UNIT) * UNIT
    expected = [near, near + UNIT, near, near + UNIT, 0.5, 0.5 + UNIT, 0.5, 0.5 + UNIT]
    assert (leads[:, 0] - leads[:, 1]).tolist() == expected
    assert rows.argmax(dim=1).tolist() == [0, 0, 2, 2] * 2
    assert (rows.sum(dim=1) <= 1).all()
    assert not len(outputs_at([], [0], 4))


def test_strategies_turn_levels_apart() -> None:
    """Each level alone, all but the last, the last alone: every such way to turn free votes is tried."""
    votes = zoom_votes(lambda _: 0, 0)
    game, levels = VoteGame(votes, JuryRecovery(), 0, torch.eye(3)), levels_of(LINE)
    singles = game.free_masks[:, None]
    tried = {tuple(strategy(singles).tolist()) for strategy in level_strategies(game)}
    for row, other in product(range(3), range(3)):
        for level in (0, 1):
            assert tuple(np.where(levels[game.free_masks] == level, row, CLEAN).tolist()) in tried
        assert tuple(np.where(levels[game.free_masks] == 0, row, other).tolist()) in tried


def test_a_threshold_that_certifies_one_step_too_early_is_caught() -> None:
    """Confidence of exactly the threshold: certified by the lax rule, which then does not warn."""
    cover = custom_cover((1, 3), Patch(1, 1), [Mask(0, x, 1, 1) for x in range(3)])
    half = torch.tensor([0.5, 0.3, 0.2]).expand(3, -1)
    votes = Votes.from_table(cover, half)
    assert LaxReports(0.5).certify(votes, 0).holds
    assert worst_case(votes, LaxReports(0.5), 0).harm is Harm.WRONG
    assert not MinorityReports(0.5).certify(votes, 0).holds


@given(st.lists(st.integers(1, 6), max_size=8), st.integers(1, 20))
def test_subsets_with_a_given_sum(weights: list[int], total: int) -> None:
    sums = {0}
    for weight in weights:
        sums |= {s + weight for s in sums}
    found = votes_summing_to(torch.tensor(weights, dtype=torch.long).numpy(), total)
    assert (found is not None) == (total in sums)
    if found is not None:
        assert len(set(found.tolist())) == len(found)
        assert sum(weights[position] for position in found) == total


def test_the_palette_has_certain_faint_and_silent_answers() -> None:
    palette = outputs_for([0, 2], 4)
    assert palette[:4].argmax(dim=1).tolist() == [0, 2, 0, 2]
    assert torch.allclose(palette[:4].sum(dim=1), torch.ones(4))
    assert palette[2:].max() < 0.26
    assert not palette[4].any()


def test_nonsense_is_refused() -> None:
    cover = line_covers(2, 6)[0]
    votes = unanimous(cover, 0, 3)
    for label, district, plays_allowed in ((3, 0, 1), (-1, 0, 1), (0, 99, 1), (0, -1, 1), (0, 0, 0)):
        with pytest.raises(AttackError, match=r"expected .*got"):
            worst_case(votes, Published(), label, district, plays=plays_allowed)
    with pytest.raises(VoteError, match="expected every vote"):
        worst_case(votes, PatchCleanser(), 0)
