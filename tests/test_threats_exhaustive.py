"""Several patches, rectangles of any shape, patches of unknown size, by enumeration: no certificate is ever broken.

An attack is a set of rectangles of pixels, wherever the threat allows them. A pass keeps its clean vote if each of them
lies inside one of its masks, pixel by pixel; all others are free, those that decide whether to look closer included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import combinations, combinations_with_replacement, product
from random import Random

import numpy as np
import pytest
import torch
from game import (
    GATED,
    HARD,
    LEADS,
    QUIET,
    SOFT,
    Ask,
    Options,
    Pass,
    Table,
    anything,
    brittle,
    deciding,
    keeps,
    line_zoom,
    play,
    plays,
    random_plays,
)
from tables import votes_under
from torch import Tensor

from certmask.certificate import NO_CLASS, Decision, Guarantee
from certmask.covers import Cover, custom_cover, joined_cover, stacked_cover, zoom_cover
from certmask.covers.costs import zoom_figures
from certmask.geometry import Mask
from certmask.passes import NONE
from certmask.rules import JuryDetection, JuryHiCert, JuryRecovery, PairDetection, Rule
from certmask.rules.levels import Levels, Questions, jury_levels
from certmask.rules.rule import Asking, answer
from certmask.threat import AnyRectangle, Patch, Size, Threat, UpTo
from certmask.votes import Votes

torch.set_num_threads(1)

Rectangle = tuple[int, int, int, int]
"""Top, left, height, width."""
Attack = tuple[frozenset[int], ...]
"""The masks that hide each of the patches: all that an attacker's choice of places comes to."""


def rectangles(sizes: Sequence[Size], image: Size) -> Iterator[Rectangle]:
    """Every rectangle of these sizes inside the image."""
    for height, width in sizes:
        yield from ((y, x, height, width) for y in range(image[0] - height + 1) for x in range(image[1] - width + 1))


def allowed(threat: Threat, image: Size, side: int | None = None) -> list[Size]:
    """All sizes of patches that the threat allows, from its definition; ``side``: squares of up to that size."""
    sizes = product(range(1, image[0] + 1), range(1, image[1] + 1))
    if isinstance(threat, AnyRectangle):
        return [(h, w) for h, w in sizes if h * w <= threat.area]
    most = threat.size if isinstance(threat, Patch) else (side or 0,) * 2
    return [(h, w) for h, w in sizes if h <= most[0] and w <= most[1]]


def hides(mask: Mask, rectangle: Rectangle, image: Size) -> bool:
    """Whether the mask blanks out all of the rectangle, pixel by pixel."""
    blank = {
        (y, x)
        for rows in mask.rows(image)
        for y in range(*rows)
        for columns in mask.columns(image)
        for x in range(*columns)
    }
    top, left, height, width = rectangle
    return blank.issuperset(product(range(top, top + height), range(left, left + width)))


@cache
def attacks(cover: Cover, side: int | None = None) -> tuple[Attack, ...]:
    """All that patches of the threat can be hidden by, at most as many of them as it allows."""
    places = {
        frozenset(n for n, mask in enumerate(cover.masks) if hides(mask, rectangle, cover.image))
        for rectangle in rectangles(allowed(cover.threat, cover.image, side), cover.image)
    }
    least = [place for place in places if not any(other < place for other in places)]
    return tuple(combinations_with_replacement(sorted(least, key=sorted), cover.threat.count))


def attacker(attack: Attack, clean: Table, palette: Tensor) -> Options:
    """What the patches can do; a pass that the clean table leaves open may have had any vote."""

    def options(one: Pass) -> Sequence[int]:
        hidden = all(place.intersection(one) for place in attack)
        return (clean[one],) if hidden and one in clean else range(len(palette))

    return options


def sides(rule: Rule, label: int) -> Ask[int]:
    """What a rule certifies: the whole threat, or the number of its steps."""

    def ask(votes: Votes) -> Asking[list[int]]:
        found = yield from rule.proving(votes, np.full(votes.store.pictures, label))
        return [int(n) for n in (found.holds if found.steps is None else found.steps)]

    return ask


