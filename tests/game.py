"""The attack game: run a rule's computation and branch over every answer that the passes it asks for may get.

A vote is written as the number of a row of a *palette* ``[rows, classes]`` of possible outputs. Only passes that are
asked for are branched over, so the tree holds every attack that can make a difference and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import combinations, permutations
from random import Random
from typing import TypeVar, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover, custom_cover, stacked_cover
from certmask.geometry import Mask
from certmask.passes import Ballot
from certmask.rules import Rule
from certmask.rules.rule import Asking
from certmask.threat import Patch
from certmask.votes import Votes, VoteStore, as_votes, head_of

T = TypeVar("T")
Pass = tuple[int, int]
"""How passes are called here; against several patches there are longer ones, too."""
Table = dict[Pass, int]
Ask = Callable[[Votes], Asking[Sequence[T]]]
"""A computation on the votes of a cohort of games: one finding for each."""
Options = Callable[[Pass], Sequence[int]]

AT_ONCE = 1024
"""Games in a cohort."""
AHEAD = 6
"""Dissenting votes that are tried on one table at once; those after the first that it bears are tried again."""

HARD = torch.eye(3)
"""Certain answers, one for each of three classes."""

SOFT = torch.tensor(
    [[4, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 0], [2, 0, 2], [0, 2, 2], [2, 1, 1], [1, 2, 1], [1, 1, 2]]
).div(4)
"""Certain answers, exact ties of two classes, and answers whose confidence is exactly one half."""


QUIET = torch.cat([HARD, torch.zeros(1, 3)])
"""Certain answers, and a vote that gave no numbers."""


LEADS = torch.tensor([[4, 0, 0], [0, 4, 0], [0, 0, 4], [1, 0, 3], [3, 0, 1], [2, 0, 2], [0, 0, 0]]).div(4)
"""Certain answers, leads of exactly one half for the last class and against it, a tie that it loses, and silence."""

GATED = LEADS[[0, 4, 2]]
"""Certain for the first class, a lead of one half for it, certain for the last class."""


def played(
    cover: Cover, ask: Ask[T], palette: Tensor, choosers: Sequence[Callable[[Pass], int]]
) -> list[tuple[T, Table]]:
    """Run a computation on a cohort of games; each game's own chooser answers a pass when it is first asked for.

    Returns what came out of each game, and the votes cast in it.
    """
    ballot, names = ballot_of(cover)
    store = VoteStore(len(choosers), ballot.passes, palette.shape[1])
    votes, tables = Votes(ballot, store), [Table() for _ in choosers]
    asking = ask(votes)
    while True:
        try:
            asked = next(asking)
        except StopIteration as stop:
            return list(zip(stop.value, tables, strict=True))
        new = store.missing(asked)
        names += [pass_name(row) for row in ballot.passes.sets(np.arange(len(names), len(ballot.passes))).tolist()]
        picks = []
        for game, number in zip(new.pictures.tolist(), new.passes.tolist(), strict=True):
            tables[game][names[number]] = pick = choosers[game](names[number])
            picks.append(pick)
        if picks:
            store.add(new, *(vote[picks] for vote in votes_of(palette)))


@lru_cache(maxsize=16)
def votes_of(palette: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs in whole units, and their heads, as an engine hands both over."""
    votes = as_votes(palette)
    return votes, head_of(votes)


def play(cover: Cover, ask: Ask[T], palette: Tensor, choose: Callable[[Pass], int]) -> tuple[T, Table]:
    """One game."""
    (run,) = played(cover, ask, palette, [choose])
    return run


@cache
def ballot_of(cover: Cover) -> tuple[Ballot, list[Pass]]:
    """The numbers of a cover's passes, shared by all games on it, and what they are called here, as far as known."""
    return Ballot(cover), []


def pass_name(masks: Sequence[int]) -> Pass:
    """``(i, j, …)`` in rising order for two masks or more, ``(i, i)`` for one, ``(-1, -1)`` for none."""
    members = sorted(mask for mask in masks if mask >= 0)
    return cast("Pass", tuple(members)) if len(members) > 1 else (members[0],) * 2 if members else (-1, -1)


