"""The worst that any patch could do to a rule, in the space of votes: no network, no pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import numpy as np
from torch import Tensor

from certmask.attacks.strategies import known_strategies, random_strategies
from certmask.attacks.vote_game import Turned, VoteGame, outputs_for
from certmask.certificate import Decision
from certmask.errors import AttackError
from certmask.rules import Rule
from certmask.votes import Votes

FEW_CLASSES = 4


class Harm(IntEnum):
    """What an attack achieved, from least to worst."""

    UNCHANGED = 0
    ALERT = 1
    WRONG = 2


@dataclass(frozen=True)
class WorstCase:
    """The worst decision that was found, the district it takes a patch in, and the votes that do it.

    ``exact`` says that nothing is worse: a wrong class without an alert was found, or every attack was tried that
    the palette allows. Otherwise it is the worst of many that were tried.
    """

    harm: Harm
    decision: Decision
    district: int
    turned: Turned
    exact: bool


def worst_case(
    votes: Votes,
    rule: Rule,
    label: int,
    district: int | None = None,
    *,
    palette: Tensor | None = None,
    plays: int = 4000,
    seed: int = 0,
) -> WorstCase:
    """What an attacker with full control over the votes outside one jury can do to the clean ``votes`` of an image.

    Known strategies first, then every attack, up to ``plays`` of them; if that was not all, a tenth as many at random.
    Without a district, the worst of all. ``palette`` ``[rows, classes]`` lists the outputs to choose from.
    """
    classes = votes.outputs.shape[1]
    if not 0 <= label < classes:
        raise AttackError(f"expected a label from 0 to {classes - 1}, got {label}")
    if plays < 1:
        raise AttackError(f"expected at least 1 play, got {plays}")
    count = len(votes.cover.districts)
    if district is not None and not 0 <= district < count:
        raise AttackError(f"expected a district from 0 to {count - 1}, got {district}")
    palette = outputs_for(_relevant_classes(votes, label), classes) if palette is None else palette
    worst: WorstCase | None = None
    exact = True
    for place in range(count) if district is None else [district]:
        found = _worst_in(VoteGame(votes, rule, place, palette), label, place, plays, np.random.default_rng(seed))
        exact &= found.exact
        worst = found if worst is None or found.harm > worst.harm else worst
        if worst.harm is Harm.WRONG:
            return worst
    assert worst is not None  # a cover has at least one district
    return WorstCase(worst.harm, worst.decision, worst.district, worst.turned, exact)


def harm_of(decision: Decision, label: int) -> Harm:
    """A wrong class without an alert is worse than an alert, which is worse than nothing."""
    if decision.alert:
        return Harm.ALERT
    return Harm.UNCHANGED if decision.label == label else Harm.WRONG


def _worst_in(game: VoteGame, label: int, district: int, plays: int, chance: np.random.Generator) -> WorstCase:
    known = _worst_of((game.play(s) for s in known_strategies(game, chance)), label, district)
    if known is not None and known.harm is Harm.WRONG:
        return known
    runs = game.every_play()
    tree = _worst_of(islice(runs, plays), label, district)
    exact = next(runs, None) is None
    tried = [known, tree]
    if not exact:
        some = random_strategies(game, max(plays // 10, 1), chance)
        tried.append(_worst_of((game.play(s) for s in some), label, district))
    worst = max((found for found in tried if found is not None), key=lambda found: found.harm)
    return WorstCase(worst.harm, worst.decision, district, worst.turned, exact or worst.harm is Harm.WRONG)


def _worst_of(runs: Iterable[tuple[Decision, Turned]], label: int, district: int) -> WorstCase | None:
    """The worst run, stopping at a wrong class without an alert; None if there was no run at all."""
    worst: WorstCase | None = None
    for decision, turned in runs:
        harm = harm_of(decision, label)
        if worst is None or harm > worst.harm:
            worst = WorstCase(harm, decision, district, turned, harm is Harm.WRONG)
        if harm is Harm.WRONG:
            break
    return worst


def _relevant_classes(votes: Votes, label: int) -> list[int]:
    """The label and the classes worth turning votes to: all if they are few, else those that ties and votes favour."""
    classes = votes.outputs.shape[1]
    if classes <= FEW_CLASSES:
        return list(range(classes))
    heads: Iterator[int] = (int(head) for head in votes.store.heads()[:, 0])
    common = [head for head, _ in Counter(head for head in heads if head != label).most_common(1)]
    return list(dict.fromkeys([*common, 0, classes - 1, *([1] if label == 0 else []), label]))