def broken(cover: Cover, rule: Rule, palette: Tensor, label: int = 2) -> tuple[Counter[str], list[str]]:
    """All certified tables, all attacks that their certificate speaks of: how many, and which broke it."""
    seen, found, done = Counter[str](), list[str](), set[tuple[Attack, tuple[tuple[Pass, int], ...]]]()
    steps = cover.threat.steps
    for proved, clean in plays(cover, sides(rule, label), palette, anything(palette)):
        if not proved:
            continue
        seen["tables"] += 1
        seen[f"step {proved}"] += 1
        for attack in attacks(cover, steps[proved - 1].height if steps else None):
            kept = tuple(sorted((one, v) for one, v in clean.items() if all(p.intersection(one) for p in attack)))
            if (attack, kept) in done:
                continue
            done.add((attack, kept))
            for decision, attacked in plays(cover, deciding(rule), palette, attacker(attack, dict(kept), palette)):
                seen["attacks"] += 1
                if not keeps(rule.guarantee, decision, label):
                    found.append(f"{rule} on {cover}: {decision} under {attack}: clean {clean}, attacked {attacked}")
    return seen, found


def assert_unbroken(cover: Cover, rule: Rule, palette: Tensor) -> Counter[str]:
    seen, found = broken(cover, rule, palette)
    assert not found, found[0]
    assert seen["tables"], "unanimity, at least, is certified"
    return seen


def line(threat: Threat, length: int, *levels: tuple[int, Sequence[int]]) -> Cover:
    """A cover of several levels on a line against several patches."""
    rows = [[Mask(0, left, 1, width) for left in starts] for width, starts in levels]
    return stacked_cover([custom_cover((1, length), threat, masks) for masks in rows])  # type: ignore[arg-type]


TWO, FOUR = Patch(1, 1, 2), Patch(1, 1, 4)
PAIRS = [
    line(TWO, 2, (1, [0, 1])),
    line(TWO, 3, (1, [0, 1, 2])),
    line(TWO, 3, (2, [0, 2]), (1, [0, 1, 2])),
]
"""Two patches of a pixel: as many places as patches, one more, a level before that."""

RECTANGLES = stacked_cover(
    [
        joined_cover(
            AnyRectangle(2),
            [Patch(1, 2), Patch(2, 1)],
            [
                custom_cover((2, 2), Patch(1, 2), [Mask(0, 0, 1, 2), Mask(1, 0, 1, 2)]),
                custom_cover((2, 2), Patch(2, 1), [Mask(0, 0, 2, 1), Mask(0, 1, 2, 1)]),
            ],
        )
    ]
)
"""Two pixels, side by side or one above the other, on four."""


def sized(shared: bool) -> Cover:
    """Patches of one or two pixels on a line of four, the former with masks of their own at the last level."""
    threat = UpTo(2, (1, 2))
    squares = [Patch(1, 1), Patch(2, 2)]
    large = custom_cover((2, 4), squares[1], [Mask(0, left, 2, 2) for left in (0, 1, 2)])
    small = custom_cover((2, 4), squares[0], [Mask(0, 0, 2, 2), Mask(0, 2, 2, 2)])
    levels = [joined_cover(threat, squares, [large, large])] if shared else []
    return stacked_cover([*levels, joined_cover(threat, squares, [small, large])])


SIMPLE = [
    JuryRecovery(thresholds=0.5, claim_thresholds=0.5),
    JuryRecovery(thresholds=0.5, claim_thresholds=0.5, last_resort="majority"),
    JuryRecovery(thresholds=0.5, claim_thresholds=0.0, pooled=True),
    JuryDetection(thresholds=0.5),
    JuryDetection(thresholds=0.5, pooled=True, aggregate="label-majority"),
    JuryHiCert(thresholds=0.5),
    PairDetection(thresholds=0.5),
]


@pytest.mark.parametrize("rule", SIMPLE, ids=repr)
@pytest.mark.parametrize("cover", PAIRS, ids=str)
def test_every_attack_with_two_patches(cover: Cover, rule: Rule) -> None:
    """Exhaustive: both patches anywhere, also in one place."""
    seen = assert_unbroken(cover, rule, GATED)
    assert seen["attacks"] >= (1 if len(cover.cells) == 2 else 3)


@pytest.mark.parametrize("rule", [JuryRecovery(last_resort="majority"), JuryDetection(), PairDetection()], ids=repr)
def test_every_attack_on_places_for_two_pairs(rule: Rule) -> None:
    """Exhaustive: as many places as two hypotheses have together."""
    assert assert_unbroken(line(TWO, 4, (1, range(4))), rule, HARD)["attacks"] > 10


