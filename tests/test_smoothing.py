"""Smoothing: every attack on small bands and blocks, the published count beside the exact one, odd strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import ceil
from random import Random

import numpy as np
import pytest
import reference_rules as reference
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from certmask.certificate import NO_CLASS, Decision
from certmask.covers import Cover, band_cover, block_cover, cover_from
from certmask.errors import CertmaskError, CoverError
from certmask.passes import Ballot
from certmask.rules import Rule, Smoothing
from certmask.rules.rule import answer
from certmask.rules.smoothing import hidden_by
from certmask.threat import Patch
from certmask.votes import BoolArray, Votes, VoteStore

torch.set_num_threads(1)

HARD = torch.eye(3)
SOFT = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5], [0.4, 0.35, 0.25], [0.0, 0.0, 0.0]])
"""Views that count for two classes from 0.5 on, for one, for none, and a silent one."""

BANDS = [
    band_cover((1, 4), (1, 1), band=1),
    band_cover((2, 5), (1, 1), band=1),
    band_cover((1, 6), (1, 1), band=2),
    band_cover((1, 5), (1, 2), band=1),
    band_cover((1, 13), (1, 1), band=2, stride=3),
]
"""The last one's stride does not divide the width: its last band goes on at the opposite border, beside the first."""

RULES = [Smoothing(theta, exact) for theta in (None, 0.5) for exact in (True, False)]


def votes_of(cover: Cover, views: Tensor) -> Votes:
    """The votes of a cover whose views say this, ``[views, classes]``; of blocks, row by row."""
    if cover.tiling != "blocks":
        return Votes.from_table(cover, views)
    doubles = torch.zeros(len(cover), len(cover), views.shape[1])
    for row, (i, j) in zip(views, product(*cover.grids), strict=True):
        doubles[i, j] = doubles[j, i] = row
    return Votes.from_table(cover, torch.zeros(len(cover), views.shape[1]), doubles)


def touched_by(cover: Cover) -> list[set[int]]:
    """The views that each place touches, counted pixel by pixel."""
    views = [(m,) for m in cover.masks] if cover.tiling != "blocks" else [
        (cover.masks[i], cover.masks[j]) for i, j in product(*cover.grids)
    ]  # fmt: skip
    shown: BoolArray = np.ones((len(views), *cover.image), dtype=bool)
    for seen, masks in zip(shown, views, strict=True):
        for mask in masks:
            for (top, bottom), (left, right) in product(mask.rows(cover.image), mask.columns(cover.image)):
                seen[top:bottom, left:right] = False
    for axis, side in enumerate(cover.patch.size, start=1):
        shown = np.asarray(sliding_window_view(shown, side, axis=axis).any(axis=-1))
    return [set(np.flatnonzero(place).tolist()) for place in shown.reshape(len(views), -1).T]


def attacked(views: Tensor, touched: set[int], palette: Tensor) -> Tensor:
    """All that a patch can make of the views it touches, ``[attacks, views, classes]``."""
    said = torch.tensor(list(product(range(len(palette)), repeat=len(touched))), dtype=torch.long)
    found = views.repeat(len(said), 1, 1)
    found[:, sorted(touched)] = palette[said]
    return found


def cast(cover: Cover, tables: Tensor) -> Votes:
    """The votes about many pictures at once, ``[pictures, views, classes]``."""
    ballot = Ballot(cover)
    votes = Votes(ballot, VoteStore(len(tables), ballot.passes, tables.shape[2]))
    sets = list(product(*cover.grids)) if cover.tiling == "blocks" else [(i, i) for i in range(len(cover))]
    votes.store.add(votes.ask(ballot.numbers(np.array(sets))[None]), tables.reshape(-1, tables.shape[2]))
    return votes


def decided(rule: Rule, cover: Cover, tables: Tensor) -> list[Decision]:
    """What the rule answers to many pictures at once, ``[pictures, views, classes]``."""
    votes = cast(cover, tables)
    return answer(rule.deciding(votes), votes)


