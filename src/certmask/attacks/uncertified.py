"""Photos that are answered rightly and not certified: how often a patch changes the answer, for each last resort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from certmask.attacks.attack import defence_judge
from certmask.attacks.attempts import Attempt, Budget, Prospect, places_for, planned
from certmask.attacks.goals import LAST_RESORT, goals_against
from certmask.certificate import Decision
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence
from certmask.engine import Engine
from certmask.rules.registry import rule_from
from certmask.rules.tournament import LAST_RESORTS

CANDIDATES = 3
"""How many times as many photos are looked at as are attacked: not every last resort answers all of them rightly."""


def with_each_resort(defence: RuledDefence) -> list[RuledDefence]:
    """The defence with either last resort, under names of their own; as it is, if its rule knows none."""
    told = defence.rule.describe()
    if "last_resort" not in told or isinstance(defence, LocalDefence):
        return [replace(defence, name=f"{defence.name}, uncertified")]
    rules = {resort: rule_from({**told, "last_resort": resort}) for resort in LAST_RESORTS}
    return [replace(defence, rule=rule, name=f"{defence.name}, last resort {name}") for name, rule in rules.items()]


def answered_rightly(
    engine: Engine, defences: Sequence[RuledDefence], prospects: Sequence[Prospect], photos: Mapping[str, Tensor]
) -> list[Prospect]:
    """Those whose clean photos every one of the defences answers with the true class, and without an alert."""
    kept = list(prospects)
    for defence in defences:
        if kept:
            decisions = defence_judge(engine, defence)(torch.stack([photos[one.image] for one in kept]))
            kept = [one for one, found in zip(kept, decisions, strict=True) if found == Decision(one.label)]
    return kept


def plan_uncertified(defences: Sequence[RuledDefence], prospects: Sequence[Prospect], budget: Budget) -> list[Attempt]:
    """The same attempts on the same photos against each of the defences, which differ in their last resort alone.

    Places, goals and steps are the same for each; the pixels of a patch are found against the one at hand.
    """
    masked = isinstance(defences[0], MaskedDefence)
    goals = (*((LAST_RESORT,) if masked else ()), *goals_against(defences[0]))
    places = places_for(defences[0].threat.count)
    return [
        attempt
        for defence in defences
        for attempt in planned(defence.name, prospects, goals, budget, certified=False, places=places)
    ]
