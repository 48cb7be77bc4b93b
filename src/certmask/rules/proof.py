"""Proofs: every question about a picture must be answered by its label; the most doubtful are asked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from certmask.certificate import NO_CLASS, Weakest
from certmask.geometry import IntArray
from certmask.passes import NONE, Ask
from certmask.rules.aggregates import Aggregate, Leads
from certmask.rules.levels import Levels, Questions
from certmask.rules.rule import Asking, Proofs
from certmask.rules.verdicts import LAST, Pools, Told, told
from certmask.votes import BoolArray, Votes

FIRST_BLOCK, GROWTH = 32, 4
"""How many questions about a picture are asked before the first chance to stop, and how many times as many each time
after."""


class Asked(NamedTuple):
    """Questions about pictures, ``[n]`` each, with how sure their answers seem beforehand."""

    pictures: IntArray
    levels: IntArray
    questions: IntArray
    sureness: Leads

    def of(self, which: IntArray | BoolArray) -> Asked:
        """Some of them."""
        return Asked(self.pictures[which], self.levels[which], self.questions[which], self.sureness[which])

    @classmethod
    def nothing(cls) -> Asked:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, np.empty(0))

    @classmethod
    def joined(cls, parts: list[Asked]) -> Asked:
        """All of these."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass
class Course:
    """How the proofs about a cohort's pictures stand, ``[pictures]`` each.

    ``lead`` is the smallest lead of the label with which a question was settled, at the level ``level``, about
    ``thing``; where a proof has failed, it is not positive, and it failed there.
    """

    proved: BoolArray
    lead: Leads
    level: IntArray
    thing: IntArray

    @classmethod
    def begun(cls, pictures: BoolArray) -> Course:
        """Nothing is asked yet; about some pictures, nothing will be."""
        count = len(pictures)
        return cls(pictures.copy(), np.full(count, np.inf), np.zeros(count, int), np.zeros(count, int))

    def note(self, pictures: IntArray, leads: Leads, level: int, things: IntArray) -> None:
        """Remember the smallest of these leads of each picture and of those before; of equals the first thing."""
        order = np.lexsort((things, leads, pictures))
        who, first = np.unique(pictures[order], return_index=True)
        least = order[first]
        earlier = (leads[least] == self.lead[who]) & (things[least] < self.thing[who])
        weaker = (leads[least] < self.lead[who]) | earlier
        who, least = who[weaker], least[weaker]
        self.lead[who], self.level[who], self.thing[who] = leads[least], level, things[least]


