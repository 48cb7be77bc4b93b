"""Rules against the plain-Python reference, their costs, their errors, and what they write down."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest
import reference_rules as reference
import torch
from game import (
    HARD,
    Table,
    attacker,
    certifying,
    deciding,
    families,
    line_covers,
    pass_name,
    play,
    random_plays,
)
from hypothesis import given
from hypothesis import strategies as st
from looking import singles_of
from tables import CLASSES, as_votes, by_reference, drawn, random_table, votes_under
from torch import Tensor

from certmask.certificate import Decision, Guarantee
from certmask.covers import (
    Cover,
    custom_cover,
    minimal_cover,
    offset_cover,
    patchcleanser_cover,
    replicated_cover,
    spread_cover,
    zoom_cover,
)
from certmask.errors import CertmaskError, CoverError, VoteError
from certmask.geometry import IntArray, Mask
from certmask.passes import BARE, NONE, Ask, Ballot, Passes
from certmask.rules import (
    AGGREGATES,
    RULES,
    Aggregate,
    BandMasking,
    HiCert,
    JuryDetection,
    JuryHiCert,
    JuryRecovery,
    LabelMajority,
    MeanLogProbability,
    MeanProbability,
    MinorityReports,
    PairDetection,
    PatchCleanser,
    Published,
    Rule,
    Smoothing,
    Undefended,
)
from certmask.rules.levels import Levels, jury_levels
from certmask.rules.rule import Asking, answer, majority
from certmask.rules.tournament import tournament
from certmask.rules.verdicts import Pools, least_leads, settled, told
from certmask.threat import Patch
from certmask.votes import Heads, Votes, VoteStore, head_of
from certmask.votes import as_votes as voted

torch.set_num_threads(1)

ONE = Patch(1, 1)
COVERS = [
    custom_cover((1, 3), Patch(1, 2), [Mask(0, 0, 1, 3)]),
    minimal_cover((1, 4), ONE, 1),
    minimal_cover((3, 3), ONE, 2),
    patchcleanser_cover((5, 5), Patch(2, 2), 2),
    spread_cover((1, 5), ONE, (1, 3), (1, 2)),
    spread_cover((1, 6), Patch(1, 2), (1, 4), (1, 3)),
    spread_cover((2, 3), ONE, 2, (1, 2)),
    minimal_cover((1, 7), Patch(1, 2), (1, 4), (1, 3)),
    replicated_cover((4, 4), Patch(2, 2), 4, 2),
]
LOOSE = [offset_cover((4, 4), ONE, 3, (1, 2)), custom_cover((1, 4), ONE, [Mask(0, x, 1, 2) for x in (-1, 0, 1, 2, 3)])]


# ------------------------------------------------------------------------------------- against the reference


def named(make: Callable[..., Rule], **options: Any) -> list[Rule]:
    """The rule without and with a margin (one that no lead of these tables equals)."""
    return [make(**options), make(**options, margin=0.1)]


RULES_AND_MARGINS: list[Rule] = [
    *named(Published),
    *named(Undefended),
    *(rule for a in AGGREGATES.values() for rule in named(JuryDetection, aggregate=a())),
    *named(PairDetection),
    *(
        rule
        for a in AGGREGATES.values()
        for p in ("all", "aligned")
        for rule in named(JuryRecovery, aggregate=a(), pairs=p)
    ),
    *(rule for a in AGGREGATES.values() for t in (0.0, 0.4) for rule in named(JuryHiCert, aggregate=a(), threshold=t)),
    *named(JuryRecovery, last_resort="majority"),
    *(rule for threshold in (0.0, 0.25, 0.5) for rule in named(MinorityReports, threshold=threshold)),
    *(rule for threshold in (0.0, 0.25, 0.5) for rule in named(HiCert, threshold=threshold)),
    *(rule for challenger in (False, True) for rule in named(PatchCleanser, challenger=challenger)),
    *named(PatchCleanser, last_resort="bare"),
]


@pytest.mark.parametrize("rule", RULES_AND_MARGINS, ids=repr)
def test_rules_agree_with_the_reference(rule: Rule) -> None:
    """240 seeded tables per rule and margin, thousands in all: same class, same alert, same certificate."""
    covers = (*COVERS, *(() if getattr(rule, "pairs", "all") == "aligned" else LOOSE))
    smooth = isinstance(getattr(rule, "aggregate", None), MeanLogProbability)  # exact ties: see the last bit below
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for cover, votes, tables, labels in drawn(covers, smooth, 240, 11):
        decisions = answer(rule.deciding(votes), votes)
        proofs = answer(rule.certifying(votes, np.array(labels)), votes)
        for decision, proved, table, label in zip(decisions, proofs, tables, labels, strict=True):
            found = reference.Recovered((decision.label, decision.alert), decision.basis)
            assert (found, bool(proved)) == by_reference(rule, cover, table, label), (cover, table)
            outcomes[decision.label == label and not decision.alert, bool(proved)] += 1
    assert outcomes[False, False] > 20, "some tables were answered wrongly or with an alert"
    if rule.guarantee is not Guarantee.NONE:
        assert outcomes[True, True] > 20, "some tables were certified"
    if rule.guarantee is Guarantee.RECOVERY:
        assert outcomes[True, False] > 20, "some right answers were not certified"


def test_every_rule_has_a_reference() -> None:
    """A rule that is added to the table of rules must be added here; those of bands have files of their own."""
    assert {type(rule) for rule in RULES_AND_MARGINS} == set(RULES.values()) - {Smoothing, BandMasking}


# ------------------------------------------------------------------------------------------------ aggregates

TIED = torch.tensor([[2, 2, 0], [0, 2, 2], [2, 0, 2], [4, 0, 0], [0, 4, 0], [0, 0, 4]]).div(4)


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_the_smallest_class_wins_a_tie_and_a_tie_is_no_win(aggregate: Aggregate) -> None:
    """Equal scores go to the smaller class; no class of a tie can be certified."""
    for pool, winner in (([3, 4], 0), ([4, 3], 0), ([4, 5], 1), ([5, 4], 1), ([0, 0], 0), ([1, 1], 1), ([2, 2], 0)):
        pools = torch.tensor([pool])
        assert aggregate.labels(TIED, pools).tolist() == [winner]
        assert not any(aggregate.wins(TIED, pools, torch.tensor([label]), 0.0).item() for label in range(3))


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_a_pool_is_judged_alone(aggregate: Aggregate) -> None:
    """The verdict on a pool is the same whatever padding it has and whatever other pools are judged with it."""
    generator = torch.Generator().manual_seed(3)
    outputs = torch.rand(40, 5, generator=generator)
    pools = torch.randint(40, (1500, 6), generator=generator)
    pools[torch.rand(1500, 6, generator=generator) < 0.3] = -1
    pools[:, 2] = torch.arange(1500) % 40
    labels, wins = (
        aggregate.labels(outputs, pools),
        aggregate.wins(outputs, pools, torch.ones(1500, dtype=torch.long), 0.01),
    )
    assert wins.any()
    assert (labels[wins] == 1).all()
    for row in range(0, 1500, 37):
        alone = pools[row][pools[row] >= 0][None]
        assert aggregate.labels(outputs, alone).item() == labels[row].item()
        assert aggregate.wins(outputs, alone, torch.tensor([1]), 0.01).item() == wins[row].item()


@given(data=st.data())
@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_first_classes_never_promise_a_win_that_is_none(aggregate: Aggregate, data: st.DataObject) -> None:
    """A positive bound from first classes is at most the lead, and the class wins by more than the margin."""
    seed, sharp = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.sampled_from([0.5, 3.0, 20.0]))
    margin = data.draw(st.sampled_from([0.0, 0.01, 0.2]))
    generator = torch.Generator().manual_seed(seed)
    outputs = voted(torch.softmax(sharp * torch.randn(12, 4, generator=generator), dim=1))
    pools = torch.randint(-1, 12, (40, 5), generator=generator)
    pools[:, 0] = pools[:, 0].clamp(min=0)
    labels, confidence, lead = head_of(outputs).double().numpy().T[:, pools]
    heads = Heads(labels.astype(np.int64), confidence, lead)
    for label in range(4):
        weights = aggregate.weights(heads, np.full((40, 1), label), margin)
        least = np.where(pools.numpy() < 0, 0.0, weights).sum(axis=1)
        found = aggregate.judged(outputs, pools, margin)
        assert aggregate.wins(outputs, pools, torch.full((40,), label), margin).numpy()[least > 0].all()
        assert (found.low.numpy()[least > 0] >= least[least > 0]).all()


def districts_of(votes: Votes) -> Pools:
    """The passes of every district's jury."""
    levels = Levels(votes.ballot, jury_levels(votes.cover, "all"), votes.cover.boxes, votes.cover.place_patches)
    passes = levels.claim_pools(np.arange(levels.hypotheses), 0)
    return Pools(np.zeros(len(passes), dtype=np.int64), passes)


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_verdicts_are_those_of_all_probabilities(aggregate: Aggregate) -> None:
    """Taking the short way where first classes settle it changes no verdict, and is taken."""
    generator, cover = torch.Generator().manual_seed(5), spread_cover(24, Patch(4, 4), 10, 2)
    short, long = 0, 0
    for favour in (0.0, 1.0, 2.0, 4.0):
        logits = torch.randn(len(cover), 5, generator=generator)
        logits[:, 2] += favour
        votes = Votes.from_table(cover, logits.softmax(dim=1))
        pools = districts_of(votes)
        exact = aggregate.judged(votes.outputs, torch.from_numpy(votes.rows(pools.passes, pools.pictures)))
        for bar in (-np.inf, 0.0, 0.2, 0.9):
            labels, clear, leads = settled(aggregate, votes, pools, bar)
            assert labels.tolist() == exact.labels.tolist()
            assert clear.tolist() == (exact.low.numpy() > bar * pools.sizes).tolist()
            assert (leads <= exact.low.numpy() / pools.sizes).all(), (
                "a bound from first classes is no more than the lead"
            )
            assert (leads[~clear] == (exact.low.numpy() / pools.sizes)[~clear]).all()
            assert (leads[clear] > max(bar, 0.0)).all() or bar < 0
        for label, margin in product(range(5), (0.0, 0.05)):
            rows = torch.from_numpy(votes.rows(pools.passes, pools.pictures))
            won = aggregate.wins(votes.outputs, rows, torch.full((len(rows),), label), margin).numpy()
            labels = np.full(len(rows), label)
            said = told(aggregate, votes, pools, labels, margin)
            assert (said.wrong == ~won).all()
            assert (said.leads[won] > 0).all()
            assert (said.leads[~won] <= 0).all()
            sure = least_leads(aggregate, votes, pools, labels, margin) > 0
            short, long = short + int(sure.sum()), long + int((won & ~sure).sum())
    assert short > 50
    assert long > 50


