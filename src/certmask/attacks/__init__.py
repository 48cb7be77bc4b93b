"""Patch attacks on a classifier and on a whole defence, and the vote-space worst case."""

from certmask.attacks.adaptive import AdaptiveAttack
from certmask.attacks.attack import Attack, Attacked, Job, breaks, classifier_judge, defence_judge
from certmask.attacks.descent import Descent
from certmask.attacks.patch_attack import PatchAttack
from certmask.attacks.random_search import RandomSearch
from certmask.attacks.surrogate import Surrogate
from certmask.attacks.universal import UniversalPatch
from certmask.attacks.worst_case import Harm, WorstCase, worst_case

__all__ = [
    "AdaptiveAttack",
    "Attack",
    "Attacked",
    "Descent",
    "Harm",
    "Job",
    "PatchAttack",
    "RandomSearch",
    "Surrogate",
    "UniversalPatch",
    "WorstCase",
    "breaks",
    "classifier_judge",
    "defence_judge",
    "worst_case",
]