@dataclass
class Prover:
    """Asks questions about pictures, clean ones, and whether the answers are the ``labels [pictures]``.

    At a level, an answer counts as settled where its lead exceeds the level's threshold; else the next level is asked.
    With a margin, whatever may happen must be right: where a lead is within the margin of the threshold, both.
    """

    aggregate: Aggregate
    claim_thresholds: tuple[float, ...]
    duel_thresholds: tuple[float, ...]
    margin: float
    votes: Votes
    labels: IntArray

    def detection(self, levels: Levels, last: float = LAST) -> Asking[Proofs]:
        """Whether every hypothesis claims the label, or nothing where the last lead does not exceed ``last``."""
        return (yield from self._by_steps(levels, partial(self._detection, levels, last)))

    def recovery(self, levels: Levels) -> Asking[Proofs]:
        """Whether every hypothesis claims the label, and every pair of them, too."""
        return (yield from self._by_steps(levels, partial(self._recovery, levels)))

    def _by_steps(self, levels: Levels, prove: Callable[[BoolArray, int | None], Asking[Proofs]]) -> Asking[Proofs]:
        """The proof against the whole threat; where it has steps, from the last one down until one is proved.

        For a step, the questions are about places of its size, and pairs of which one is: the other is of any size.
        """
        everyone = np.ones(len(self.labels), dtype=bool)
        if not levels.steps:
            return (yield from prove(everyone, None))
        whole = yield from prove(everyone, levels.steps - 1)
        proved = np.where(whole.holds, levels.steps, 0)
        for step in reversed(range(levels.steps - 1)):
            if (proved == 0).any():
                found = yield from prove(proved == 0, step)
                proved[found.holds] = step + 1
        return whole._replace(steps=proved)

    def _detection(self, levels: Levels, last: float, pictures: BoolArray, step: int | None) -> Asking[Proofs]:
        course = Course.begun(pictures)
        yield from self.prove(levels.claims(step), self.claim_thresholds, course, last=last)
        return _proofs(levels, course)

    def _recovery(self, levels: Levels, pictures: BoolArray, step: int | None) -> Asking[Proofs]:
        claims, duels = Course.begun(pictures), Course.begun(pictures)
        asked = levels.claims(step)
        leads = yield from self.prove(asked, self.claim_thresholds, claims)
        duels.proved = claims.proved
        if duels.proved.any() and len(levels.opponents):
            known = np.zeros((len(leads), levels.hypotheses))
            known[:, asked.asked] = leads[:, asked.roots]
            both = levels.opponents[levels.duels(step).things(0)]
            sureness = known[:, both[:, 0]] + known[:, both[:, 1]]
            yield from self.prove(levels.duels(step), self.duel_thresholds, duels, sureness)
        return _proofs(levels, claims, duels)

    def prove(
        self,
        questions: Questions,
        thresholds: Sequence[float],
        course: Course,
        sureness: Leads | None = None,
        last: float = LAST,
    ) -> Asking[Leads]:
        """Go through all questions about every picture whose proof stands; returns the leads at the first level.

        ``sureness [pictures, questions of the first level]`` says beforehand how sure the answers seem: the least sure
        are asked first, in growing blocks, and what is open goes before what was never asked. Without it, all questions
        of a level are asked at once.
        """
        count = questions.count(0)
        leads = np.full((len(course.proved), count), np.inf)
        order = None
        if sureness is not None:
            order = np.zeros(sureness.shape, dtype=np.int64)
            order[course.proved] = np.argsort(sureness[course.proved], axis=1, kind="stable")
        block = count if sureness is None else FIRST_BLOCK
        begun = np.zeros(len(course.proved), dtype=np.int64)
        waiting = Asked.nothing()
        while True:
            begun[~course.proved] = count
            now, waiting = _least_sure(waiting.of(course.proved[waiting.pictures]), block)
            fresh = np.flatnonzero((begun < count) & (np.bincount(now.pictures, minlength=len(begun)) == 0))
            now = Asked.joined([now, _roots(order, begun[fresh], fresh, block, count)])
            begun[fresh] += block
            if not len(now.pictures):
                return leads
            opened = yield from self._ask(questions, (*thresholds, last), now, course, leads)
            waiting = Asked.joined([waiting, *opened])
            block *= GROWTH

    def _ask(
        self, questions: Questions, thresholds: Sequence[float], now: Asked, course: Course, leads: Leads
    ) -> Asking[list[Asked]]:
        """Ask some questions; returns those of the next levels that are open then."""
        levels = np.unique(now.levels).tolist()
        parts = [now.of(now.levels == level) for level in levels]
        pools = [Pools(p.pictures, questions.passes(p.questions, n)) for p, n in zip(parts, levels, strict=True)]
        yield Ask.joined(self.votes.ask(pool.passes, pool.pictures) for pool in pools)
        opened = []
        for level, part, pool in zip(levels, parts, pools, strict=True):
            own = self.labels[pool.pictures]
            said = told(self.aggregate, self.votes, pool, own, self.margin, thresholds[level])
            if level == 0:
                leads[part.pictures, part.questions] = said.leads
            if level == len(thresholds) - 1:
                said = self._at_the_end(pool, said)
            course.proved[part.pictures[said.wrong]] = False
            closed = said.wrong | ~said.open
            things = questions.things(level)[part.questions[closed]]
            course.note(part.pictures[closed], said.leads[closed], level, things)
            if said.open.any() and level < len(thresholds) - 1:
                opened.append(_below(questions, part.of(said.open), said.leads[said.open], level))
        return opened

    def _at_the_end(self, pools: Pools, said: Told) -> Told:
        """What pools of the last level say: one in doubt settles nothing, unless it is silent; that proves nothing."""
        if not said.open.any():
            return said
        labels = self.votes.heads(pools.passes, pools.pictures).labels
        silent = np.asarray(((labels == NO_CLASS) | (pools.passes == NONE)).all(axis=1))
        return said._replace(wrong=said.wrong | (said.open & silent))


def _proofs(levels: Levels, *courses: Course) -> Proofs:
    """What courses about places, and about pairs of them, prove together; none is weakest where all are in doubt."""
    weakest: list[Weakest | None] = []
    for picture in range(len(courses[0].proved)):
        pairs, course = min(enumerate(courses), key=lambda one: float(one[1].lead[picture]))
        thing, lead = course.thing[picture], float(course.lead[picture])
        hypotheses = levels.opponents[thing] if pairs else np.array([thing])
        found = levels.weakest(hypotheses, lead, int(course.level[picture])) if lead < np.inf else None
        weakest.append(found)
    return Proofs(courses[-1].proved, weakest)


def _below(questions: Questions, asked: Asked, leads: Leads, level: int) -> Asked:
    """The questions of the next level below these, as sure as these were."""
    children, parents = questions.children(asked.questions, level)
    return Asked(asked.pictures[parents], np.full(len(children), level + 1), children, leads[parents])


def _roots(order: IntArray | None, begun: IntArray, pictures: IntArray, block: int, count: int) -> Asked:
    """The next block of questions of the first level about each of these pictures."""
    places = begun[:, None] + np.arange(min(block, count))
    who, which = np.nonzero(places < count)
    places = places[who, which]
    chosen = places if order is None else order[pictures[who], places]
    return Asked(pictures[who], np.zeros(len(who), dtype=np.int64), chosen, np.zeros(len(who)))


def _least_sure(waiting: Asked, block: int) -> tuple[Asked, Asked]:
    """Of every picture the questions that are least sure, at most a block of them; and the rest."""
    if not len(waiting.pictures):
        return waiting, waiting
    waiting = waiting.of(np.lexsort((waiting.sureness, waiting.pictures)))
    _, first, counts = np.unique(waiting.pictures, return_index=True, return_counts=True)
    early = np.arange(len(waiting.pictures)) - np.repeat(first, counts) < block
    return waiting.of(early), waiting.of(~early)