def test_missing_votes_are_noticed_among_many() -> None:
    """Where many pools share their passes, each vote is looked up once: one that was never cast is still an error."""
    cover, outputs = spread_cover(24, Patch(4, 4), 10, 2), torch.full((1, 3), 1 / 3)
    for absent in (0, len(cover) // 2, len(cover) - 1):
        there = [mask for mask in range(len(cover)) if mask != absent]
        votes = votes_under(cover, [(mask,) for mask in there], outputs.expand(len(there), -1))
        pools = districts_of(votes)
        assert pools.passes.size > len(votes.ballot.passes) + 1
        with pytest.raises(VoteError, match="expected every vote that the rule needs"):
            least_leads(MeanProbability(), votes, pools, np.zeros(len(pools.passes), dtype=np.int64), 0.0)


def test_no_win_is_promised_on_votes_that_are_no_numbers() -> None:
    cover = minimal_cover(8, Patch(2, 2), 8)
    votes = votes_under(cover, singles_of(cover).tolist(), torch.full((len(cover), 3), torch.nan))
    pools = districts_of(votes)
    for aggregate in AGGREGATES.values():
        assert told(aggregate(), votes, pools, np.zeros(len(pools.passes), dtype=np.int64), 0.0).wrong.all()


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_a_sum_does_not_depend_on_its_order(aggregate: Aggregate) -> None:
    """Bit for bit the same scores for any order of a pool's members, so ``R(t, u)`` is ``R(u, t)``."""
    generator = torch.Generator().manual_seed(6)
    outputs = torch.softmax(4 * torch.randn(50, 7, generator=generator), dim=1)
    pools = torch.randint(50, (30, 40), generator=generator)
    scores = aggregate._scores(outputs, pools)
    for _ in range(5):
        moved = pools[:, torch.randperm(40, generator=generator)]
        assert torch.equal(aggregate._scores(outputs, moved), scores)
        assert torch.equal(aggregate._scores(outputs, moved[:3]), scores[:3])


def test_log_probability_vetoes_what_the_mean_forgives() -> None:
    """One output that rules a class out outweighs two that favour it, in logarithms only."""
    outputs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.0, 1.0]])
    pools = torch.tensor([[0, 1, 2]])
    assert MeanProbability().labels(outputs, pools).tolist() == [0]
    assert LabelMajority().labels(outputs, pools).tolist() == [0]
    assert MeanLogProbability().labels(outputs, pools).tolist() == [1]


