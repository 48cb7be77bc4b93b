"""Guarantees by enumeration: small covers, clean tables that are certified, and every attack that can reach a rule.

The attacker here may turn every pass without a mask of the attacked district's jury. That is more than a real patch
can do (two masks may hide it between them), so what holds here holds there. Where a test shows that an attack *exists*
it uses patches of one pixel, which two masks cannot hide between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations, permutations, product
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from game import (
    HARD,
    QUIET,
    SOFT,
    Table,
    anything,
    attacker,
    certified,
    certifying,
    deciding,
    every_attack,
    families,
    holds,
    keeps,
    line_covers,
    plays,
    plays_of_all,
    shuffled,
    some_attacks,
    total,
)
from members import ALIGNED, COUNTING, DETECTING, ON_ANY_COVER, PROVED, PROVED_RULES, told_apart
from tables import judges_of, places_of
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
)
from certmask.geometry import IntArray, Mask
from certmask.rules import (
    AGGREGATES,
    RULES,
    Aggregate,
    HiCert,
    JuryDetection,
    JuryRecovery,
    LabelMajority,
    MeanProbability,
    MinorityReports,
    PatchCleanser,
    Published,
    Rule,
)
from certmask.rules.rule import Asking
from certmask.threat import Patch
from certmask.votes import BoolArray, Votes

torch.set_num_threads(1)


# ------------------------------------------------------------------------------- certified means unbreakable


def test_every_rule_that_promises_something_is_enumerated() -> None:
    """Nothing in the table of rules escapes the tests below, or those of bands, and every parameter value occurs."""
    assert {rule.name for rule in PROVED_RULES} == {rule.name for rule in RULES.values() if rule.guarantee in PROVED}
    assert {rule.name for rule in ON_ANY_COVER + ALIGNED + COUNTING} == {rule.name for rule in PROVED_RULES}
    assert len(PROVED_RULES) >= 3 + 2 + 12 + 4


def test_line_covers_are_all_there_are() -> None:
    """Longer images add no new clipped structure, so the small ones are complete (wrapped ones: up to length 8)."""
    for masks, short, long in ((2, 5, 8), (3, 6, 8), (4, 8, 10)):
        clipped, longer = ([c for c in line_covers(masks, n) if not c.masks[0].wraps] for n in (short, long))
        assert len(clipped) == len(longer) >= masks
    assert {cover.min_jury for cover in line_covers(4, 10)} == {1, 2, 3}


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_every_attack_on_up_to_three_masks(rule: Rule) -> None:
    """Exhaustive: every structure of 1 to 3 masks on a line, every certified table, district and attack.

    Labels: the class that wins every tie and the class that loses every tie.
    """
    covers = [cover for masks in (1, 2, 3) for cover in line_covers(masks, 8)]
    seen = total(every_attack(cover, rule, HARD, labels=(0, 2)) for cover in covers)
    assert seen["covers"] >= 27
    assert seen["tables"] >= 2 * seen["covers"], "unanimous tables, at least, are certified"
    assert seen["attacks"] > 900


@pytest.mark.parametrize("rule", DETECTING, ids=repr)
def test_every_attack_on_four_masks_in_one_round(rule: Rule) -> None:
    """30 structures of 4 masks (seeded); exhaustive in tables and attacks for the class that loses every tie."""
    covers = Random(4).sample(line_covers(4, 10), 30)
    seen = total(every_attack(cover, rule, HARD, labels=(2,)) for cover in covers)
    assert seen["attacks"] > 1000


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_every_attack_on_a_two_by_two_grid(rule: Rule) -> None:
    """Exhaustive in two dimensions: four juries of one mask, for the class that loses every tie."""
    cover = minimal_cover((2, 2), Patch(1, 1), 1)
    assert families(cover) == {(0,), (1,), (2,), (3,)}
    assert every_attack(cover, rule, HARD, labels=(2,))["attacks"] > 100


def small_covers(rule: Rule) -> list[Cover]:
    """All structures of 2 masks and, where there is one round, 5 (seeded) of those of 3 masks."""
    covers = list(line_covers(2, 8))
    return covers + Random(5).sample(line_covers(3, 8), 5) if rule in DETECTING else covers


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_every_attack_with_soft_outputs(rule: Rule) -> None:
    """Ties and confidences exactly at the threshold, for the class that loses every tie; exhaustive."""
    seen = total(every_attack(cover, rule, SOFT, labels=(2,)) for cover in small_covers(rule))
    assert seen["attacks"] > 150


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_every_attack_with_silent_votes(rule: Rule) -> None:
    """A vote without numbers, on the clean picture or under attack, for the class that wins every tie; exhaustive."""
    seen = total(every_attack(cover, rule, QUIET, labels=(0,)) for cover in small_covers(rule))
    assert seen["attacks"] > 20


def flat_covers() -> list[Cover]:
    """Small covers in two dimensions, and the library's own tilings on a line."""
    one, two = Patch(1, 1), Patch(2, 2)
    return [
        minimal_cover((2, 2), one, 1),
        minimal_cover((3, 3), one, 2),
        minimal_cover((4, 2), two, (3, 2), (2, 1)),
        patchcleanser_cover((4, 4), two, 2),
        spread_cover((3, 2), one, (2, 2), (2, 1)),
        spread_cover((3, 3), one, 2, 2),
        spread_cover((1, 7), Patch(1, 2), (1, 4), (1, 3)),
        replicated_cover((4, 4), two, 4, 2),
        offset_cover((3, 3), one, 3),
        offset_cover((3, 3), one, 3, (2, 1)),
    ]


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_sampled_attacks_on_larger_covers(rule: Rule) -> None:
    """Seeded sample: 4 and 5 masks, two dimensions, folds 1 to 4; tables at the edge of the certificate."""
    rng = Random(6)
    covers = [shuffled(cover, rng) for cover in rng.sample(line_covers(4, 10), 16) + rng.sample(line_covers(5, 8), 24)]
    assert {1, 2, 3} <= {cover.min_jury for cover in covers + flat_covers()}
    seen: Counter[str] = Counter()
    for cover in covers + flat_covers():
        palette, label = rng.choice([HARD, SOFT]), rng.randrange(3)
        seen += some_attacks(cover, rule, palette, label, 6, rng)
    assert seen["tables"] == seen["covers"] == 50, "unanimity is certified on every cover"
    assert seen["attacks"] > 1000