def deciding(rule: Rule) -> Ask[Decision]:
    """A rule's decisions."""
    return rule.deciding


def certifying(rule: Rule, label: int) -> Ask[bool]:
    """Whether a rule's certificates hold."""

    def ask(votes: Votes) -> Asking[list[bool]]:
        found = yield from rule.certifying(votes, np.full(votes.store.pictures, label))
        return [bool(holds) for holds in found]

    return ask


class Line:
    """A line of play: it follows the turns it was given, then takes the first option of every further choice."""

    def __init__(self, options: Options, turns: tuple[int, ...] = ()) -> None:
        self.options, self.turns = options, turns
        self.choices: list[int] = []

    def __call__(self, one: Pass) -> int:
        choices = self.options(one)
        if len(choices) == 1:
            return choices[0]
        self.choices.append(len(choices))
        depth = len(self.choices) - 1
        return choices[self.turns[depth]] if depth < len(self.turns) else choices[0]

    def others(self) -> Iterator[tuple[int, ...]]:
        """The turns of the lines that leave this one where it was free to choose."""
        for depth in range(len(self.turns), len(self.choices)):
            before = self.turns + (0,) * (depth - len(self.turns))
            yield from ((*before, turn) for turn in range(1, self.choices[depth]))


def plays(cover: Cover, ask: Ask[T], palette: Tensor, options: Options) -> Iterator[tuple[T, Table]]:
    """Every run of a computation, over all options of every pass it asks for: each line once, many of them at once."""
    return (run for _, run in plays_of_all(cover, ask, palette, [options]))


def plays_of_all(
    cover: Cover, ask: Ask[T], palette: Tensor, players: Sequence[Options]
) -> Iterator[tuple[int, tuple[T, Table]]]:
    """The same for each of several players, whose lines are played together; with the player's number."""
    waiting: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(len(players))]
    while waiting:
        now = waiting[-AT_ONCE:]
        del waiting[-AT_ONCE:]
        lines = [Line(players[number], turns) for number, turns in now]
        for (number, _), run in zip(now, played(cover, ask, palette, lines), strict=True):
            yield number, run
        for (number, _), line in zip(now, lines, strict=True):
            waiting += ((number, turns) for turns in line.others())


def random_plays(
    cover: Cover, ask: Ask[T], palette: Tensor, options: Options, count: int, rng: Random
) -> list[tuple[T, Table]]:
    """Some runs, each with a ``chooser`` of its own."""
    return played(cover, ask, palette, [chooser(options, palette, rng) for _ in range(count)])


def chooser(options: Options, palette: Tensor, rng: Random) -> Callable[[Pass], int]:
    """An attacker with a favourite output, preferred to a degree that varies from one to the next."""
    favourite, zeal = rng.randrange(len(palette)), rng.choice([0.0, 0.5, 0.8, 1.0])

    def choose(one: Pass) -> int:
        choices = options(one)
        return favourite if favourite in choices and rng.random() < zeal else rng.choice(choices)

    return choose


def anything(palette: Tensor) -> Options:
    """Every output for every pass."""
    return lambda _: range(len(palette))


def attacker(cover: Cover, district: int, clean: Table, palette: Tensor) -> Options:
    """What a patch in the district can do: a pass with a mask of its jury keeps its clean vote, all others are free.

    A pass that the clean table leaves open may have had any vote, whether or not the patch can change it.
    """
    jury = set(cover.districts.jury(district))

    def options(one: Pass) -> Sequence[int]:
        return range(len(palette)) if one not in clean or jury.isdisjoint(one) else (clean[one],)

    return options


def keeps(guarantee: Guarantee, decision: Decision, label: int) -> bool:
    """Whether a decision about an attacked image is what the guarantee promised for the true label."""
    if guarantee is Guarantee.DETECTION:
        return decision.label == label or decision.alert
    return decision.label == label and not decision.alert


def certified(cover: Cover, rule: Rule, label: int, palette: Tensor) -> Iterator[Table]:
    """All clean tables (of the passes that the certificate looks at) for which the rule's certificate holds."""
    return (table for holds, table in plays(cover, certifying(rule, label), palette, anything(palette)) if holds)