def test_label_majority_counts_unsure_outputs_for_the_rival() -> None:
    """Three sure against one sure: certified with one unsure output beside them, not with two."""
    outputs = torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.5625, 0.4375, 0.0]])
    one, two = torch.tensor([[0, 0, 0, 1, 2]]), torch.tensor([[0, 0, 0, 1, 2, 2]])
    majority_of = LabelMajority()
    zero, alone = torch.tensor([0]), torch.tensor([[2]])
    assert majority_of.wins(outputs, one, zero, 0.125).tolist() == [True]
    assert majority_of.wins(outputs, two, zero, 0.125).tolist() == [False]
    assert majority_of.wins(outputs, two, zero, 0.1).tolist() == [True]
    assert majority_of.wins(outputs, alone, zero, 0.125).tolist() == [False], "a lead of just the margin"


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_a_win_by_the_margin_survives_noise(aggregate: Aggregate) -> None:
    """If a class wins by more than ``m``, it still wins after every number moved by up to ``m/2``, at the worst."""
    generator, margin = torch.Generator().manual_seed(4), 0.125
    logarithms = isinstance(aggregate, MeanLogProbability)
    outputs = torch.softmax(3 * torch.randn(60, 3, generator=generator, dtype=torch.float64), dim=1).float()
    pools = torch.randint(60, (400, 5), generator=generator)
    won = 0
    for label, rival in product(range(3), repeat=2):
        against = torch.zeros(3)
        against[label] -= margin / 2
        against[rival] += margin / 2
        for noise in (against, torch.where(torch.rand(60, 1, generator=generator) < 0.5, against, 0.0)):
            moved = outputs * noise.exp() if logarithms else outputs + noise
            wins = aggregate.wins(outputs, pools, torch.full((400,), label), margin * 1.0001)
            won += int(wins.sum())
            assert (aggregate.labels(moved, pools)[wins] == label).all()
    assert won > 500


@pytest.mark.parametrize(
    "rule", [r for r in RULES_AND_MARGINS if r.margin and r.guarantee is not Guarantee.NONE], ids=repr
)
def test_a_lead_of_exactly_the_margin_is_not_certified(rule: Rule) -> None:
    """All votes lead by exactly the margin: nothing is certified; with a slightly smaller margin everything is."""
    cover = minimal_cover((1, 2), ONE, 1)
    row = torch.tensor([0.75, 0.25, 0.0])
    votes = Votes.from_table(cover, row.expand(2, 3), row.expand(2, 2, 3))
    lead = 0.5
    if isinstance(getattr(rule, "aggregate", None), MeanLogProbability):
        logarithms = row.double().log()
        lead = float(logarithms[0] - logarithms[1])
    rule = copy(rule)
    if isinstance(rule, (MinorityReports, HiCert)):
        rule.threshold = 0.0
    for margin, proved in ((lead, False), (lead - 1e-6, True)):
        rule.margin = margin
        assert rule.certify(votes, 0).holds is proved
        assert not rule.certify(votes, 1).holds