def split_covers(masks: int, longest: int) -> list[Cover]:
    """Covers on a line, with each way to split their masks into two grids that cover every location on their own."""
    found = []
    for cover in line_covers(masks, longest):
        juries = families(cover)
        for size in range(1, masks // 2 + 1):
            for one in combinations(range(masks), size):
                grids = one, tuple(i for i in range(masks) if i not in one)
                if all(set(jury) & set(grid) for jury in juries for grid in grids):
                    found.append(replace(cover, grids=grids))
    return found


def tiled_covers() -> list[Cover]:
    """The library's own covers that are made of 2 to 4 different grids, with up to 9 masks."""
    found: dict[Any, Cover] = {}
    for length, patch, fold in product(range(3, 8), (1, 2), (2, 3)):
        for mask, make in product(range(patch + 1, length), (minimal_cover, spread_cover)):
            if make is spread_cover and fold > mask - patch + 1:
                continue
            cover = make((1, length), Patch(1, patch), (1, mask), (1, fold))
            if len(cover) <= 7 and len(cover.grids) > 1:
                found.setdefault((frozenset(families(cover)), frozenset(cover.grids)), cover)
    one = Patch(1, 1)
    return [*found.values(), spread_cover((3, 2), one, (2, 2), (2, 1)), spread_cover((3, 3), one, 2, 2)]


@pytest.mark.parametrize("rule", told_apart(ALIGNED), ids=repr)
def test_every_attack_with_aligned_pairs(rule: Rule) -> None:
    """Exhaustive on 3 masks and on 8 (seeded) structures of 4 masks, for the class that loses every tie."""
    covers = split_covers(3, 8) + Random(7).sample(split_covers(4, 10), 8)
    seen = total(every_attack(cover, rule, HARD, labels=(2,)) for cover in covers)
    assert seen["attacks"] > 500


@pytest.mark.parametrize("rule", told_apart(ALIGNED), ids=repr)
def test_sampled_attacks_with_aligned_pairs(rule: Rule) -> None:
    """Seeded sample: the library's own multi-grid covers and 5 masks in two grids, folds 2 to 4."""
    rng = Random(8)
    covers = tiled_covers() + rng.sample(split_covers(5, 8), 16)
    assert {cover.min_jury for cover in covers} >= {2, 3, 4}
    seen = total(some_attacks(cover, rule, rng.choice([HARD, SOFT]), rng.randrange(3), 6, rng) for cover in covers)
    assert seen["tables"] == seen["covers"] >= 25
    assert seen["attacks"] > 500


def test_a_pair_verdict_does_not_depend_on_who_challenges() -> None:
    """``R(t, u)`` is symmetric to the last bit: a certificate found in one order holds for a duel in the other.

    Juries {0, 2}, {0, 3}, {1, 3}. Over the four common passes of the first and the last district classes 0 and 1 have
    the same sum up to rounding: tiny + tiny + quarter is more than a quarter, tiny + quarter + tiny is not.
    """
    quarter, tiny, classes = 0.25, 2.0**-55, 32
    palette = torch.zeros(6, classes)
    palette[0, 0] = palette[1, 1] = 1.0
    for row, (zero, one) in enumerate([(quarter, tiny), (0.0, tiny), (0.0, quarter), (0.0, 0.0)], start=2):
        palette[row] = (1 - zero - one) / (classes - 2)
        palette[row, 0], palette[row, 1] = zero, one
    cover = minimal_cover((1, 3), Patch(1, 1), (1, 2), (1, 2))
    assert families(cover) == {(0, 2), (0, 3), (1, 3)}
    rule, label, broken = JuryRecovery(), 1, 0
    for order in permutations([(0, 1), (0, 3), (1, 2), (2, 3)]):
        clean = {(i, j): 1 for j in range(4) for i in range(j + 1)}
        clean.update(zip(order, range(2, 6), strict=True))
        if not holds(cover, rule, label, palette, clean):
            continue
        for district in range(len(cover.districts)):
            # the attacker of this test is content with outputs that are certain
            jury = set(cover.districts.jury(district))
            options = lambda one, jury=jury, clean=clean: (0, 1) if jury.isdisjoint(one) else (clean[one],)  # noqa: E731
            runs = plays(cover, deciding(rule), palette, options)
            broken += sum(not keeps(rule.guarantee, decision, label) for decision, _ in runs)
    assert broken == 0


# --------------------------------------------------------------------------- the enumeration can find mistakes


class AtLeastTheThreshold(MinorityReports):
    """Certifies on "at least the threshold" although the alert needs "more than": the known mistake."""

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads = votes.heads(singles)
        speaks = (heads.labels == labels[:, None]) & (heads.confidence >= self.threshold)
        return np.array([all(any(row[i] for i in jury) for jury in families(votes.cover)) for row in speaks])


class FirstRoundOnly(JuryRecovery):
    """Promises recovery on the strength of the first round."""

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        return (yield from JuryDetection(self.aggregate).certifying(votes, labels))


class SingleMasksOnly(PatchCleanser):
    """Promises recovery without looking at pairs."""

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        return (yield from Published().certifying(votes, labels))


class PublishedAsRecovery(Published):
    """The published rule, taken at its word."""

    guarantee = Guarantee.RECOVERY


class PublishedAsDetection(Published):
    """The published rule never raises an alert, so it does not even detect."""

    guarantee = Guarantee.DETECTION


class MostDistricts(JuryDetection):
    """Certifies when a single district is right."""

    def certifying(self, votes: Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return np.asarray((votes.heads(singles).labels == labels[:, None]).any(axis=1))


@pytest.mark.parametrize(
    "rule",
    [
        AtLeastTheThreshold(0.5),
        FirstRoundOnly(),
        SingleMasksOnly(),
        SingleMasksOnly(challenger=True),
        PublishedAsRecovery(),
        PublishedAsDetection(),
        MostDistricts(),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_unsound_rules_are_caught(rule: Rule) -> None:
    """The same enumeration breaks rules whose certificates prove too little."""
    palettes = {2: SOFT, 3: HARD}
    attacks = (every_attack(c, rule, palettes[len(c)], (2,)) for c in line_covers(2, 8) + line_covers(3, 8))
    with pytest.raises(pytest.fail.Exception, match="is certified for class 2 but answers"):
        total(attacks)


# ------------------------------------------------------------------------------------------------- converses


def breakable(cover: Cover, rule: Rule, label: int, clean: Table, palette: Tensor) -> bool:
    """Whether some attack in some district breaks the guarantee. One-pixel patches only: all of it is in reach."""
    assert cover.patch == Patch(1, 1)
    players = [attacker(cover, district, clean, palette) for district in range(len(cover.districts))]
    runs = plays_of_all(cover, deciding(rule), palette, players)
    return any(not keeps(rule.guarantee, decision, label) for _, (decision, _) in runs)


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
@pytest.mark.parametrize("masks", [2, 3])
def test_certificates_are_exact_where_every_jury_is_one_mask(rule: Rule, masks: int) -> None:
    """Every clean table that is not certified can be broken: on these covers no certificate is too careful."""
    cover = minimal_cover((1, masks), Patch(1, 1), 1)
    assert families(cover) == {(i,) for i in range(masks)}
    palette = SOFT[[0, 1, 2, 8]] if isinstance(rule, (MinorityReports, HiCert)) else HARD
    ask = certifying(rule, 2)
    outcomes = Counter(
        (proved, breakable(cover, rule, 2, clean, palette))
        for proved, clean in plays(cover, ask, palette, anything(palette))
    )
    assert outcomes[True, False] >= 1
    assert outcomes[False, True] >= 8
    assert outcomes[True, True] == outcomes[False, False] == 0


def failing(cover: Cover, table: Table, rule: JuryDetection | JuryRecovery) -> tuple[int, int]:
    """How many district verdicts and how many pair verdicts are not class 2, by the reference."""
    rows = {one: HARD[vote].tolist() for one, vote in table.items()}
    leads = judges_of(rule, cover).leads(places_of(cover, "all"), rows, 2, 0.0)
    wrong = Counter(len(about) for about, own in leads.items() if any(lead <= 0 for lead, _ in own))
    return wrong[1], wrong[2]


@pytest.mark.parametrize("aggregate", [MeanProbability(), LabelMajority()], ids=lambda a: a.name)
@pytest.mark.parametrize("wrong", [(1, 0), (0, 1)], ids=["one district", "one pair"])
def test_one_wrong_verdict_can_be_enough(aggregate: Aggregate, wrong: tuple[int, int]) -> None:
    """Juries {0,1}, {1,2}, {2,3}: a table is one verdict short of a certificate, and an attack breaks it."""
    cover = custom_cover((1, 3), Patch(1, 1), [Mask(0, left, 1, 2) for left in (-1, 0, 1, 2)])
    assert families(cover) == {(0, 1), (1, 2), (2, 3)}
    rule: JuryDetection | JuryRecovery = JuryRecovery(aggregate=aggregate) if wrong[1] else JuryDetection(aggregate)
    pairs = [(i, j) for i in range(4) for j in range(i, 4)]
    varied = [one for one in pairs if (one[0] != one[1]) == bool(wrong[1])]
    tables = [
        {**dict.fromkeys(pairs, 2), **dict(zip(varied, picks, strict=True))}
        for picks in product((0, 2), repeat=len(varied))
    ]
    short = [table for table in tables if failing(cover, table, rule) == wrong]
    assert short
    assert not any(holds(cover, rule, 2, HARD, table) for table in short)
    assert any(breakable(cover, rule, 2, table, HARD) for table in short)


def test_a_jury_of_three_forgives_one_wrong_mask() -> None:
    """Certificates of jury rules are not just unanimity: here every mask may be the wrong one."""
    cover = spread_cover((1, 7), Patch(1, 1), (1, 3), (1, 3))
    assert cover.min_jury == 3
    everyone = {(i, j): 2 for j in range(len(cover)) for i in range(j + 1)}
    for wrong in range(len(cover)):
        clean = {**everyone, (wrong, wrong): 0}
        juries: list[Rule] = [JuryDetection(), JuryRecovery(), JuryRecovery("aligned"), MinorityReports()]
        everybody: list[Rule] = [PatchCleanser(), Published()]
        assert all(holds(cover, rule, 2, HARD, clean) for rule in juries)
        assert not any(holds(cover, rule, 2, HARD, clean) for rule in everybody)


# ----------------------------------------------------------------------------------------------------- margin

UNSURE = torch.tensor([[14, 1, 1], [1, 14, 1], [1, 1, 14], [8, 4, 4], [4, 8, 4], [4, 4, 8]]).div(16)
"""Outputs that lead by 13/16, and outputs that lead by exactly 1/4."""


def blurred(palette: Tensor, label: int, margin: float, logarithms: bool) -> Tensor:
    """The palette, then the palette with every row moved by half the margin from the label, and as much to class 0."""
    against = torch.zeros(palette.shape[1])
    against[0], against[label] = margin / 2, -margin / 2
    return torch.cat([palette, palette * against.exp() if logarithms else palette + against])


def blurring_attacks(cover: Cover, rule: Rule, margin: float) -> Iterator[tuple[Decision, Table]]:
    """All attacks on certified tables in which also the jury's own votes may come out blurred; class 2 is true."""
    logarithms = "log" in str(rule.describe().get("aggregate"))
    palette = blurred(UNSURE, 2, margin, logarithms)
    for clean in certified(cover, rule, 2, UNSURE):
        for district in range(len(cover.districts)):
            sharp = attacker(cover, district, clean, UNSURE)

            def options(one: tuple[int, int], sharp: Any = sharp) -> Sequence[int]:
                votes: Sequence[int] = sharp(one)
                return (votes[0], votes[0] + len(UNSURE)) if len(votes) == 1 else votes

            yield from plays(cover, deciding(rule), palette, options)


@pytest.mark.parametrize("rule", told_apart(ON_ANY_COVER), ids=repr)
def test_a_margin_absorbs_noise(rule: Rule) -> None:
    """With margin 1/4 no noise of up to 1/8 per probability breaks a certificate; without one, large noise does.

    Exhaustive on 2 masks with juries {0}, {0,1}, {1}; noise on mean log-probability is in units of the logarithm.
    """
    cover = custom_cover((1, 3), Patch(1, 1), [Mask(0, 0, 1, 2), Mask(0, 1, 1, 2)])
    assert families(cover) == {(0,), (0, 1), (1,)}
    careful = copy(rule)
    careful.margin = 0.25
    decisions = [decision for decision, _ in blurring_attacks(cover, careful, 0.25)]
    assert len(decisions) > 10
    assert all(keeps(rule.guarantee, decision, 2) for decision in decisions)
    noise = 3.0 if "log" in str(rule.describe().get("aggregate")) else 0.9
    assert not all(keeps(rule.guarantee, decision, 2) for decision, _ in blurring_attacks(cover, rule, noise))


# ----------------------------------------------------------------------------------------- the published rule


def broken_published(jury: int, free: int, k: int, label: int) -> bool:
    """When a unanimous image is lost: docs/guarantees.md."""
    return free >= k + 1 or (free == k and (jury > k or label > 0))


def test_published_rule_is_broken_as_soon_as_k_plus_one_masks_are_outside_the_jury() -> None:
    """Exhaustive on 90 structures of 3 to 5 masks: when exactly some attack on a unanimous image wins."""
    rule, seen = Published(), Counter[bool]()
    for line in line_covers(3, 8) + line_covers(4, 10)[::3] + line_covers(5, 8)[::15]:
        for k in range(1, line.min_jury + 1):
            cover = custom_cover(line.image, line.patch, line.masks, (1, k))
            for label, jury in product(range(3), families(cover)):
                clean = {(i, i): label for i in range(len(cover))}
                assert holds(cover, rule, label, HARD, clean)
                district = next(d for d in range(len(cover.districts)) if cover.districts.jury(d) == jury)
                runs = plays(cover, deciding(rule), HARD, attacker(cover, district, clean, HARD))
                lost = any(decision.label != label for decision, _ in runs)
                assert lost == broken_published(len(jury), len(cover) - len(jury), k, label), (cover, jury, label)
                seen[lost] += 1
    assert min(seen[True], seen[False]) > 50


@pytest.mark.parametrize("fold", [(1, 1), (2, 3)], ids=["k=1", "k=6"])
def test_published_rule_loses_to_one_vote_left_alone(fold: tuple[int, int]) -> None:
    """Offset Tiling: leave one vote outside the jury alone, turn the rest; a "certified" image is answered wrongly."""
    cover, rule = offset_cover((8, 8), Patch(2, 2), 4, fold), Published()
    votes = HARD[[2] * len(cover)]
    certificate = rule.certify(Votes.from_table(cover, votes), 2)
    assert certificate.holds
    assert certificate.guarantee is Guarantee.PUBLISHED
    assert "no guarantee against an adaptive attacker" in certificate.sentence
    assert "no guarantee against an adaptive attacker" in certificate.describe()["sentence"]
    assert "certified" not in certificate.sentence
    for jury, spared in product(families(cover), range(len(cover))):
        if spared not in jury:
            attacked = HARD[[2 if i in jury or i == spared else 0 for i in range(len(cover))]]
            assert rule.decide(Votes.from_table(cover, attacked)) == Decision(0)
    for aggregate in AGGREGATES.values():  # the same votes are detected
        certificate = JuryDetection(aggregate()).certify(Votes.from_table(cover, votes), 2)
        assert certificate.holds
        assert "certified detection" in certificate.sentence


def two_pixels(copies: Sequence[int], k: int) -> Cover:
    """Up to three masks on two pixels, placed as often as told: one covers both pixels, one the left, one the right."""
    masks = Mask(0, 0, 1, 2), Mask(0, 0, 1, 1), Mask(0, 1, 1, 1)
    cover = custom_cover(
        (1, 2), Patch(1, 1), [m for m, times in zip(masks, copies, strict=False) for _ in range(times)], (1, k)
    )
    assert cover.copies == tuple(times for times in copies if times)
    return cover


def test_sparing_one_vote_wins_under_the_stated_condition() -> None:
    """All jury sizes and folds on up to 12 masks: one spared vote wins iff F−1 = k, F−1 > J+1, or a tie is won."""
    rule, outcomes = Published(), Counter[bool]()
    for masks, jury, k, (label, other) in product(range(2, 13), range(1, 12), range(1, 5), permutations(range(2))):
        if k <= jury < masks:
            free = masks - jury
            cover = two_pixels([jury + 1, free - 1], k)
            lost = rule.decide(Votes.from_table(cover, HARD[[label, other][: len(cover)]])).label == other
            assert lost == (free - 1 == k or free - 1 > jury + 1 or (free - 1 == jury + 1 and other < label))
            outcomes[lost] += 1
    assert min(outcomes.values()) > 50


def test_published_rule_counts_copies_but_replication_changes_nothing() -> None:
    """All tables on 4 masks: Replicated Tiling with k=6 answers and tests as with k=1, "exactly k" included.

    Copies do count: where some masks are placed twice and others once, the placed masks decide.
    """
    once, six = (replicated_cover((4, 4), Patch(2, 2), 4, fold) for fold in (1, (2, 3)))
    assert (len(once), once.placed, once.k) == (4, 4, 1)
    assert (len(six), six.placed, six.k) == (4, 24, 6)
    rule = Published()
    for picks in product(range(3), repeat=4):
        one, many = (Votes.from_table(cover, HARD[list(picks)]) for cover in (once, six))
        assert rule.decide(one) == rule.decide(many)
        for label in range(3):
            assert rule.certify(one, label).holds == rule.certify(many, label).holds == (set(picks) == {label})
    uneven = two_pixels([2, 2, 1], 2)
    assert rule.decide(Votes.from_table(uneven, HARD[[1, 0, 2]])) == Decision(0), "0 and 1 have exactly two each"
    assert rule.decide(Votes.from_table(uneven, HARD[[1, 2, 2]])) == Decision(1), "1 has exactly two, 2 has three"
    assert rule.decide(Votes.from_table(uneven, HARD[[1, 1, 0]])) == Decision(1), "four against one"


@pytest.mark.parametrize(
    ("k", "placed", "answer"),
    [
        (2, {2: 4}, 2),  # unanimous, although nobody has exactly k
        (2, {2: 2}, 2),
        (2, {2: 3, 0: 1}, 2),  # nobody has exactly k: majority
        (2, {2: 2, 0: 1, 1: 1}, 2),  # exactly k
        (2, {2: 2, 1: 2}, 1),  # two classes with exactly k: the smallest
        (2, {2: 3, 1: 2}, 1),  # exactly k wins over the majority
        (2, {2: 4, 0: 3, 1: 2}, 1),  # and over both others
        (1, {2: 2, 1: 2}, 1),  # majority tie: the smallest
        (1, {2: 2, 1: 1, 0: 1}, 0),  # two classes with exactly k: the smallest
        (3, {2: 4, 0: 4}, 0),  # nobody has exactly k: tie
    ],
)
def test_published_rule_ties(k: int, placed: dict[int, int], answer: int) -> None:
    """Ties go to the smallest class, among classes with exactly k votes as in the majority."""
    cover = two_pixels(list(placed.values()), k)
    assert Published().decide(Votes.from_table(cover, HARD[list(placed)])) == Decision(answer)


# ------------------------------------------------------------------------------------ one round cannot recover


def first_round(votes: Votes) -> Asking[list[tuple[int, ...]]]:
    """The labels of all single masks: all that a rule of one round can see."""
    singles = votes.ballot.singles[None]
    yield votes.ask(singles)
    return [tuple(labels) for labels in votes.heads(singles).labels.tolist()]


def reachable(cover: Cover, district: int, label: int, classes: int) -> set[tuple[int, ...]]:
    """All first rounds that a patch in the district can make of an image that is unanimous for the label."""
    palette = torch.eye(classes)
    clean = {(i, i): label for i in range(len(cover))}
    return {seen for seen, _ in plays(cover, first_round, palette, attacker(cover, district, clean, palette))}


def disjoint(cover: Cover) -> list[tuple[int, int]]:
    """Pairs of districts whose juries share no mask."""
    juries = [set(cover.districts.jury(d)) for d in range(len(cover.districts))]
    return [(t, u) for t, u in permutations(range(len(juries)), 2) if juries[t].isdisjoint(juries[u])]


def test_the_same_first_round_comes_from_two_classes() -> None:
    """Whenever two juries are disjoint, one vote vector is reachable from unanimous images of different classes."""
    found = 0
    for cover in line_covers(2, 8) + line_covers(3, 8) + line_covers(4, 10)[::8]:
        pairs = disjoint(cover)
        for t, u in product(range(len(cover.districts)), repeat=2):
            both = reachable(cover, t, 0, 2) & reachable(cover, u, 1, 2)
            assert bool(both) == ((t, u) in pairs)
            found += bool(both)
    assert found > 50


def test_no_function_of_one_round_recovers() -> None:
    """All functions from votes to classes, 2^4 and 2^8 of them: one recovers iff no two juries are disjoint."""
    found = Counter[bool]()
    for cover in line_covers(2, 8) + line_covers(3, 8):
        vectors = list(product(range(2), repeat=len(cover)))
        must = [(v, y) for y in range(2) for t in range(len(cover.districts)) for v in reachable(cover, t, y, 2)]
        functions = (dict(zip(vectors, f, strict=True)) for f in product(range(2), repeat=len(vectors)))
        recovering = sum(all(function[vector] == label for vector, label in must) for function in functions)
        assert (recovering > 0) == (not disjoint(cover)), cover
        found[recovering > 0] += 1
    assert found[False] > 10, "the impossibility was met"
    assert found[True] > 0, "wrapped masks can make all juries overlap: then one round can recover"


def test_one_round_can_detect() -> None:
    """With a third value, alert, some of the 3^4 functions of two masks detect, and each says yes to unanimity."""
    cover = minimal_cover((1, 2), Patch(1, 1), 1)
    vectors = list(product(range(2), repeat=2))
    must = [(v, y) for y in range(2) for t in range(2) for v in reachable(cover, t, y, 2)]
    detecting = [
        function
        for f in product((0, 1, None), repeat=4)
        for function in [dict(zip(vectors, f, strict=True))]
        if all(function[vector] in (label, None) for vector, label in must)
    ]
    useful = [f for f in detecting if f[0, 0] == 0 and f[1, 1] == 1]
    assert useful == [{(0, 0): 0, (0, 1): None, (1, 0): None, (1, 1): 1}]


def test_masks_that_do_not_wrap_leave_disjoint_juries() -> None:
    """If no single mask covers every location, the first and the last location have no mask in common."""
    covers = [c for masks, n in ((2, 8), (3, 8), (4, 10), (5, 8)) for c in line_covers(masks, n)]
    clipped = [c for c in covers if not c.masks[0].wraps and c.mask[1] < c.image[1]]
    assert len(clipped) > 100
    assert all(disjoint(cover) for cover in clipped)