@pytest.mark.parametrize("rule", [JuryDetection(thresholds=0.5), PairDetection(thresholds=0.5)], ids=repr)
def test_every_attack_with_more_patches_than_places(rule: Rule) -> None:
    """Four patches on three places hide everything; on five, one place stays to be seen."""
    assert_unbroken(line(FOUR, 3, (1, range(3))), rule, QUIET)
    assert assert_unbroken(line(FOUR, 5, (1, range(5))), rule, HARD)["attacks"] > 5


@pytest.mark.parametrize("rule", SIMPLE, ids=repr)
def test_every_attack_of_any_shape(rule: Rule) -> None:
    """Exhaustive: rectangles of two pixels, of one, flat or high."""
    assert assert_unbroken(RECTANGLES, rule, HARD if rule.guarantee is Guarantee.RECOVERY else SOFT)["attacks"] > 10


@pytest.mark.parametrize("rule", SIMPLE, ids=repr)
@pytest.mark.parametrize("shared", [False, True])
def test_every_attack_of_a_certified_size(rule: Rule, shared: bool) -> None:
    """Exhaustive: a table is attacked by patches of the size for which it is certified, and by smaller ones."""
    seen = assert_unbroken(sized(shared), rule, torch.eye(3)[[0, 2, 2]] if shared else HARD)
    assert min(seen["step 1"], seen["step 2"]) > 0, "some are certified for small patches alone, some for all"


@pytest.mark.parametrize("rule", SIMPLE[:1] + SIMPLE[3:4], ids=repr)
def test_sizes_may_come_in_any_order(rule: Rule) -> None:
    """The largest first, and another size beside those that are certified: a table is certified for the same size."""
    (level,) = sized(shared=False).levels
    extra, parts = Patch(1, 2), [*reversed(level.parts), level.parts[1]]
    turned = stacked_cover([joined_cover(level.threat, [*reversed(level.patches), extra], parts)])
    seen = assert_unbroken(turned, rule, HARD)
    assert min(seen["step 1"], seen["step 2"]) > 0


# -------------------------------------------------------------------------------------------- sampled, larger


def larger() -> list[Cover]:
    """Covers as users get them, small: two and three patches, rectangles, sizes, in two dimensions, with levels."""
    return [
        zoom_cover(6, Patch(2, 2, 2), (2, 3), 1),
        zoom_cover((5, 6), Patch(2, 1, 2), (2, 3), 1),
        zoom_cover((1, 8), Patch(1, 2, 3), (2, 4), 1),
        zoom_cover(6, AnyRectangle(4), (2, 3), 1),
        zoom_cover((5, 7), AnyRectangle(3), (2, 3), 1),
        zoom_cover(7, UpTo(3, (1, 2, 3)), (2, 3), 1),
        zoom_cover((6, 8), UpTo(2), (1, 2), 1),
        zoom_cover(6, UpTo(3), (2, (3, 2)), 1),
    ]


def _vote(table: Table, one: Pass) -> int:
    return table.get(one, 2)


@pytest.mark.parametrize("rule", SIMPLE, ids=repr)
@pytest.mark.parametrize("number", range(len(larger())))
def test_sampled_attacks_on_larger_covers(rule: Rule, number: int) -> None:
    """Seeded sample: tables at the edge of the certificate of the whole threat, or of a step of it."""
    cover, rng, count = larger()[number], Random(f"{number} {rule}"), 0
    steps = cover.threat.steps
    for palette in rng.sample([HARD, LEADS, QUIET], 1):
        clean = brittle(cover, rule, 2, palette, rng)
        assert clean is not None, "unanimity is certified on every cover"
        proved, _ = play(cover, sides(rule, 2), palette, partial(_vote, clean))
        places = attacks(cover, steps[proved - 1].height if steps else None)
        for attack in rng.sample(places, min(len(places), 12)):
            options = attacker(attack, clean, palette)
            for decision, attacked in random_plays(cover, deciding(rule), palette, options, 6, rng):
                assert keeps(rule.guarantee, decision, 2), (attack, clean, attacked)
                count += 1
    assert count > 5


# ------------------------------------------------------------------------------------------------- references


def settled(levels: Sequence[Sequence[float]], bar: float) -> int:
    """The class of the first level whose lead exceeds the threshold, else of the last; nobody where that is silent."""
    for number, row in enumerate(levels):
        first = min(range(len(row)), key=lambda c: (-row[c], c))
        lead = row[first] - max(p for c, p in enumerate(row) if c != first)
        if lead > bar or number == len(levels) - 1:
            return first if any(row) else NO_CLASS
    raise AssertionError