@pytest.mark.parametrize(
    "cover", [*BANDS, band_cover(24, (5, 4), 6, 4), block_cover(6, 2, 2), block_cover(7, 2, 2, 3)], ids=str
)
def test_touched_views_are_counted_exactly(cover: Cover) -> None:
    """Whatever does not lie wholly under a view's masks is seen by it; every place belongs to a district."""
    hidden = hidden_by(cover)
    found = {frozenset(np.flatnonzero(~row).tolist()) for row in hidden}
    assert found == {frozenset(touched) for touched in touched_by(cover)}
    assert cover_from(cover.describe()) == cover
    assert cover.min_fold == cover.k


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("cover", BANDS, ids=str)
def test_every_attack_on_bands(cover: Cover, rule: Smoothing) -> None:
    """Every table of first classes, or of views that count for several and none: no certificate is broken.

    With the exact count, every table that is not certified can be broken by some attack.
    """
    palette = HARD if rule.theta is None else torch.cat([HARD[[0, 2]], SOFT[[0, 4]]])
    said, shape = list(product(range(len(palette)), repeat=len(cover))), (len(palette),) * len(cover)
    votes = cast(cover, palette[torch.tensor(said)])
    answers = answer(rule.deciding(votes), votes)
    seen: Counter[tuple[bool, bool]] = Counter()
    places = [set(touched) for touched in {frozenset(touched) for touched in touched_by(cover)}]
    for label in (0, 2):
        right = np.array([one == Decision(label) for one in answers]).reshape(shape)
        # an attack leads to any table that says the same in all views but the touched ones
        kept = [np.broadcast_to(right.all(axis=tuple(touched), keepdims=True), shape) for touched in places]
        proved = answer(rule.certifying(votes, np.full(len(said), label)), votes).tolist()
        for views, holds in zip(palette[torch.tensor(said)].tolist(), proved, strict=True):
            assert holds == reference.smoothing_certifies(views, places, rule.theta, label, rule.exact)
        seen.update(zip(proved, np.all(kept, axis=0).ravel().tolist(), strict=True))
    assert seen[True, True] > 0
    assert not seen[True, False], "a certificate is broken"
    if rule.exact and rule.theta is None:
        assert not seen[False, True], "a certificate is too careful"


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_sampled_attacks_on_blocks(rule: Smoothing) -> None:
    cover = block_cover(3, 1, 1)
    rng, palette, kept = Random(3), torch.cat([HARD, SOFT]), Counter[bool]()
    places = touched_by(cover)
    for _ in range(80):
        favourite = rng.randrange(3)
        views = palette[[favourite if rng.random() < 0.35 else rng.randrange(len(palette)) for _ in range(9)]]
        proved = rule.certify(votes_of(cover, views), favourite).holds
        assert proved == reference.smoothing_certifies(views.tolist(), places, rule.theta, favourite, rule.exact)
        (said,) = decided(rule, cover, views[None])
        label, alert = reference.smoothing(views.tolist(), rule.theta)
        assert said.alert == alert
        assert alert or said.label == label
        kept[proved] += 1
        if proved:
            tables = torch.cat([attacked(views, touched, palette) for touched in places])
            assert set(decided(rule, cover, tables)) == {Decision(favourite)}
    assert min(kept.values()) > 5


def test_the_exact_count_never_certifies_less_and_sometimes_more() -> None:
    """At the same views: the published test knows the number of touched views alone."""
    cover, rng, more = BANDS[-1], Random(0), 0
    for _ in range(300):
        views = HARD[[rng.choice((0, 0, 0, 1, 2)) for _ in range(len(cover))]]
        exact, published = (Smoothing(exact=exact).certify(votes_of(cover, views), 0).holds for exact in (True, False))
        assert exact or not published
        more += exact and not published
    assert more


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("theta", [None, 0.5])
def test_a_margin_holds_off_all_that_it_allows(theta: float | None, margin: float) -> None:
    """Whatever moves by half the margin, on the clean picture and beside the attack, changes no certified answer."""
    cover, rng, held = band_cover((1, 6), (1, 1), band=1), Random(7), 0
    rule, places = Smoothing(theta, margin=margin), touched_by(cover)
    for _ in range(400):
        rows = [[rng.choice((0.6, 0.55, 0.51, 0.5, 0.45)), rng.choice((0.3, 0.4, 0.45, 0.5)), 0.0] for _ in range(6)]
        views = torch.tensor(rows)
        if not rule.certify(votes_of(cover, views), 0).holds:
            continue
        held += 1
        attacks = []
        for touched in places:
            moved = views + (torch.rand(views.shape) - 0.5) * margin * (1 - 1e-3)
            moved[:, 0] = views[:, 0] - margin / 2 * (1 - 1e-3)
            moved[:, 1] = views[:, 1] + margin / 2 * (1 - 1e-3)
            moved[sorted(touched)] = torch.tensor([0.0, 1.0, 0.0])
            attacks.append(moved.clamp(0, 1))
        assert {said.label for said in decided(rule, cover, torch.stack(attacks))} == {0}
    assert held > 5