@pytest.mark.parametrize(("threshold", "margin"), [(0.75, 0.0), (0.25, 0.5), (0.5, 0.25)])
def test_minority_reports_is_strict_at_the_threshold(threshold: float, margin: float) -> None:
    """A confidence equal to threshold plus margin certifies nothing; one equal to the threshold raises no alert."""
    cover = minimal_cover((1, 3), ONE, 1)
    row = torch.tensor([0.75, 0.125, 0.125])
    votes = Votes.from_table(cover, row.expand(3, 3))
    assert not MinorityReports(threshold, margin).certify(votes, 0).holds
    assert MinorityReports(threshold - 1e-6, margin).certify(votes, 0).holds
    against = Votes.from_table(cover, torch.stack([row, row.roll(1), row.roll(1)]))
    assert MinorityReports(0.75).decide(against) == Decision(1, alert=False)
    assert MinorityReports(0.75 - 1e-6).decide(against) == Decision(1, alert=True)


@pytest.mark.parametrize(("threshold", "margin"), [(0.75, 0.0), (0.8125, 0.0625), (1.0, 0.25)])
def test_hicert_is_strict_at_the_threshold(threshold: float, margin: float) -> None:
    """A confidence equal to threshold less margin is sure; from the threshold on, a vote raises no alert."""
    cover = minimal_cover((1, 3), ONE, 1)
    row = torch.tensor([0.75, 0.125, 0.125])
    votes = Votes.from_table(cover, row.expand(3, 3))
    assert not HiCert(threshold, margin).certify(votes, 1).holds
    assert HiCert(min(threshold + 1e-6, 1.0), margin - (threshold == 1.0) * 1e-6).certify(votes, 1).holds
    assert HiCert(0.75).decide(votes) == Decision(0, alert=False)
    assert HiCert(0.75 + 1e-6).decide(votes) == Decision(0, alert=True)


# ----------------------------------------------------------------------------------------------- tournaments


def fight(claims: list[int], outcome: Callable[[int, int], int]) -> tuple[Decision, int]:
    """A tournament's decision and the number of its duels, each pair of hypotheses counted once."""
    fought: list[tuple[int, int]] = []
    run, told = tournament(np.array(claims)), None
    while True:
        try:
            pairs = run.send(told)  # type: ignore[arg-type]
            fought.extend((t, u) for t, u in pairs.tolist())
            told = np.array([outcome(t, u) for t, u in pairs.tolist()])
        except StopIteration as stop:
            assert all(claims[t] != claims[u] for t, u in fought), "nobody fights a friend"
            return stop.value, len({frozenset(pair) for pair in fought})


def most_duels(claims: list[int], survivors: Iterable[int]) -> int:
    """Striking out takes at most 2·(hypotheses−1) duels; survivors of a minority claim then meet all other claims."""
    counts = Counter(claims)
    minority = [counts[c] * (len(claims) - counts[c]) for c in survivors if c != reference.most_frequent(claims)]
    return 2 * (len(claims) - 1) + max(minority, default=0)


def test_tournaments_of_any_outcome() -> None:
    """3,000 seeded tournaments: few duels, the reference's result, and a hypothesis that wins every duel wins."""
    rng, unbeaten_seen, alerts, most = Random(12), 0, 0, 0.0
    for _ in range(3000):
        size, classes = rng.randint(1, 20), rng.randint(1, 6)
        claims = [rng.randrange(classes) for _ in range(size)]
        bias = rng.random()
        favourite = rng.randrange(size) if rng.random() < 0.5 else None
        results = {}
        for t, u in combinations(range(size), 2):
            if favourite in (t, u):
                result = claims[t if t == favourite else u]
            else:
                result = rng.choice([claims[t], claims[u]]) if rng.random() < bias else rng.randrange(classes + 1)
            results[t, u] = results[u, t] = result
        outcome = partial(lambda results, t, u: results[t, u], results)
        decision, duels = fight(claims, outcome)
        assert (decision.label, decision.alert) == reference.tournament(claims, outcome)
        if favourite is not None:
            assert decision == Decision(claims[favourite])
            assert duels <= most_duels(claims, [claims[favourite]])
            unbeaten_seen += len(set(claims)) > 1
        assert duels <= most_duels(claims, [] if decision.alert else set(claims))
        most = max(most, duels / size)
        alerts += decision.alert
    assert unbeaten_seen > 500
    assert alerts > 50
    assert most > 1, "the bound is not idle: some tournament needs more duels than hypotheses"


