"""Levels against the plain-Python reference: what is decided, what is proved, where it is weakest, what it costs."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
import reference_rules as reference
import torch
from game import HARD, LEADS, Table, certifying, deciding, line_zoom, play, played
from members import ZOOMING
from tables import Outputs, as_votes, by_reference, drawn, judges_of, places_of, random_table

from certmask.certificate import BASES, NO_CLASS, Decision, Guarantee, Weakest
from certmask.covers import Cover, default_cover, spread_cover, stacked_cover, zoom_cover
from certmask.geometry import IntArray
from certmask.rules import AGGREGATES, JuryDetection, JuryRecovery, MeanLogProbability, PatchCleanser, Rule
from certmask.rules.aggregates import Leads
from certmask.rules.rule import Asking, Proofs, answer
from certmask.rules.tournament import DUELS_AT_ONCE, objection
from certmask.threat import Patch
from certmask.votes import Votes

torch.set_num_threads(1)

ONE = Patch(1, 1)
COVERS = (
    line_zoom(4, (4, [0]), (2, [0, 2]), (1, [0, 1, 2, 3])),
    line_zoom(5, (3, [0, 2]), (2, range(4)), patch=2),
    stacked_cover([line_zoom(5, (3, [0, 3])).levels[0], spread_cover((1, 5), ONE, (1, 2), (1, 2))]),
    zoom_cover((4, 3), ONE, (2, 3), 1),
    line_zoom(3, (1, [0, 1, 2]), (1, [0, 1, 2])),
)


RULES = [
    *ZOOMING,
    *(
        JuryRecovery(aggregate=kind(), thresholds=(0.9, 0.4, 0.2), claim_thresholds=0.3, margin=0.07)
        for kind in AGGREGATES.values()
    ),
    *(JuryDetection(kind(), thresholds=0.4, pooled=True, margin=0.07) for kind in AGGREGATES.values()),
]


def named_at_any_level(rule: JuryDetection, cover: Cover, table: Outputs) -> set[int]:
    """The classes that places name at one level or another, and no class."""
    judge = judges_of(rule, cover).claims
    levels = [reference.claim_levels(table, place) for place in places_of(cover, rule.pairs)]
    return {judge.aggregate.decided(rows).label for own in levels for rows, _ in judge.pools(own)} | {NO_CLASS}


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_levels_agree_with_the_reference(rule: Rule) -> None:
    """80 seeded tables per rule, some with silent votes: same class, alert, basis and certificate.

    The class of an alert that detection raises is that of some verdict: it does not look at all of them.
    """
    smooth = isinstance(getattr(rule, "aggregate", None), MeanLogProbability)
    outcomes = Counter[tuple[bool, bool]]()
    for cover, votes, tables, labels in drawn(COVERS, smooth, 80, 21, silent=True):
        decisions = answer(rule.deciding(votes), votes)
        proved = answer(rule.certifying(votes, np.array(labels)), votes).tolist()
        for decision, proof, table, label in zip(decisions, proved, tables, labels, strict=True):
            found = reference.Recovered((decision.label, decision.alert), decision.basis)
            expected, holds = by_reference(rule, cover, table, label)
            if isinstance(rule, JuryDetection) and expected.decision[1]:
                assert decision.label in named_at_any_level(rule, cover, table)
                found = found._replace(decision=(expected.decision[0], decision.alert))
            assert (found, proof) == (expected, holds), (cover, table)
            outcomes[decision.label == label and not decision.alert, proof] += 1
    assert outcomes[False, False] > 4
    assert outcomes[True, True] > 4


@pytest.mark.parametrize(
    "rule",
    [JuryDetection(thresholds=0.4), JuryDetection(thresholds=0.4, pooled=True), JuryRecovery(claim_thresholds=0.3)],
    ids=repr,
)
def test_levels_of_a_cohort_are_those_of_its_pictures(rule: Rule) -> None:
    """60 seeded pictures at once: the same answers from the same votes as one by one, alerts beside none included."""
    rng, outcomes = Random(24), Counter[bool]()
    for cover in COVERS:
        tables = [random_table(cover, rng.randrange(4), True, rng) for _ in range(12)]
        palette = torch.tensor([row for table in tables for row in table.values()])
        width = len(tables[0])
        numbers = [{one: n * width + number for number, one in enumerate(table)} for n, table in enumerate(tables)]
        choosers = [own.__getitem__ for own in numbers]
        for choose, (decision, cast) in zip(choosers, played(cover, deciding(rule), palette, choosers), strict=True):
            alone, own = play(cover, deciding(rule), palette, choose)
            assert (decision, decision.basis, cast) == (alone, alone.basis, own)
            outcomes[decision.alert or decision.basis not in ("", "unanimous")] += 1
    assert min(outcomes[False], outcomes[True]) > 10


# ------------------------------------------------------------------------------------------------------ proofs


def proofs(rule: Rule, votes: Votes, label: int) -> Weakest:
    """Where a rule's proof about one picture is weakest."""
    found: Proofs = answer(rule.proving(votes, np.array([label])), votes)
    assert found.holds.tolist() == [rule.certify(votes, label).holds]
    assert found.weakest[0] is not None
    return found.weakest[0]


