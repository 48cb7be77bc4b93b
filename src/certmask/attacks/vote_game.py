"""The attack game on votes, what is known to beat rules in it, and chance: no network, no pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from certmask.attacks.levels import levels_of, thresholds_of
from certmask.certificate import Decision
from certmask.geometry import Districts, IntArray
from certmask.passes import NONE, Ask, Ballot
from certmask.rules import Rule
from certmask.votes import UNIT, BoolArray, Votes, VoteStore

CLEAN = -1
"""Answer of an attacker who leaves a vote as it was."""

SPARED = 6
"""How many different masks are spared in turn."""

District = int | tuple[int, ...]
"""Where a patch is, or several are."""

Strategy = Callable[[IntArray], IntArray]
"""Given the sets of masks of free passes, ``[n, width]``, a row of the palette for each, or ``CLEAN``."""

Turned = dict[tuple[int, ...], Tensor]
"""The passes that the attacker answered, by their masks, with the probabilities that came of it."""

Turn = tuple[IntArray, Tensor]
"""Free passes that were asked for at once and not left as they were: their sets of masks, and the outputs cast."""

NUMBERS = 1 << 22
"""Probabilities of single masks in all games that are played at once, at most."""


class Play(NamedTuple):
    """What the rule decided in a game, and what the attacker did, turn by turn."""

    decision: Decision
    turns: list[Turn]

    @property
    def turned(self) -> Turned:
        """The votes that the attacker cast."""
        return {
            tuple(sorted(mask for mask in row if mask != NONE)): output
            for sets, outputs in self.turns
            for row, output in zip(sets.tolist(), outputs, strict=True)
        }


class VoteGame:
    """A rule asks, an attacker answers: a pass with a mask of the district's jury keeps its vote, all others are free.

    That is more than a real patch can do, so a rule that survives this game survives every patch in the district.
    ``palette`` ``[rows, classes]`` lists the outputs that the attacker chooses from. A free pass that the clean votes
    do not have, such as the bare picture's, is never left as it was: the attacker gives it the first of the palette.
    Several patches lie in several of the ``districts``, by default the cover's: a pass keeps its vote that has a mask
    of each one's jury.
    """

    def __init__(
        self, votes: Votes, rule: Rule, district: District, palette: Tensor, districts: Districts | None = None
    ) -> None:
        rule.check(votes.cover)
        self.votes, self.rule, self.district = votes, rule, district
        self.districts = votes.cover.districts if districts is None else districts
        self.palette = palette.to(votes.outputs)
        self.juries = juries_of(self.districts, district)
        self._ballot = Ballot(votes.cover)
        alone = hiding(np.arange(len(votes.cover))[:, None], self.juries)
        self.free_masks = np.flatnonzero(~alone)
        self.at_once = min(max(NUMBERS // (len(votes.cover) * palette.shape[1]), 1), 64)

    def play(self, strategy: Strategy) -> Play:
        """One game, against one strategy."""
        (one,) = self.played([strategy])
        return one

    def played(self, strategies: Iterable[Strategy]) -> Iterator[Play]:
        """A game against each of the strategies, in their order; some of them are played at once."""
        left = iter(strategies)
        while some := list(islice(left, self.at_once)):
            yield from self._played(some)

    def _played(self, strategies: Sequence[Strategy]) -> list[Play]:
        passes, games = self._ballot.passes, len(strategies)
        store = VoteStore(games, passes, self.palette.shape[1], self.palette.device)
        turns: list[list[Turn]] = [[] for _ in strategies]
        asking = self.rule.deciding(Votes(self._ballot, store))
        while True:
            try:
                asked = next(asking)
            except StopIteration as stop:
                return [Play(decision, own) for decision, own in zip(stop.value, turns, strict=True)]
            new = store.missing(asked)
            if len(new):
                store.add(new, self._answers(passes.sets(new.passes), new.pictures, strategies, turns))

    def _answers(
        self, sets: IntArray, games: IntArray, strategies: Sequence[Strategy], turns: Sequence[list[Turn]]
    ) -> Tensor:
        """Outputs for new passes of the games, whose numbers rise, and for each game what its attacker cast."""
        free = ~hiding(sets, self.juries)
        picks = np.full(len(sets), CLEAN)
        begins = np.searchsorted(games, np.arange(len(strategies) + 1))
        for game, strategy in enumerate(strategies):
            mine = begins[game] + np.flatnonzero(free[begins[game] : begins[game + 1]])
            if len(mine):
                picks[mine] = strategy(sets[mine])
        picks[free & (picks == CLEAN) & ~self._voted(sets)] = 0
        left = picks == CLEAN
        outputs = self.palette[torch.from_numpy(picks)]
        outputs[torch.from_numpy(left)] = self.votes.of(sets[left])
        for game, own in enumerate(turns):
            mine = begins[game] + np.flatnonzero(~left[begins[game] : begins[game + 1]])
            if len(mine):
                own.append((sets[mine], self.palette[torch.from_numpy(picks[mine])]))
        return outputs

    def _voted(self, sets: IntArray) -> BoolArray:
        """Which passes have a clean vote, ``[n]``."""
        ask = Ask(np.zeros(len(sets), dtype=np.int64), self.votes.ballot.numbers(sets))
        return np.asarray(self.votes.store.slots(*ask) >= 0)

    def every_play(self) -> Iterator[Play]:
        """All games, over every row of the palette for every free pass that the rule comes to ask for, each once."""
        waiting: list[Iterator[Line]] = [iter([Line()])]
        while waiting:
            lines = list(islice(waiting[-1], self.at_once))
            if not lines:
                waiting.pop()
                continue
            yield from self.played(lines)
            waiting += [line.others(len(self.palette)) for line in lines]


class Line:
    """A line of play: rows of the palette for the first free passes that are asked for, then the first row."""

    def __init__(self, picks: tuple[int, ...] = ()) -> None:
        self.picks, self.used = picks, 0

    def __call__(self, passes: IntArray) -> IntArray:
        begin, self.used = self.used, self.used + len(passes)
        own = self.picks[begin : self.used]
        return np.array([*own, *[0] * (len(passes) - len(own))], dtype=np.int64)

    def others(self, rows: int) -> Iterator[Line]:
        """The lines that leave this one, once it was played, where it took the first row of its own accord."""
        for count in range(self.used - len(self.picks)):
            before = self.picks + (0,) * count
            yield from (Line((*before, row)) for row in range(1, rows))


def juries_of(districts: Districts, district: District) -> list[IntArray]:
    """The masks that hide each of one or more places."""
    return [np.array(districts.jury(place), dtype=np.int64) for place in np.atleast_1d(district).tolist()]


def hiding(sets: IntArray, juries: Sequence[IntArray]) -> BoolArray:
    """Which sets of masks ``[n, width]`` have one of each jury, ``[n]``."""
    return np.asarray(np.stack([np.isin(sets, jury).any(axis=1) for jury in juries]).all(axis=0))


def outputs_for(classes: Sequence[int], count: int) -> Tensor:
    """Certain answers for some classes, then answers that hardly lean to them, then silence: ``[rows, count]``."""
    certain = torch.eye(count)[list(classes)]
    return torch.cat([certain, (0.01 * certain).softmax(dim=1), torch.zeros(1, count)])


def outputs_at(thresholds: Sequence[float], classes: Sequence[int], count: int) -> Tensor:
    """Votes for some classes that lead the next one by exactly a threshold, and by a unit more: ``[rows, count]``."""
    rows = []
    for lead in sorted({round(threshold / UNIT) * UNIT for threshold in thresholds if threshold < 1}):
        for label in classes:
            for own in (lead, min(lead + UNIT, 1.0)):
                row = torch.zeros(count, dtype=torch.float64)
                row[(label + 1) % count] = rest = round((1 - own) / 2 / UNIT - 0.5) * UNIT
                row[label] = rest + own
                rows.append(row.float())
    return torch.stack(rows) if rows else torch.empty(0, count)


def turning(masks: IntArray, row: int) -> Strategy:
    """Turn the passes whose masks are all among ``masks`` (and the bare one); leave the others alone."""
    return lambda passes: np.where(np.isin(passes, np.append(masks, -1)).all(axis=1), row, CLEAN)


def siding(juries: Sequence[IntArray], row: int) -> Strategy:
    """Turn the passes that hide what these juries do; leave the others alone."""
    return lambda passes: np.where(hiding(passes, juries), row, CLEAN)


def layered(levels: IntArray, coarse: int, fine: int) -> Strategy:
    """One output for passes with a mask of a level before the last, another for all others, the bare one's too."""
    early = np.append(levels < levels.max(), False)
    return lambda passes: np.where(early[passes].any(axis=1), coarse, fine)