class Reference:
    """Recovery and detection from their definitions, in plain Python: one vote for each set of places and level."""

    def __init__(self, cover: Cover, table: dict[frozenset[int], list[float]], bar: float) -> None:
        self.masks = [[tuple(c) for c in cover.cells.masks[:, columns]] for columns in cover.level_columns]
        self.table, self.bar, self.bare = table, bar, settled([table[frozenset()]], bar)
        places = range(len(cover.cells))
        self.hypotheses = [frozenset(c) for c in combinations(places, min(cover.threat.count, len(places)))]
        self.step = [int(patch) + 1 for patch in cover.cells.patches] if cover.threat.steps else None

    def verdict(self, places: frozenset[int]) -> int:
        """What votes say that hide all of the places."""
        sets = [frozenset(masks[place][0] for place in places) for masks in self.masks]
        return settled([self.table[one] for one in sets], self.bar)

    def recovered(self) -> int:
        """The claim of an unbeaten hypothesis; where there is none, that of the bare picture."""
        claims = {t: self.verdict(t) for t in self.hypotheses}
        if len(set(claims.values()) - {NO_CLASS}) == 1:
            return max(claims.values())
        unbeaten = {
            claim
            for t, claim in claims.items()
            if claim != NO_CLASS and all(self.verdict(t | u) == claim for u in claims if claims[u] != claim)
        }
        assert len(unbeaten) <= 1, "two that are unbeaten would have to agree"
        return unbeaten.pop() if unbeaten else self.bare

    def alert(self) -> bool:
        claims = {self.verdict(t) for t in self.hypotheses}
        return len(claims) > 1 or NO_CLASS in claims

    def proved(self, label: int, recovery: bool) -> int:
        """Whether all claims are the label, and all unions; against steps, the largest of which that is true."""
        steps = [None] if self.step is None else sorted(set(self.step))
        best = 0
        for number, step in enumerate(steps, start=1):
            own = [t for t in self.hypotheses if step is None or self.step[min(t)] == step]  # type: ignore[index]
            right = all(self.verdict(t) == label for t in own)
            if recovery:
                right = right and all(self.verdict(t | u) == label for t in own for u in self.hypotheses if u != t)
            best = number if right else best
        return best


def random_votes(cover: Cover, most: int, rng: Random) -> dict[frozenset[int], list[float]]:
    """A vote for every set of masks of one level that may be asked for; mostly for one class, of sixteenths."""
    dissent = rng.choice([0.0, 0.03, 0.2])
    sets: set[frozenset[int]] = {
        frozenset(s) for level in cover.level_columns for s in _sets_of(cover, level, most)
    } | {frozenset()}
    table = {}
    for one in sorted(sets, key=sorted):
        favourite = rng.randrange(3) if rng.random() < dissent else 2
        parts = Counter(rng.choices(range(3), k=rng.choice([0, 4, 10])))
        row = [parts[c] / 16 for c in range(3)]
        row[favourite] += 1 - sum(row)
        table[one] = row
    return table


def _sets_of(cover: Cover, columns: slice, most: int) -> Iterator[tuple[int, ...]]:
    masks = sorted(set(cover.cells.masks[:, columns].ravel().tolist()))
    for size in range(1, most + 1):
        yield from combinations(masks, size)


def compared() -> list[Cover]:
    return [
        line(TWO, 4, (2, [0, 2]), (1, range(4))),
        line(TWO, 5, (1, range(5))),
        line(Patch(1, 1, 3), 6, (3, [0, 3]), (1, range(6))),
        zoom_cover(5, AnyRectangle(3), (1, 2), 1),
        zoom_cover(6, UpTo(3, (1, 2, 3)), (2, 3), 1),
        line_zoom(4, (2, [0, 2]), (1, range(4))),
    ]


@pytest.mark.parametrize("number", range(len(compared())))
def test_rules_agree_with_the_definition(number: int) -> None:
    """Seeded tables: the same answers, alerts, certificates and certified sizes as plain Python finds."""
    cover, rng, seen = compared()[number], Random(number), Counter[tuple[str, int]]()
    recovery, detection = JuryRecovery(thresholds=0.5, claim_thresholds=0.5), JuryDetection(thresholds=0.5)
    for _ in range(60):
        table = random_votes(cover, 2 * cover.threat.count, rng)
        width = 2 * cover.threat.count
        sets = [(*sorted(one), *[NONE] * (width - len(one))) for one in table]
        votes = votes_under(cover, sets, torch.tensor(list(table.values())))
        reference = Reference(cover, table, 0.5)
        assert recovery.decide(votes).label == reference.recovered()
        assert detection.decide(votes).alert == reference.alert()
        for rule, kind in ((recovery, "recovery"), (detection, "detection")):
            proofs = answer(rule.proving(votes, np.array([2])), votes)
            found = int(proofs.holds[0] if proofs.steps is None else proofs.steps[0])
            assert found == reference.proved(2, kind == "recovery")
            assert rule.certify(votes, 2).holds == bool(proofs.holds[0])
            seen[kind, found] += 1
    most = max(len(cover.threat.steps), 1)
    assert all(seen[kind, step] for kind in ("recovery", "detection") for step in (0, most)), seen