def test_a_stride_that_does_not_divide_touches_more_than_the_published_count() -> None:
    """Smoothed ViT's ⌈(p + b − 1)/stride⌉ is too small: 224 columns, bands of 19, a patch of 32."""
    for stride, published, true in ((10, 5, 6), (5, 10, 11)):
        cover = band_cover(224, 32, band=19, stride=stride)
        assert ceil((32 + 19 - 1) / stride) == published
        assert (~hidden_by(cover)).sum(axis=1).max() == true
        assert max(map(len, touched_by(cover))) == true
    for stride in (1, 2, 4, 7, 8):
        touched = (~hidden_by(band_cover(224, 32, band=19, stride=stride))).sum(axis=1).max()
        assert touched == ceil(50 / stride), "where it divides the width, the published count is right"


def published_gap(views: Sequence[int], gap: int) -> bool:
    """Smoothed ViT's certificate for class 0: it leads by at least its gap."""
    counts = Counter(views)
    return counts[0] - max(counts[1], counts[2]) >= gap


def test_the_published_gap_is_broken_by_an_attack() -> None:
    """A small case of the same mistake: 7 columns, bands of 2 in steps of 3, a patch of 1 touches 2 bands, not 1."""
    cover = band_cover((1, 7), (1, 1), band=2, stride=3)
    gap = 2 * ceil((1 + 2 - 1) / 3) + 1
    assert max(map(len, touched_by(cover))) == 2 > ceil((1 + 2 - 1) / 3)
    clean = [0] * len(cover)
    assert published_gap(clean, gap)
    views = HARD[clean]
    with pytest.raises(CoverError, match="expected a cover most of whose views hide any one place"):
        Smoothing().certify(votes_of(cover, views), 0)
    tables = torch.cat([attacked(views, touched, HARD) for touched in touched_by(cover)])
    assert any(said.label != 0 for said in decided(Smoothing(), cover, tables))


def test_nobody_who_counts_is_an_alert() -> None:
    cover = band_cover((1, 4), (1, 1), band=1)
    silent = torch.zeros(4, 3)
    assert Smoothing().decide(votes_of(cover, silent)) == Decision(NO_CLASS, alert=True)
    assert Smoothing(0.9).decide(votes_of(cover, SOFT[[2, 2, 3, 2]])) == Decision(2, alert=True)


def test_a_margin_holds_beside_a_theta_that_votes_do_not_reach_exactly() -> None:
    """0.2625 in float32 is below 0.2 and half the margin: a vote of that much falls below 0.2 when it moves."""
    cover, margin = band_cover((1, 6), (1, 1), band=1), 0.125
    vote = float(np.float32(0.2625))
    clean, moved = (torch.tensor([0.0, own]).repeat(len(cover), 1) for own in (vote, vote - margin / 2))
    assert Smoothing(0.2).decide(Votes.from_table(cover, moved)).alert
    assert not Smoothing(0.2, margin=margin).certify(Votes.from_table(cover, clean), 1).holds


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Smoothing(0.0), "expected theta above 0 and at most 1, or None, got 0.0"),
        (lambda: Smoothing(1.5), "expected theta above 0"),
        (lambda: Smoothing(True), "expected theta above 0"),
        (
            lambda: Smoothing(exact=1),  # type: ignore[arg-type]
            "expected exact to be True or False, got 1",
        ),
        (lambda: band_cover(32, 5, band=32), "expected a band narrower than the image, 32 px, got 32"),
        (lambda: band_cover(32, 5, band=0), "expected band"),
        (lambda: band_cover(32, 5, stride=40), "expected a stride of at most 32 px, got 40"),
        (lambda: band_cover(32, 31, band=4), "expected bands that leave every place"),
        (lambda: band_cover(32, Patch(40, 4)), "expected"),
    ],
)
def test_nonsense(make: object, words: str) -> None:
    with pytest.raises(CertmaskError, match=words):
        make()  # type: ignore[operator]