def test_challenger_passes_under_attack() -> None:
    """A certified image of 10 masks, one of them out of the attacker's reach: far fewer passes than the 45 pairs."""
    cover, rule, rng = minimal_cover((1, 10), ONE, 1), PatchCleanser(challenger=True), Random(15)
    clean = {(i, j): 1 for j in range(10) for i in range(j + 1)}
    options = attacker(cover, 0, clean, HARD)
    spent = []
    for decision, table in random_plays(cover, deciding(rule), HARD, options, 300, rng):
        assert decision == Decision(1)
        claims = [table[i, i] for i in range(10)]
        spent.append(len(table) - 10)
        assert spent[-1] <= most_duels(claims, [1])
    assert min(spent) == 0
    assert 9 < max(spent) < 30


@pytest.mark.parametrize(
    "rule", [JuryRecovery(), JuryRecovery("aligned"), PatchCleanser(), PatchCleanser(True)], ids=repr
)
def test_no_second_round_without_disagreement(rule: Rule) -> None:
    """A unanimous first round costs one pass per mask."""
    cover = spread_cover((1, 6), ONE, (1, 3), (1, 2))
    decision, table = play(cover, deciding(rule), HARD, lambda _: 1)
    assert decision == Decision(1)
    assert sorted(table) == [(i, i) for i in range(len(cover))]


def test_majority_is_weighted_and_prefers_the_smallest() -> None:
    """Ties to the smallest label, with and without weights."""
    assert majority(np.array([3, 1, 1, 3])) == 1
    assert majority(np.array([3, 1, 1, 3]), np.array([2, 1, 1, 1])) == 3


# ------------------------------------------------------------------------------------------------ pair pools


@pytest.mark.parametrize("cover", [c for c in COVERS if len(c.grids) > 1], ids=str)
def test_aligned_pools_stay_within_a_grid(cover: Cover) -> None:
    """Each pool holds exactly the passes with one mask of either jury, both of one grid; every grid takes part."""
    pairs = np.array(list(combinations(range(len(cover.districts)), 2)), dtype=np.int64)
    ballot = Ballot(cover)
    pools, everything = (
        Levels(ballot, jury_levels(cover, kind), cover.boxes, cover.place_patches).pair_pools(pairs, 0)
        for kind in ("aligned", "all")
    )

    def named(pool: IntArray) -> Counter[tuple[int, int]]:
        return Counter(pass_name(masks) for masks in ballot.passes.sets(pool[pool != NONE]).tolist())

    def ordered(found: Iterable[tuple[int, int]]) -> Counter[tuple[int, int]]:
        return Counter((min(pair), max(pair)) for pair in found)

    for (t, u), pool, wide in zip(pairs.tolist(), pools, everything, strict=True):
        one, other = cover.districts.jury(t), cover.districts.jury(u)
        found = named(pool)
        assert found == ordered((i, j) for grid in cover.grids for i in one for j in other if i in grid and j in grid)
        assert all(any(i in grid and j in grid for i, j in found) for grid in cover.grids)
        assert named(wide) == ordered(product(one, other))


def test_aligned_asks_for_fewer_passes() -> None:
    """Aligned certificates ask for pairs inside grids only; ``Cover.pairs`` is an upper bound of both."""
    cover = spread_cover((1, 9), ONE, (1, 4), (1, 2))
    asked: dict[str, Table] = {}
    for pairs in ("all", "aligned"):
        rule = JuryRecovery(pairs)
        proved, asked[pairs] = play(cover, certifying(rule, 1), HARD, lambda _: 1)
        assert proved
        assert len(asked[pairs]) <= len(cover) + cover.pairs(pairs)
    assert set(asked["aligned"]) < set(asked["all"])
    assert all(any(i in grid and j in grid for grid in cover.grids) for i, j in asked["aligned"] if i != j)


@pytest.mark.parametrize("aggregate", [a() for a in AGGREGATES.values()], ids=lambda a: a.name)
def test_one_fold_juries_certify_as_patchcleanser(aggregate: Aggregate) -> None:
    """Where every mask is the whole jury of some district, jury recovery is two-mask correctness, table by table."""
    covers = [c for c in line_covers(3, 8) if {(0,), (1,), (2,)} <= families(c)]
    covers += [minimal_cover((3, 3), ONE, 2), patchcleanser_cover((5, 5), Patch(2, 2), 2)]
    assert len(covers) >= 6
    assert any(cover.districts.sizes.max() > 1 for cover in covers)
    rng, outcomes = Random(13), Counter[bool]()
    for _ in range(150):
        cover, label = rng.choice(covers), rng.randrange(CLASSES)
        votes = as_votes(cover, random_table(cover, label, True, rng))
        proved = PatchCleanser().certify(votes, label).holds
        assert JuryRecovery(aggregate=aggregate).certify(votes, label).holds == proved
        assert PatchCleanser(challenger=True).certify(votes, label).holds == proved
        outcomes[proved] += 1
    assert min(outcomes.values()) > 20


# ---------------------------------------------------------------------------------------------------- errors


def one_line(error: pytest.ExceptionInfo[CertmaskError]) -> None:
    """The message reads "expected …, got …", on one line."""
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith("expected ")
    assert ", got " in message