def proof(cover: Cover, rule: Rule, label: int, palette: Tensor, table: Table) -> tuple[bool, Table]:
    """Whether the rule's certificate holds for a table, and all votes that it looked at.

    A pass that the table does not have votes for the label.
    """
    return play(cover, certifying(rule, label), palette, or_label(table, label))


def or_label(table: Table, label: int) -> Callable[[Pass], int]:
    """The table's votes; a pass that it does not have votes for the label."""
    return lambda one: table.get(one, label)


def holds(cover: Cover, rule: Rule, label: int, palette: Tensor, table: Table) -> bool:
    """Whether the rule's certificate holds for a table; a pass the table does not have votes for the label."""
    return proof(cover, rule, label, palette, table)[0]


def brittle(cover: Cover, rule: Rule, label: int, palette: Tensor, rng: Random) -> Table | None:
    """A random certified table in which dissent was added, pass by pass, for as long as the certificate held.

    The table starts unanimous for the label (palette row ``label``); None if not even that is certified. Votes that
    are looked at only because of dissent elsewhere come into it, and may dissent in their turn.
    """
    proved, table = proof(cover, rule, label, palette, {})
    if not proved:
        return None
    tried: set[Pass] = set()
    while left := sorted(set(table) - tried):
        order = rng.sample(left, min(len(left), AHEAD))
        dissents = [{**table, one: rng.randrange(len(palette))} for one in order]
        runs = played(cover, certifying(rule, label), palette, [or_label(dissent, label) for dissent in dissents])
        held = next((number for number, run in enumerate(runs) if run[0]), len(order))
        tried.update(order[: held + 1])
        if held < len(order):
            table = {**table, **runs[held][1]}
    return table


def seen_by_jury(cover: Cover, district: int, table: Table) -> Table:
    """The part of a clean table that survives an attack in the district; the rest cannot matter."""
    jury = set(cover.districts.jury(district))
    return {one: vote for one, vote in table.items() if not jury.isdisjoint(one)}


# --------------------------------------------------------------------------------------------------- attacks


def assert_kept(cover: Cover, rule: Rule, label: int, district: int, clean: Table, run: tuple[Decision, Table]) -> None:
    """The decision of a run keeps the rule's guarantee."""
    decision, attacked = run
    if not keeps(rule.guarantee, decision, label):
        pytest.fail(
            f"{rule} on {cover.masks} with juries {families(cover)} is certified for class {label} but answers "
            f"{decision} when attacked in district {district}: clean {clean}, attacked {attacked}"
        )


def every_attack(cover: Cover, rule: Rule, palette: Tensor, labels: Iterable[int]) -> Counter[str]:
    """All certified clean tables, all districts, all attacks; each part of a table that a jury sees only once."""
    seen: Counter[str] = Counter(covers=1)
    attacked: list[tuple[int, int, Table]] = []
    for label in labels:
        tables = list(certified(cover, rule, label, palette))
        seen["tables"] += len(tables)
        if rule.quiet:
            assert_quiet(cover, rule, label, palette, tables)
        for district in range(len(cover.districts)):
            parts = {tuple(seen_by_jury(cover, district, clean).items()) for clean in tables}
            attacked += ((label, district, dict(part)) for part in sorted(parts))
    players = [attacker(cover, district, clean, palette) for _, district, clean in attacked]
    for number, run in plays_of_all(cover, deciding(rule), palette, players):
        assert_kept(cover, rule, *attacked[number], run)
        seen["attacks"] += 1
    return seen


def assert_quiet(cover: Cover, rule: Rule, label: int, palette: Tensor, tables: Sequence[Table]) -> None:
    """Every clean table is answered with the label, unanimously."""
    for start in range(0, len(tables), AT_ONCE):
        some = tables[start : start + AT_ONCE]
        runs = played(cover, deciding(rule), palette, [clean.__getitem__ for clean in some])
        for clean, (unpatched, _) in zip(some, runs, strict=True):
            if unpatched != Decision(label) or unpatched.basis not in ("", "unanimous"):
                pytest.fail(f"{rule} on {cover} is certified for class {label} but answers {unpatched} to {clean}")


