"""The worst that any patch could do to a rule, in the space of votes: no network, no pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain, combinations, islice

import numpy as np
import torch
from torch import Tensor

from certmask.attacks.levels import thresholds_of
from certmask.attacks.means import check_allowed
from certmask.attacks.vote_game import (
    District,
    Play,
    Turned,
    VoteGame,
    known_strategies,
    outputs_at,
    outputs_for,
    random_strategies,
)
from certmask.certificate import NO_CLASS, Decision
from certmask.errors import AttackError
from certmask.geometry import Districts, find_districts
from certmask.rules import Rule
from certmask.threat import Patch
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
    the palette allows. Otherwise it is the worst of many that were tried. Several patches take several districts.
    """

    harm: Harm
    decision: Decision
    district: District
    turned: Turned
    exact: bool


def worst_case(
    votes: Votes,
    rule: Rule,
    label: int,
    district: District | None = None,
    *,
    patch: Patch | None = None,
    palette: Tensor | None = None,
    plays: int = 4000,
    seed: int = 0,
) -> WorstCase:
    """What an attacker with full control over the votes outside one jury can do to the clean ``votes`` of an image.

    Against several patches, over the votes that do not hide all of as many districts. ``patch`` is what the attacker
    has, where that is less than the threat, such as one of the size for which an image is certified; districts are
    then those of this patch.
    Known strategies first, then every attack, up to ``plays`` of them; if that was not all, a tenth as many at random.
    Without a district, the worst of all. ``palette`` ``[rows, classes]`` lists the outputs to choose from; by default
    certain, faint and silent ones and, for a rule with levels, such as lead by exactly a threshold.
    """
    classes = votes.outputs.shape[1]
    if not 0 <= label < classes:
        raise AttackError(f"expected a label from 0 to {classes - 1}, got {label}")
    if plays < 1:
        raise AttackError(f"expected at least 1 play, got {plays}")
    districts, count = _districts(votes, patch), (patch or votes.cover.threat).count
    places: Iterable[District] = [district] if district is not None else _places(len(districts), count)
    if district is not None:
        _check_district(district, len(districts), count)
    palette = _outputs(votes, rule, label) if palette is None else palette
    games = (VoteGame(votes, rule, place, palette, districts) for place in places)
    return _worst(_worst_in(game, label, plays, np.random.default_rng(seed)) for game in games)


def _districts(votes: Votes, patch: Patch | None) -> Districts:
    """Where a patch may be: those of the cover, or of a patch within what that is against."""
    cover = votes.cover
    if patch is None:
        return cover.districts
    check_allowed(patch, cover.threat, cover.image)
    return find_districts(cover.image, patch, cover.masks)


def _places(districts: int, count: int) -> Iterable[District]:
    """Every district, or every choice of so many: who has fewer can do less."""
    return range(districts) if count == 1 else combinations(range(districts), min(count, districts))


def _check_district(district: District, districts: int, count: int) -> None:
    """An error unless there are such places, no more than there are patches."""
    places = np.atleast_1d(district).tolist()
    if not all(0 <= place < districts for place in places):
        raise AttackError(f"expected a district from 0 to {districts - 1}, got {district}")
    if not 1 <= len(places) <= count:
        raise AttackError(f"expected districts of at most {count} patches, got {len(places)}")


def harm_of(decision: Decision, label: int) -> Harm:
    """A wrong class without an alert is worse than an alert, which is worse than nothing."""
    if decision.alert:
        return Harm.ALERT
    return Harm.UNCHANGED if decision.label == label else Harm.WRONG


def _worst_in(game: VoteGame, label: int, plays: int, chance: np.random.Generator) -> WorstCase:
    """The worst of known strategies and of every play in one district; if those are too many, of chance as well."""
    every = game.every_play()
    known = game.played(known_strategies(game, chance))
    worst = _worst(_cases(game, chain(known, islice(every, plays)), label))
    if worst.exact or next(every, None) is None:
        return replace(worst, exact=True)
    some = game.played(random_strategies(game, max(plays // 10, 1), chance))
    return max(worst, _worst(_cases(game, some, label)), key=lambda case: case.harm)


def _cases(game: VoteGame, plays: Iterable[Play], label: int) -> Iterator[WorstCase]:
    """The plays that are worse than all before them."""
    worst: Harm | None = None
    for play in plays:
        harm = harm_of(play.decision, label)
        if worst is None or harm > worst:
            worst = harm
            yield WorstCase(harm, play.decision, game.district, play.turned, exact=harm is Harm.WRONG)


def _worst(cases: Iterable[WorstCase]) -> WorstCase:
    """The worst of one or more, exact if all of them are; looks no further than a wrong class without an alert."""
    worst, exact = None, True
    for case in cases:
        exact &= case.exact
        worst = case if worst is None or case.harm > worst.harm else worst
        if case.harm is Harm.WRONG:
            return case
    assert worst is not None
    return replace(worst, exact=exact)


def _outputs(votes: Votes, rule: Rule, label: int) -> Tensor:
    """What an attacker chooses from, where nobody says otherwise, ``[rows, classes]``."""
    classes, count = _relevant_classes(votes, label), votes.outputs.shape[1]
    thresholds = [*chain(*thresholds_of(rule, votes.cover))]
    return torch.cat([outputs_for(classes, count), outputs_at(thresholds, classes, count)])


def _relevant_classes(votes: Votes, label: int) -> list[int]:
    """The label and the classes worth turning votes to: all if they are few, else those that ties and votes favour."""
    classes = votes.outputs.shape[1]
    if classes <= FEW_CLASSES:
        return list(range(classes))
    heads = (int(head) for head in votes.store.heads()[:, 0])
    common = [head for head, _ in Counter(head for head in heads if head not in (label, NO_CLASS)).most_common(1)]
    return list(dict.fromkeys([*common, 0, classes - 1, *([1] if label == 0 else []), label]))