@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
@pytest.mark.parametrize("kind", [JuryDetection, JuryRecovery])
def test_the_weakest_place_is_the_weakest(kind: type[JuryDetection | JuryRecovery], pooled: bool) -> None:
    """Over all questions, of the level that settled each; where a proof fails, the lead there is not positive."""
    rng, seen = Random(22), Counter[bool]()
    rule = kind(pooled=pooled)
    for cover, _ in product(COVERS, range(25)):
        label = rng.randrange(4)
        table = random_table(cover, label, True, rng)
        weakest = proofs(rule, as_votes(cover, table), label)
        leads = judges_of(rule, cover).leads(places_of(cover, "aligned"), table, label, 0.0)
        settled = {about: own[-1] for about, own in leads.items()}
        least = min(lead for lead, _ in settled.values())
        seen[least > 0] += 1
        if least <= 0:
            assert weakest.lead <= 0
            continue
        boxes = [tuple(box) for box in cover.boxes.tolist()]
        own, level = settled[tuple(boxes.index(box) for box in weakest.places)]
        assert (level, own > 0) == (weakest.level, True)
        one_vote = not pooled and len(cover.level_columns) == cover.cells.masks.shape[1]
        if one_vote:
            assert weakest.lead == pytest.approx(float(least), abs=1e-6)
            assert own == pytest.approx(float(least), abs=1e-6)
        else:
            assert 0 < weakest.lead <= float(least) + 1e-6, "a bound from first classes is no more than the lead"
    assert min(seen.values()) > 20


def spent(cover: Cover, rule: Rule, table: Table, otherwise: int = 2) -> tuple[int, int]:
    """Passes to answer and passes to prove, where all votes but those of the table are ``otherwise``."""
    answered, cast = play(cover, deciding(rule), LEADS, lambda one: table.get(one, otherwise))
    assert answered == Decision(2)
    held, looked = play(cover, certifying(rule, 2), LEADS, lambda one: table.get(one, otherwise))
    assert held
    return len(cast), len(looked)


def test_a_sure_picture_is_proved_by_the_coarsest_masks() -> None:
    """2, 3, 6 and 12 masks per axis: 4 passes answer and 10 prove; each doubtful level adds its own."""
    cover = default_cover(224, 32)
    assert [len(level) for level in cover.levels] == [4, 9, 36, 144]
    rule = JuryRecovery()
    assert spent(cover, rule, {}) == (4, 10)
    assert spent(cover, JuryDetection(), {}) == (4, 4)
    coarse = {(i, j): 3 for j in range(4) for i in range(j + 1)}
    assert spent(cover, rule, coarse) == (4 + 9, 10 + 45)
    assert spent(cover, rule, {(0, 0): 3})[0] < 13, "one doubtful mask is looked at closer, the others are not"


def test_whoever_decides_and_whoever_certifies_see_the_same_numbers() -> None:
    """Leads beside the threshold by one unit: what a certificate takes as settled, a decision settles."""
    cover, unit = line_zoom(2, (2, [0]), (1, [0, 1])), 2.0**-24
    for kind, steps in product(AGGREGATES.values(), (-1, 0, 1)):
        if kind is MeanLogProbability:
            continue
        row = torch.tensor([0.25 - steps * unit, 0.0, 0.75])
        wrong = torch.tensor([1.0, 0.0, 0.0])
        singles, doubles = torch.stack([row, wrong, wrong]), wrong.expand(3, 3, 3)
        votes = Votes.from_table(cover, singles, doubles)
        bar = 0.5 if kind.name == "mean probability" else 1 - unit * steps
        rule = JuryRecovery(aggregate=kind(), thresholds=bar, claim_thresholds=bar)
        settles = steps > 0
        assert rule.certify(votes, 2).holds == settles
        assert (rule.decide(votes) == Decision(2)) == settles


# ------------------------------------------------------------------------------------------------- the unbeaten