def some_attacks(cover: Cover, rule: Rule, palette: Tensor, label: int, attacks: int, rng: Random) -> Counter[str]:
    """One brittle certified table, all districts, seeded random attacks."""
    seen: Counter[str] = Counter(covers=1)
    clean = brittle(cover, rule, label, palette, rng)
    if clean is None:
        return seen
    seen["tables"] += 1
    districts = [district for district in range(len(cover.districts)) for _ in range(attacks)]
    choosers = [chooser(attacker(cover, district, clean, palette), palette, rng) for district in districts]
    runs = played(cover, deciding(rule), palette, choosers)
    for district, run in zip(districts, runs, strict=True):
        assert_kept(cover, rule, label, district, clean, run)
        seen["attacks"] += 1
    return seen


def total(counts: Iterable[Counter[str]]) -> Counter[str]:
    """The sum of the counts."""
    result: Counter[str] = Counter()
    for count in counts:
        result.update(count)
    return result


# ---------------------------------------------------------------------------------------------------- covers


def covered_positions(start: int, mask: int, length: int, patch: int, wraps: bool) -> int:
    """The patch positions that a mask on a line covers, as bits; written from the definition, pixel by pixel."""
    pixels = {x % length if wraps else x for x in range(start, start + mask)}
    return sum(1 << t for t in range(length - patch + 1) if pixels.issuperset(range(t, t + patch)))


def _without_names(family: frozenset[int], masks: int) -> tuple[int, ...]:
    """A family of juries (as bits) up to renumbering of the masks."""
    return min(
        tuple(sorted(sum(1 << new[i] for i in range(masks) if jury >> i & 1) for jury in family))
        for new in permutations(range(masks))
    )


@cache
def line_covers(masks: int, longest: int) -> tuple[Cover, ...]:
    """One cover for each family of juries that ``masks`` equal masks on a ``1 × length`` image can have.

    All lengths up to ``longest``, patches of 1 to 3 pixels, all mask sizes, all choices of different starts, clipped
    and wrapped; families that differ in the numbering of the masks only count once.
    """
    found: dict[tuple[int, ...], Cover] = {}
    known: set[frozenset[int]] = set()
    for length in range(2, longest + 1):
        for patch in range(1, min(3, length - 1) + 1):
            for mask in range(patch, length + 1):
                for wraps in (False, True) if mask < length else (False,):
                    starts = range(length) if wraps else range(patch - mask, length - patch + 1)
                    positions = {a: covered_positions(a, mask, length, patch, wraps) for a in starts}
                    for chosen in combinations(starts, masks):
                        family = frozenset(
                            sum((positions[a] >> t & 1) << i for i, a in enumerate(chosen))
                            for t in range(length - patch + 1)
                        )
                        if 0 in family or family in known:
                            continue
                        known.add(family)
                        name = _without_names(family, masks)
                        if name not in found:
                            rows = [Mask(0, a, 1, mask, wraps) for a in chosen]
                            found[name] = custom_cover((1, length), Patch(1, patch), rows)
                            assert families(found[name]) == {
                                tuple(i for i in range(masks) if jury >> i & 1) for jury in family
                            }
    return tuple(found.values())


def families(cover: Cover) -> set[tuple[int, ...]]:
    """The juries of a cover."""
    return {cover.districts.jury(district) for district in range(len(cover.districts))}


def line_zoom(length: int, *levels: tuple[int, Sequence[int]], patch: int = 1) -> Cover:
    """A cover of several levels on a line, of masks of a width at these starts for each level."""
    at = Patch(1, patch)
    rows = [[Mask(0, left, 1, width) for left in starts] for width, starts in levels]
    return stacked_cover([custom_cover((1, length), at, masks) for masks in rows])


def shuffled(cover: Cover, rng: Random) -> Cover:
    """The same masks in another order: who challenges whom in a tournament depends on the order."""
    return custom_cover(cover.image, cover.patch, rng.sample(cover.masks, len(cover)))
