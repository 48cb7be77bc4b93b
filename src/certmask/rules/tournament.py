"""Duels between hypotheses "the patch is here, so the class is this": the second round of every recovery rule."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import numpy as np

from certmask.certificate import NO_CLASS, Decision
from certmask.errors import CertmaskError, any_of
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, T, majorities, majority
from certmask.votes import BoolArray, Votes

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
"""Who answers where no hypothesis is unbeaten: the picture as it came, or what most hypotheses claim."""

FIRST_RIVALS, MORE_RIVALS = 4, 4
"""How many rivals a champion meets at first, and how many times as many in each round after."""


def checked_resort(last_resort: str) -> str:
    """The name of a last resort."""
    if last_resort not in LAST_RESORTS:
        raise CertmaskError(f"expected last_resort to be {any_of(LAST_RESORTS)}, got {last_resort!r}")
    return last_resort


def recovered(votes: Votes, claims: IntArray, referee: Referee, last_resort: str) -> Asking[list[Decision]]:
    """Answer what an unbeaten hypothesis claims, of ``claims [pictures, hypotheses]``, else ask the last resort.

    Where all claims are one class, whoever is unbeaten claims it, and nobody need duel.
    """
    spoken = claims != NO_CLASS
    answers = np.where(spoken.any(axis=1), claims.max(axis=1, initial=NO_CLASS), NO_CLASS)
    split = np.flatnonzero((spoken & (claims != answers[:, None])).any(axis=1))
    bases = np.full(len(claims), "unanimous", dtype=object)
    if len(split):
        answers[split] = yield from unbeaten(claims[split], split, referee)
        bases[split] = "unbeaten"
    lost = np.flatnonzero(answers == NO_CLASS)
    if len(lost):
        answers[lost], bases[lost] = majorities(claims[lost]), "majority"
    if len(lost) and last_resort == "bare":
        bare = votes.ballot.bare[None]
        yield votes.ask(bare, lost)
        said = votes.heads(bare, lost).labels[:, 0]
        answers[lost] = np.where(said == NO_CLASS, answers[lost], said)
        bases[lost] = np.where(said == NO_CLASS, bases[lost], "bare")
    found = zip(answers.tolist(), bases.tolist(), strict=True)
    return [Decision(label, alert=label == NO_CLASS, basis=basis) for label, basis in found]


def unbeaten(claims: IntArray, pictures: IntArray, referee: Referee) -> Asking[IntArray]:
    """What an unbeaten hypothesis claims, of ``claims [n, hypotheses]`` about pictures ``[n]``; no class without one.

    A champion meets every rival with another claim, few at first; who beats it, and was never beaten, is the next one.
    A duel strikes out whichever side its outcome does not confirm, so each champion that loses leaves fewer to try.
    A hypothesis whose votes are silent claims nothing and is no rival.
    """
    spoken = claims != NO_CLASS
    alive, answers = spoken.copy(), np.full(len(claims), NO_CLASS)
    champions, met = _favourites(claims, alive), np.zeros(claims.shape, dtype=bool)
    at_once = np.full(len(claims), FIRST_RIVALS)
    left = np.arange(len(claims))
    while len(left):
        own = claims[left, champions[left]]
        rivals = spoken[left] & (claims[left] != own[:, None]) & ~met[left]
        answers[left[~rivals.any(axis=1)]] = own[~rivals.any(axis=1)]
        who, rival = np.nonzero(rivals & (np.cumsum(rivals, axis=1) <= at_once[left, None]))
        place = left[who]
        if not len(place):
            break
        outcome = yield from referee(pictures[place], np.stack([champions[place], rival], axis=1))
        met[place, rival] = True
        at_once[left] *= MORE_RIVALS
        alive[place, rival] &= outcome == claims[place, rival]
        lost = np.unique(place[outcome != own[who]])
        alive[lost, champions[lost]] = False
        champions[lost] = _favourites(claims[lost], alive[lost])
        won = (outcome == claims[place, rival]) & alive[place, rival]
        champions[place[won][::-1]] = rival[won][::-1]
        met[lost], at_once[lost] = False, FIRST_RIVALS
        left = left[(answers[left] == NO_CLASS) & alive[left].any(axis=1)]
    return answers


def _favourites(claims: IntArray, alive: BoolArray) -> IntArray:
    """The first hypothesis of the class that most of those alive claim, ``[pictures]``."""
    wanted = majorities(np.where(alive, claims, NO_CLASS))
    return np.asarray((alive & (claims == wanted[:, None])).argmax(axis=1))


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