def outcomes_of(claims: IntArray, rng: Random, classes: int) -> IntArray:
    """Who wins each pair's duel, ``[hypotheses, hypotheses]``: one of both, or anyone; circles included."""
    size, bias = len(claims), rng.random()
    found = np.array([[rng.randrange(NO_CLASS, classes + 1) for _ in range(size)] for _ in range(size)])
    for t in range(size):
        for u in range(t):
            found[t, u] = claims[rng.choice((t, u))] if rng.random() < bias else found[t, u]
            found[u, t] = found[t, u]
    return found


def sought(claims: IntArray, results: IntArray, expected: int, leads: Leads) -> tuple[int, list[frozenset[int]]]:
    """What the search for someone unbeaten finds, and the duels it took, round by round."""
    duels: list[frozenset[int]] = []
    asking = objection(claims, leads, expected)
    told: IntArray | None = None
    try:
        while True:
            pairs = asking.send(told)  # type: ignore[arg-type]
            duels += {frozenset(pair) for pair in pairs.tolist()}
            told = results[pairs[:, 0], pairs[:, 1]]
    except StopIteration as stop:
        return stop.value, duels


def test_whoever_is_unbeaten_is_found() -> None:
    """3,000 seeded pictures: the claim of an unbeaten hypothesis that objects where there is one, else none.

    Whatever the leads, which only say who duels first; nobody meets anyone twice, or one of the same claim.
    """
    rng, seen, most = Random(5), Counter[bool](), 0.0
    for _ in range(3000):
        size, classes = rng.randint(2, 12), rng.randint(2, 4)
        claims = np.array([rng.randrange(NO_CLASS, classes) for _ in range(size)])
        results, bare = outcomes_of(claims, rng, classes), rng.randrange(classes)
        if len(set(claims.tolist()) - {NO_CLASS}) < 2:
            continue
        expected = reference.recovered(claims.tolist(), lambda t, u, won=results: int(won[t, u]), "bare", bare)  # type: ignore[misc]
        leads = np.array([[rng.choice((0.0, 0.5, rng.random())) for _ in range(size)] for _ in range(2)])
        for order in leads:
            found, duels = sought(claims, results, bare, order)
            assert found == (expected.decision[0] if expected.basis == "unbeaten" else NO_CLASS)
            assert len(set(duels)) == len(duels)
            assert all(claims[t] != claims[u] and NO_CLASS not in claims[[t, u]] for t, u in duels)
            most = max(most, len(duels) / size)
        seen[expected.basis == "unbeaten"] += 1
    assert min(seen.values()) > 400
    assert most > 1.5, "the search is not idle"


def test_the_surest_who_agrees_meets_the_least_sure_who_objects_first() -> None:
    """It is the likeliest to strike it out: what it hides is what speaks for the other class."""
    claims = np.array([1, 1, 1, 0])
    results = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 0]])
    leads = np.array([0.1, 0.2, 0.9, 0.5])
    assert sought(claims, results, 1, leads)[0] == NO_CLASS
    assert next(objection(claims, leads, 1))[0].tolist() == [3, 2]


def test_a_last_resort_that_places_bear_out_costs_one_round() -> None:
    """Twelve places, one of which objects and loses: the eleven who agree need not win against anyone."""
    claims, leads = np.array([1] * 11 + [0]), np.linspace(0.1, 0.9, 12)
    results = np.where(claims[:, None] == 0, 0, claims)
    results[11, 10] = results[10, 11] = 1
    found, duels = sought(claims, results, 1, leads)
    assert (found, len(duels)) == (NO_CLASS, DUELS_AT_ONCE)


# ---------------------------------------------------------------------------------------------------- detection

DOUBTS = torch.tensor([[16, 0, 0], [0, 0, 16], [2, 0, 14], [4, 0, 12], [6, 0, 10]]).div(16)
"""Certain for the first class and for the last one; leads of 12, 8 and 4 sixteenths for the last one."""
DOUBTFUL = JuryDetection(thresholds=0.9)


def detected(cover: Cover, table: Table, otherwise: int = 1) -> tuple[Decision, set[tuple[int, int]]]:
    """A decision, and the masks that were asked, where all votes but those of the table are ``otherwise``."""
    decision, cast = play(cover, deciding(DOUBTFUL), DOUBTS, lambda one: table.get(one, otherwise))
    return decision, set(cast)


def test_two_settled_places_that_disagree_are_enough_for_an_alert() -> None:
    """No place is looked at closer then; a place that is not settled contradicts nobody."""
    cover = line_zoom(6, (2, [0, 2, 4]), (1, range(6)))
    coarse = {(0, 0), (1, 1), (2, 2)}
    assert detected(cover, {(0, 0): 0, (2, 2): 3}) == (Decision(2, alert=True), coarse)
    fine = {(7, 7), (8, 8)}
    assert detected(cover, {(2, 2): 3}) == (Decision(2), coarse | fine)
    assert detected(cover, {(0, 0): 0, (1, 1): 0, (2, 2): 3}, otherwise=0) == (Decision(0), coarse | fine)