def level_strategies(game: VoteGame) -> Iterator[Strategy]:
    """For every output: turn all votes of one level, of all but the last, of the last; and every output for coarse
    votes beside every certain one for the finest, so that leads lie below, exactly at and above every threshold."""
    levels, free = levels_of(game.votes.cover), game.free_masks
    certain = [row for row, output in enumerate(game.palette) if output.max() == 1]
    for row in range(len(game.palette)):
        for level in range(levels.max() + 1):
            yield turning(free[levels[free] == level], row)
        yield layered(levels, row, CLEAN)
        yield layered(levels, CLEAN, row)
        for fine in certain:
            yield layered(levels, row, fine)


def known_strategies(game: VoteGame, chance: np.random.Generator) -> Iterator[Strategy]:
    """For every output: turn all; the bare picture alone; spare one mask; turn masks with exactly k votes; turn ever
    more masks; side with the jury of one other district wherever it takes part, so that one dissenter wins all duels
    but those out of reach. Where there are levels, what is known to push votes across thresholds."""
    free, districts, patches = game.free_masks, game.votes.cover.districts, len(game.juries)
    if any(thresholds_of(game.rule, game.votes.cover)):
        yield from level_strategies(game)
    for row in range(len(game.palette)):
        yield turning(free, row)
        yield turning(free[:0], row)
        for spared in chance.permutation(free)[:SPARED]:
            yield turning(free[free != spared], row)
        exactly = votes_summing_to(np.array(game.votes.cover.copies)[free], game.votes.cover.k)
        if exactly is not None:
            yield turning(free[exactly], row)
        order = chance.permutation(free)
        for count in _counts(len(free), game.votes.cover.k):
            yield turning(order[:count], row)
        others = chance.permutation(len(districts))[: SPARED * patches].tolist()
        for start in range(0, len(others), patches):
            yield siding(juries_of(districts, tuple(others[start : start + patches])), row)