PLAIN = minimal_cover((1, 3), ONE, 1)
ALL_RIGHT = Votes.from_table(PLAIN, HARD[[1, 1, 1]], HARD[[1]].expand(3, 3, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: JuryDetection(margin=-0.1),
        lambda: JuryRecovery(margin=float("nan")),
        lambda: Published(margin=-1),
        lambda: MinorityReports(-0.1),
        lambda: HiCert(-0.1),
        lambda: HiCert(1.5),
        lambda: MinorityReports(1.0),
        lambda: MinorityReports(float("nan")),
        lambda: JuryRecovery("diagonal"),
        lambda: JuryRecovery(thresholds=-0.1),
        lambda: JuryRecovery(thresholds=(0.5, float("nan"))),
        lambda: JuryDetection(thresholds=float("inf")),
        lambda: JuryDetection(thresholds=True),
        lambda: JuryDetection(pooled=1),  # type: ignore[arg-type]
        lambda: JuryRecovery(last_resort="chance"),
        lambda: PatchCleanser(last_resort="chance"),
        lambda: JuryRecovery(claim_thresholds=-0.1),
        lambda: JuryRecovery(thresholds=(0.5,)).check(zoom_cover(12, 2, (2, 3, 4))),
        lambda: JuryRecovery(claim_thresholds=(0.5,)).check(zoom_cover(12, 2, (2, 3, 4))),
        lambda: PatchCleanser(challenger=1),  # type: ignore[arg-type]
        lambda: JuryDetection().certify(ALL_RIGHT, 3),
        lambda: JuryRecovery().certify(ALL_RIGHT, -1),
    ],
)
def test_senseless_rules_and_labels_are_refused(wrong: Callable[[], object]) -> None:
    """Margins, thresholds, pairings and labels out of range."""
    with pytest.raises(CertmaskError) as error:
        wrong()
    one_line(error)


@pytest.mark.parametrize(
    ("singles", "doubles"),
    [
        ((2, 3), None),
        ((4, 3), None),
        ((3,), None),
        ((3, 3, 1), None),
        ((3, 3), (2, 2, 3)),
        ((3, 3), (3, 2, 3)),
        ((3, 3), (3, 3)),
        ((3, 3), (3, 3, 1)),
        ((3, 3), (3, 3, 4)),
    ],
    ids=str,
)
def test_tables_of_the_wrong_shape_are_refused(singles: tuple[int, ...], doubles: tuple[int, ...] | None) -> None:
    """A table for other masks or other classes is an error that shows the shape it got."""
    with pytest.raises(VoteError) as error:
        Votes.from_table(PLAIN, torch.zeros(singles), None if doubles is None else torch.zeros(doubles))
    one_line(error)
    assert str(doubles or singles) in str(error.value)


@pytest.mark.parametrize("rule", [JuryRecovery(), PatchCleanser(), PatchCleanser(True), Undefended()], ids=repr)
def test_missing_votes_are_an_error(rule: Rule) -> None:
    """A rule that needs a vote which is not there says so; it never guesses."""
    votes = Votes.from_table(PLAIN, HARD[[0, 1, 2]])
    with pytest.raises(VoteError) as error:
        rule.decide(votes)
    one_line(error)
    agreed = Votes.from_table(PLAIN, HARD[[1, 1, 1]])
    if rule.guarantee is Guarantee.RECOVERY:
        assert rule.decide(agreed) == Decision(1)
        with pytest.raises(VoteError):
            rule.certify(agreed, 1)


@pytest.mark.parametrize("rule", [JuryDetection(), MinorityReports(), Published(), PatchCleanser()], ids=repr)
def test_an_empty_store_is_an_error(rule: Rule) -> None:
    """Not a single vote."""
    ballot = Ballot(PLAIN)
    votes = Votes(ballot, VoteStore(1, ballot.passes, 3))
    with pytest.raises(VoteError):
        rule.decide(votes)
    with pytest.raises(VoteError):
        rule.certify(votes, 0)


def test_reading_a_vote_that_is_not_there_is_an_error() -> None:
    """Also without a rule's question before it."""
    votes = Votes.from_table(PLAIN, HARD[[0, 1, 2]])
    with pytest.raises(VoteError) as error:
        votes.of(np.array([[0, 1]]))
    one_line(error)


def test_voting_twice_is_an_error() -> None:
    """Votes never change, whichever way round the pair is written."""
    votes = votes_under(PLAIN, [(0, 2), (1, 1)], HARD[[0, 1]])
    for again in ([[2, 0]], [[0, 2]], [[1, 1]], [[1, -1]], [[2, 2], [1, 1]]):
        with pytest.raises(VoteError) as error:
            votes.store.add(votes.ask(votes.ballot.numbers(np.array(again))[None]), HARD[[0] * len(again)])
        one_line(error)
    assert votes.store.count == 2


def test_aligned_pairs_need_grids() -> None:
    """Offset Tiling with k > 1 is not made of grids, and ``for_patch`` forgets them."""
    rule = JuryRecovery("aligned")
    for cover in (offset_cover((4, 4), ONE, 3, 2), spread_cover((1, 5), ONE, (1, 3), (1, 2)).for_patch(ONE)):
        table = HARD[[1] * len(cover)]
        votes = Votes.from_table(cover, table, table.expand(len(cover), len(cover), 3))
        for use in (rule.decide, lambda votes: rule.certify(votes, 1)):
            with pytest.raises(CoverError) as error:
                use(votes)
            one_line(error)
        assert JuryRecovery("all").certify(votes, 1).holds