def test_the_most_doubtful_places_are_looked_at_first() -> None:
    """Four at first, then eight: where these contradict each other, or a settled one, the others are left alone."""
    cover, coarse = line_zoom(12, (4, [0, 4, 8]), (1, range(12))), {(n, n) for n in range(3)}
    doubts = {(0, 0): 3, (1, 1): 2, (2, 2): 4}
    last_four, all_twelve = ({(n, n) for n in places} for places in (range(11, 15), range(3, 15)))
    everyone_else = {(n, n): 0 for n in range(3, 11)}
    assert detected(cover, {**doubts, (12, 12): 0}) == (Decision(2, alert=True), coarse | last_four)
    assert detected(cover, {**doubts, **everyone_else}) == (Decision(0, alert=True), coarse | all_twelve)
    assert detected(cover, {(0, 0): 3, (2, 2): 4, (11, 11): 0}) == (Decision(2, alert=True), coarse | last_four)
    assert detected(cover, doubts) == (Decision(2), coarse | all_twelve)


@pytest.mark.parametrize("pooled", [False, True], ids=["replaced", "pooled"])
def test_an_alert_takes_fewer_passes_than_a_look_at_everything(pooled: bool) -> None:
    """Seeded: no pass that a look at every place does not take; all of those where there is no alert."""
    rng, rule, fewer = Random(23), JuryDetection(thresholds=0.5, pooled=pooled), Counter[tuple[bool, bool]]()

    def looking_at_everything(votes: Votes) -> Asking[list[IntArray]]:
        return list((yield from rule.claims(votes)))

    for cover, _ in product(COVERS, range(80)):
        table = random_table(cover, rng.randrange(4), True, rng)
        palette, numbers = torch.tensor(list(table.values())), {one: n for n, one in enumerate(table)}
        decision, cast = play(cover, deciding(rule), palette, numbers.__getitem__)
        _, everything = play(cover, looking_at_everything, palette, numbers.__getitem__)
        assert set(cast) <= set(everything)
        fewer[decision.alert, len(cast) < len(everything)] += 1
    assert fewer[False, True] == 0
    assert fewer[False, False] > 20
    assert fewer[True, True] > 20


# -------------------------------------------------------------------------------------------------------- basis


@pytest.mark.parametrize(
    "rule", [JuryRecovery(), JuryRecovery(last_resort="majority"), PatchCleanser(last_resort="bare")], ids=repr
)
def test_an_answer_says_what_it_rests_on(rule: JuryRecovery | PatchCleanser) -> None:
    """All claims one class, and no duel; one that no other beats, against the last resort; the last resort.

    The last resort has the word where nobody is unbeaten, and where whoever is unbeaten says the same.
    """
    cover, resort = line_zoom(3, (1, [0, 1, 2])), rule.last_resort
    circle = {(0, 0): 0, (1, 1): 1, (2, 2): 2, (0, 1): 0, (1, 2): 1, (0, 2): 2, (-1, -1): 1}
    said = {"bare": 1, "majority": 0}[resort]
    borne_out = {(0, 1): said, (said, 2): said}
    tables: list[tuple[str, int, Table]] = [
        ("unanimous", 1, {(0, 0): 1, (1, 1): 1, (2, 2): 1}),
        ("unbeaten", 2, {**circle, (1, 2): 2}),
        (resort, said, circle),
        (resort, said, {**circle, **borne_out}),
    ]
    for basis, label, table in tables:
        decision, cast = play(cover, deciding(rule), HARD, table.__getitem__)
        assert (decision, decision.basis) == (Decision(label), basis)
        assert ((-1, -1) in cast) == (basis != "unanimous" and resort == "bare")
        assert (basis == "unanimous") == all(i == j for i, j in cast)
    assert {basis for basis, _, _ in tables} < set(BASES)


def test_a_silent_bare_picture_leaves_the_word_to_the_majority() -> None:
    """And where every vote is silent, there is no class, and an alert."""
    cover, rule = line_zoom(2, (1, [0, 1])), JuryRecovery()
    silent = len(HARD)
    palette = torch.cat([HARD, torch.zeros(1, 3)])
    for claims, expected in (((0, 1), Decision(0)), ((silent, silent), Decision(NO_CLASS, alert=True))):
        table = {(0, 0): claims[0], (1, 1): claims[1], (0, 1): 2, (-1, -1): silent}
        decision, _ = play(cover, deciding(rule), palette, table.__getitem__)
        assert (decision, decision.basis) == (expected, "majority")
        assert rule.guarantee is Guarantee.RECOVERY
