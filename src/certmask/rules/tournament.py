"""Duels between hypotheses "the patch is here, so the class is this": the second round of every recovery rule."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np

from certmask.certificate import NO_CLASS, Decision
from certmask.errors import CertmaskError, any_of
from certmask.geometry import IntArray
from certmask.rules.aggregates import Leads
from certmask.rules.rule import Asking, T, majorities, majority
from certmask.votes import Votes

Duelling = Generator[IntArray, IntArray, T]
"""A computation about one picture that yields pairs of hypotheses ``[n, 2]`` and is told the class that each pair's
common votes name, ``[n]``."""

Referee = Callable[[IntArray, IntArray], Asking[IntArray]]
"""Given pictures ``[n]`` and a pair of hypotheses about each, ``[n, 2]``, the class that their common votes name."""


def side_by_side(duellings: Iterable[Duelling[T]], referee: Referee) -> Asking[list[T]]:
    """One computation per picture, all their duels judged at once, round by round; their findings in order."""
    found: dict[int, T] = {}
    told: dict[int, IntArray | None] = {}
    running = dict(enumerate(duellings))
    while running:
        wanted: dict[int, IntArray] = {}
        for picture, duelling in list(running.items()):
            try:
                wanted[picture] = duelling.send(told.get(picture))  # type: ignore[arg-type]
            except StopIteration as stop:
                found[picture] = stop.value
                del running[picture]
        if wanted:
            counts = [len(pairs) for pairs in wanted.values()]
            outcomes = yield from referee(np.repeat(list(wanted), counts), np.concatenate(list(wanted.values())))
            told = dict(zip(wanted, np.split(outcomes, np.cumsum(counts)[:-1]), strict=True))
    return [found[picture] for picture in range(len(found))]


def tournament(claims: IntArray) -> Duelling[Decision]:
    """Strike out hypotheses until the survivors claim one class, and answer it; alert if none survives.

    ``claims[t]`` is the class of hypothesis ``t``. A duel strikes out whichever side its outcome does not confirm, so
    a hypothesis whose every duel confirms it survives. The rarest claim challenges the others, in rounds of 1, 2, 4, …
    duels. Survivors against the majority of claims must also have won against those that fell to others: where a
    certificate holds, one has; where none has, no patch explains the picture and the majority is the better answer.
    A hypothesis whose votes are silent claims no class and is out from the start.
    """
    alive = claims != NO_CLASS
    round_size = 1
    while alive.any() and (claims[alive] != claims[alive][0]).any():
        champion = _rarest(claims, alive)
        rivals = np.flatnonzero(alive & (claims != claims[champion]))[:round_size]
        outcome = yield _against(champion, rivals)
        alive[rivals] = claims[rivals] == outcome
        alive[champion] = bool((outcome == claims[champion]).all())
        round_size = 2 * round_size if alive[champion] else 1
    favourite = majority(claims)
    if not alive.any():
        return Decision(favourite, alert=True)
    claim = int(claims[alive][0])
    if claim == favourite or (yield from _some_unbeaten(np.flatnonzero(alive), claims)):
        return Decision(claim)
    return Decision(favourite)


def _some_unbeaten(survivors: IntArray, claims: IntArray) -> Duelling[bool]:
    """Whether one of the survivors wins against every hypothesis with another claim."""
    for survivor in survivors:
        rivals = np.flatnonzero(claims != claims[survivor])
        outcome = yield _against(survivor, rivals)
        if (outcome == claims[survivor]).all():
            return True
    return False


LAST_RESORTS = ("bare", "majority")
"""Who answers where no hypothesis of another class is unbeaten: the picture as it came, or what most of them claim."""


def checked_resort(last_resort: str) -> str:
    """The name of a last resort."""
    if last_resort not in LAST_RESORTS:
        raise CertmaskError(f"expected last_resort to be {any_of(LAST_RESORTS)}, got {last_resort!r}")
    return last_resort


def recovered(
    votes: Votes, claims: IntArray, leads: Leads, referee: Referee, last_resort: str
) -> Asking[list[Decision]]:
    """Answer what the last resort says, unless an unbeaten one of ``claims [pictures, hypotheses]`` objects.

    All unbeaten ones claim one class. If it is that of the last resort, looking for them changes nothing; so only those
    are looked for that claim another. Where all claims are one class, whoever is unbeaten claims it, and nobody duels.
    """
    spoken = claims != NO_CLASS
    answers = claims.max(axis=1, initial=NO_CLASS)
    bases = np.full(len(claims), "unanimous", dtype=object)
    split = np.flatnonzero((spoken & (claims != answers[:, None])).any(axis=1) | (answers == NO_CLASS))
    if len(split):
        answers[split], bases[split] = yield from _last_words(votes, claims[split], split, last_resort)
        objecting = [objection(claims[n], leads[n], int(answers[n])) for n in split]
        found = np.array((yield from side_by_side(objecting, lambda who, pairs: referee(split[who], pairs))))
        objects = found != NO_CLASS
        answers[split[objects]], bases[split[objects]] = found[objects], "unbeaten"
    said = zip(answers.tolist(), bases.tolist(), strict=True)
    return [Decision(label, alert=label == NO_CLASS, basis=basis) for label, basis in said]


def _last_words(
    votes: Votes, claims: IntArray, pictures: IntArray, last_resort: str
) -> Asking[tuple[IntArray, np.ndarray[Any, Any]]]:
    """What the last resort says about each picture, and its name: the majority where the bare picture is silent."""
    answers, bases = majorities(claims), np.full(len(claims), "majority", dtype=object)
    if last_resort == "bare":
        bare = votes.ballot.bare[None]
        yield votes.ask(bare, pictures)
        said = votes.heads(bare, pictures).labels[:, 0]
        answers, bases = np.where(said == NO_CLASS, answers, said), np.where(said == NO_CLASS, bases, last_resort)
    return answers, bases


DUELS_AT_ONCE = 4
"""Duels of a round; twice as many after a round that struck out nobody."""


def objection(claims: IntArray, leads: Leads, expected: int) -> Duelling[int]:
    """What an unbeaten one of ``claims [hypotheses]`` claims other than the class ``expected``; no class without one.

    Whoever wins against every hypothesis with another claim is unbeaten; a duel strikes out both sides that its outcome
    does not confirm. The answer does not depend on the order of duels, their number does: those who object with the
    smallest lead come first, against those who agree with the largest, and who has struck one out meets the next.
    A hypothesis whose votes are silent claims nothing and is no rival.
    """
    agrees = claims == expected
    rivals = np.lexsort((-leads, ~agrees))
    objectors = np.flatnonzero(~agrees & (claims != NO_CLASS))
    objectors = objectors[np.argsort(leads[objectors], kind="stable")]
    alive, unmet = ~agrees, (claims[:, None] != claims) & (claims != NO_CLASS)
    at_once = DUELS_AT_ONCE
    while len(objectors):
        some = objectors[:at_once]
        open_ = unmet[some[:, None], rivals]
        if not open_.any(axis=1).all():
            return int(claims[some[~open_.any(axis=1)][0]])
        who, next_ = np.nonzero(open_ & (np.cumsum(open_, axis=1) <= max(at_once // len(some), 1)))
        one, other = some[who], rivals[next_]
        outcome = yield np.stack([one, other], axis=1)
        unmet[one, other] = unmet[other, one] = False
        alive[one[outcome != claims[one]]] = alive[other[outcome != claims[other]]] = False
        objectors = objectors[alive[objectors]]
        strikers = other[outcome != claims[one]]
        at_once = DUELS_AT_ONCE if len(strikers) else 2 * at_once
        if len(strikers):
            rivals = np.append(majority(strikers), rivals[rivals != majority(strikers)])
    return NO_CLASS


def double_masking(labels: IntArray) -> Duelling[Decision]:
    """The dissenter whose every second mask agrees with it, else the majority of ``labels [masks]``.

    A silent mask is no dissenter; where all are silent there is no answer but an alert.
    """
    winner = majority(labels)
    for dissenter in np.flatnonzero((labels != winner) & (labels != NO_CLASS)):
        if ((yield _against(int(dissenter), np.arange(len(labels)))) == labels[dissenter]).all():
            return Decision(int(labels[dissenter]))
    return Decision(winner, alert=winner == NO_CLASS)


def _against(one: int, others: IntArray) -> IntArray:
    return np.stack([np.full_like(others, one), others], axis=1)


def _rarest(claims: IntArray, alive: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """The first surviving hypothesis of the class that fewest survivors claim."""
    counts = np.bincount(claims[alive]).astype(float)
    counts[counts == 0] = np.inf
    return int(np.flatnonzero(alive & (claims == counts.argmin()))[0])