def test_a_cover_refuses_a_patch_it_does_not_cover() -> None:
    """``for_patch`` re-proves the cover: the same or a smaller patch passes, a larger one does not."""
    cover = minimal_cover((8, 8), Patch(2, 2), 3)
    assert cover.for_patch(Patch(1, 2)).patch == Patch(1, 2)
    assert cover.for_patch(Patch(2, 2)).min_fold >= 1
    for larger in (Patch(3, 2), Patch(2, 3), Patch(4, 4)):
        with pytest.raises(CoverError) as error:
            cover.for_patch(larger)
        one_line(error)


# ----------------------------------------------------------------------------------------- what is written down


def test_a_certificate_carries_all_it_rests_on() -> None:
    """Patch, cover, pairing, aggregate, margin and guarantee; the whole is plain data."""
    cover = spread_cover((6, 7), Patch(2, 3), (4, 5), 2)
    table = HARD[[1] * len(cover)]
    rule = JuryRecovery("aligned", LabelMajority(), margin=0.125)
    certificate = rule.certify(Votes.from_table(cover, table, table.expand(len(cover), len(cover), 3)), 1)
    written = json.loads(json.dumps(certificate.describe()))
    assert written["holds"] is True
    assert written["label"] == 1
    assert written["guarantee"] == written["rule"]["guarantee"] == "recovery"
    assert written["rule"] == {
        "rule": "jury recovery",
        "guarantee": "recovery",
        "margin": 0.125,
        "pairs": "aligned",
        "aggregate": "label majority",
        "thresholds": [0.95, 0.5, 0.2],
        "claim_thresholds": [0.9, 0.2, 0.1],
        "pooled": False,
        "last_resort": "bare",
    }
    assert written["cover"] == cover.describe()
    assert (written["cover"]["patch"], written["cover"]["image"]) == ([2, 3], [6, 7])
    assert (written["cover"]["tiling"], written["cover"]["fold"], written["cover"]["mask"]) == (
        "spread",
        [2, 2],
        [4, 5],
    )
    assert written["cover"]["digest"] != cover.for_patch(Patch(2, 2)).digest
    assert "2×3 patch on a 6×7 input" in written["sentence"]
    assert written["sentence"].startswith("certified recovery against any ")


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (JuryRecovery(), "certified recovery against"),
        (PatchCleanser(), "certified recovery against"),
        (JuryDetection(), "certified detection against"),
        (MinorityReports(), "certified detection against"),
        (Published(), "passes the published test"),
        (Undefended(), "not certified"),
    ],
    ids=repr,
)
def test_sentences_say_which_guarantee(rule: Rule, found: str) -> None:
    """Detection, recovery and the published test read differently, and a failure never reads as a success."""
    certificate = rule.certify(ALL_RIGHT, 1)
    assert certificate.sentence.startswith(found)
    assert ("alert" in certificate.sentence) == (rule.guarantee is Guarantee.DETECTION)
    assert ("no guarantee" in certificate.sentence) == (rule.guarantee is Guarantee.PUBLISHED)
    assert rule.certify(ALL_RIGHT, 0).sentence.startswith("not certified against any 1×1 patch")


def test_parameters_are_described() -> None:
    """Every parameter of a rule stands in its description."""
    assert MinorityReports(0.25, margin=0.5).describe() == {
        "rule": "minority reports",
        "guarantee": "detection",
        "margin": 0.5,
        "threshold": 0.25,
    }
    assert PatchCleanser(challenger=True).describe()["challenger"] is True
    assert JuryDetection(MeanLogProbability()).describe()["aggregate"] == "mean log-probability"
    assert Published().describe() == {"rule": "published", "guarantee": "published test", "margin": 0.0}


# ----------------------------------------------------------------------------------------------------- votes


@pytest.mark.parametrize("odd", [-8.0, 1.5, torch.nan, torch.inf])
def test_only_probabilities_are_votes(odd: float) -> None:
    """Logits would be read as probabilities, and certificates would be false."""
    cover = minimal_cover((1, 2), ONE, 1)
    table = torch.full((2, 3), 0.25)
    pairs = table.expand(2, 2, 3).clone()
    assert Votes.from_table(cover, table.half(), pairs.double()).outputs.dtype == torch.float32
    pairs[0, 1, 2] = odd
    with pytest.raises(VoteError, match="expected probabilities from 0 to 1, got"):
        Votes.from_table(cover, table, pairs)
    table[1, 2] = odd
    with pytest.raises(VoteError, match="expected probabilities from 0 to 1, got"):
        Votes.from_table(cover, table)