@pytest.mark.parametrize("length", [4, 5])
def test_recovery_from_one_detects_two(length: int) -> None:
    """All tables of certain votes on a line: what recovery from one patch certifies, pair detection does of two."""
    one, two = line(Patch(1, 1), length, (1, range(length))), line(TWO, length, (1, range(length)))
    recovery, pair = JuryRecovery(thresholds=0.5, claim_thresholds=0.5), PairDetection(thresholds=0.5)
    rng, seen = Random(length), Counter[tuple[bool, bool]]()
    for _ in range(400):
        table = random_votes(two, 2, rng)
        sets = [(*sorted(own), *[NONE] * (2 - len(own))) for own in table]
        outputs = torch.tensor(list(table.values()))
        recovers = recovery.certify(votes_under(one, sets, outputs), 2).holds
        detects = pair.certify(votes_under(two, sets, outputs), 2).holds
        assert detects or not recovers
        seen[recovers, detects] += 1
    assert min(seen[True, True], seen[False, True], seen[False, False]) > 10


# --------------------------------------------------------------------------- the enumeration can find mistakes


class OfItsSize(Levels):
    """For a size, only pairs of places of that size are asked about: larger ones are deployed, too."""

    def duels(self, step: int | None = None) -> Questions:
        own = (self._steps[self.opponents] == step).all(axis=1)
        return Questions(self._opponent_pools, np.flatnonzero(own), len(self))


def levels_of(kind: type[Levels], votes: Votes, pairs: str) -> Levels:
    """As a rule finds them."""
    return kind(votes.ballot, jury_levels(votes.cover, pairs), votes.cover.boxes, votes.cover.place_patches)


class UpToItself(JuryRecovery):
    def levels(self, votes: Votes) -> Levels:
        return levels_of(OfItsSize, votes, self.pairs)


def test_a_size_is_certified_against_larger_ones_too() -> None:
    """Or else a place of a larger size beats the true one."""
    rule = UpToItself(thresholds=0.5, claim_thresholds=0.5)
    _, found = broken(sized(shared=False), rule, HARD)
    assert found


class OnePatch(JuryRecovery):
    """Takes two patches for one."""

    def levels(self, votes: Votes) -> Levels:
        levels = levels_of(Levels, votes, self.pairs)
        levels.sets = np.arange(len(levels.boxes))[:, None]
        return levels


def test_two_patches_are_not_one() -> None:
    """Or else the second one makes an unbeaten place of another class."""
    _, found = broken(line(TWO, 3, (1, range(3))), OnePatch(thresholds=0.5, claim_thresholds=0.5), HARD)
    assert found


@pytest.mark.parametrize("cover", [*PAIRS, RECTANGLES, sized(shared=True)], ids=str)
def test_a_certified_picture_without_a_patch_is_answered(cover: Cover) -> None:
    """Whatever the threat, and without an alert."""
    for rule in SIMPLE:
        decision, _ = play(cover, deciding(rule), HARD, lambda _: 2)
        assert decision == Decision(2)


@pytest.mark.parametrize("cover", [*PAIRS, RECTANGLES, sized(shared=True), sized(shared=False), *larger()], ids=str)
def test_a_sure_picture_takes_the_passes_that_are_planned(cover: Cover) -> None:
    """What ``plan`` calls the least: certain votes settle everything on the first level."""
    figures, rule = zoom_figures(cover), JuryRecovery(thresholds=0.5, claim_thresholds=0.5)
    answered = play(cover, deciding(rule), HARD, lambda _: 2)[1]
    proved, asked = play(cover, sides(rule, 2), HARD, lambda _: 2)
    assert proved
    assert len(answered) == figures["answer"]["least"]
    assert len(asked) == figures["proof"]["least"]
    assert rule.most_passes(cover) == figures["proof"]["most"]