def random_strategies(game: VoteGame, count: int, chance: np.random.Generator) -> Iterator[Strategy]:
    """Outputs drawn at random, with a favourite that is preferred more or less."""
    for _ in range(count):
        favourite, zeal = int(chance.integers(len(game.palette))), chance.choice([0.0, 0.5, 0.8, 0.95])

        def strategy(passes: IntArray, favourite: int = favourite, zeal: float = zeal) -> IntArray:
            other = chance.integers(CLEAN, len(game.palette), size=len(passes))
            return np.where(chance.random(len(passes)) < zeal, favourite, other)

        yield strategy


def votes_summing_to(weights: IntArray, total: int) -> IntArray | None:
    """Positions whose weights add up to ``total`` exactly; None if there are none."""
    last = {0: -1}
    for position, weight in enumerate(weights.tolist()):
        for reached in sorted(last, reverse=True):
            if reached + weight <= total:
                last.setdefault(reached + weight, position)
    if total not in last:
        return None
    chosen = []
    while total:
        chosen.append(last[total])
        total -= int(weights[last[total]])
    return np.array(chosen, dtype=np.int64)


def _counts(free: int, k: int) -> list[int]:
    """How many masks to turn: around k, half of them, and nearly all."""
    wanted = {1, 2, k - 1, k, k + 1, free // 2, free // 2 + 1, free - 2, free - 1}
    return sorted(count for count in wanted if 0 < count < free)