@pytest.mark.parametrize("masks", [1, 5, 40, 1500, 3000])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_set_of_masks_has_one_number(masks: int, width: int) -> None:
    """Whatever its order and repetitions, and never that of another set; read back it has the same members."""
    passes, rng = Passes(masks), np.random.default_rng(masks)
    assert passes.numbers(np.full((1, width), NONE)).tolist() == [BARE]
    number_of: dict[frozenset[int], int] = {frozenset(): BARE}
    for _ in range(5):
        sets = rng.integers(NONE, min(masks, 60), (300, width)) * (masks // min(masks, 60))
        sets[sets < 0] = NONE
        numbers = passes.numbers(sets)
        assert np.array_equal(passes.numbers(rng.permuted(sets, axis=1)), numbers)
        wider = np.concatenate([sets, sets[:, :1]], axis=1)
        assert np.array_equal(passes.numbers(wider), numbers)
        for row, number, back in zip(sets.tolist(), numbers.tolist(), passes.sets(numbers).tolist(), strict=True):
            members = frozenset(row) - {NONE}
            assert number_of.setdefault(members, number) == number
            assert frozenset(back) - {NONE} == members
            assert passes.sizes[number] == len(members)
    assert len(set(number_of.values())) == len(number_of)
    assert len(passes) == len(number_of)


def test_sets_too_large_to_be_numbered_are_refused() -> None:
    with pytest.raises(VoteError, match="expected sets of masks that can be numbered"):
        Passes(100_000).numbers(np.zeros((1, 4), dtype=np.int64))


def test_a_store_names_what_is_missing_once() -> None:
    """Both ways round are one pair, and every picture has votes of its own."""
    ballot = Ballot(minimal_cover((1, 4), ONE, 1))
    store = VoteStore(2, ballot.passes, 3)
    store.add(Ask(np.array([0]), ballot.numbers(np.array([[1, 3]]))), HARD[[0]])
    asked = np.array([[3, 1], [2, 0], [0, 2], [2, 2], [0, 2], [1, 0]])
    missing = store.missing(Votes(ballot, store).ask(ballot.numbers(asked)[None]))
    named = sorted((int(picture), pass_name(ballot.passes.sets(np.array([number]))[0].tolist()))
                   for picture, number in zip(*missing, strict=True))  # fmt: skip
    assert named == [(0, (0, 1)), (0, (0, 2)), (0, (2, 2)), (1, (0, 1)), (1, (0, 2)), (1, (1, 3)), (1, (2, 2))]


@pytest.mark.parametrize("rule", RULES_AND_MARGINS, ids=repr)
def test_a_cohort_is_judged_as_its_pictures_are_one_by_one(rule: Rule) -> None:
    """Same decisions, same certificates, same passes asked for, picture by picture."""
    rng, cover = Random(15), COVERS[5]
    labels = np.array([rng.randrange(CLASSES) for _ in range(12)])
    tables = [random_table(cover, int(label), smooth=rng.random() < 0.5, rng=rng) for label in labels]
    ballot = Ballot(cover)
    store = VoteStore(len(tables), ballot.passes, CLASSES)
    for picture, table in enumerate(tables):
        passes = ballot.numbers(np.array(list(table), dtype=np.int64))
        store.add(Ask(np.full_like(passes, picture), passes), torch.tensor(list(table.values())))
    together = Votes(ballot, store)
    decisions, asked = listened(rule.deciding(together), len(tables))
    proofs, proved = listened(rule.certifying(together, labels), len(tables))
    for picture, table in enumerate(tables):
        alone = as_votes(cover, table)
        (decision,), (once,) = listened(rule.deciding(alone), 1)
        (proof,), (again,) = listened(rule.certifying(alone, labels[[picture]]), 1)
        assert decision == decisions[picture]
        assert bool(proof) == bool(proofs[picture])
        for mine, ours in ((once, asked[picture]), (again, proved[picture])):
            assert _sets(alone.ballot, mine) == _sets(ballot, ours)


def listened(asking: Asking[Any], pictures: int) -> tuple[Any, list[set[int]]]:
    """What a computation on complete votes finds, and what it asked for of each picture."""
    asked: list[set[int]] = [set() for _ in range(pictures)]
    while True:
        try:
            ask = next(asking)
        except StopIteration as stop:
            return stop.value, asked
        for picture, number in zip(*ask, strict=True):
            asked[picture].add(int(number))


def _sets(ballot: Ballot, numbers: set[int]) -> set[tuple[int, int]]:
    return {pass_name(masks) for masks in ballot.passes.sets(np.array(sorted(numbers), dtype=np.int64)).tolist()}


def test_tables_are_read_as_written() -> None:
    """``from_table`` takes singles by mask and doubles from above the diagonal; a pair has no direction."""
    singles, doubles = torch.rand(3, 4), torch.rand(3, 3, 4)
    votes = Votes.from_table(PLAIN, singles, doubles)
    assert torch.equal(votes.of(singles_of(PLAIN)), singles)
    for i, j in combinations(range(3), 2):
        assert torch.equal(votes.of(np.array([[i, j]])), votes.of(np.array([[j, i]])))
        assert torch.equal(votes.of(np.array([[j, i]]))[0], doubles[i, j])


def test_votes_of_one_store_serve_two_covers() -> None:
    """A cover's mask numbers are translated into the store's: the same store seen through two covers."""
    outputs: Tensor = torch.rand(5, 3)
    passes = Passes(5)
    store = VoteStore(1, passes, 3)
    store.add(Ask(np.zeros(5, dtype=np.int64), passes.numbers(np.arange(5)[:, None])), outputs)
    votes = Votes(Ballot(PLAIN, passes, np.array([4, 0, 2])), store)
    assert torch.equal(votes.of(singles_of(PLAIN)), outputs[[4, 0, 2]])
    expected = int(outputs[[4, 0, 2]].double().mean(dim=0).argmax())
    wide = custom_cover((1, 3), ONE, [Mask(0, 0, 1, 3)])
    assert Published().decide(Votes(Ballot(wide, passes, np.array([3])), store)).label == int(outputs[3].argmax())
    rows = torch.from_numpy(votes.rows(votes.ballot.singles[None]))
    assert MeanProbability().labels(votes.outputs, rows).tolist() == [expected]
