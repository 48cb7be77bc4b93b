"""Patch attacks on a classifier and on a whole defence, and the worst case in the space of votes."""

from certmask.attacks.attack import Attack, Attacked, AttackEntry, Job, Needs, classifier_judge, defence_judge
from certmask.attacks.attempts import Budget
from certmask.attacks.descent import Descent, Surrogate
from certmask.attacks.patch_attack import AdaptiveAttack, EvidenceAttack, PatchAttack
from certmask.attacks.random_search import RandomSearch
from certmask.attacks.target import Target
from certmask.attacks.universal import UniversalPatch
from certmask.attacks.worst_case import Harm, WorstCase, worst_case

ATTACKS: dict[str, AttackEntry] = {
    "patch": AttackEntry(PatchAttack, Needs.GRADIENTS, "Descend on the pixels of a patch through the bare picture."),
    "adaptive": AttackEntry(
        AdaptiveAttack, Needs.DEFENCE, "Descend through a defence's masks, for what beats its rule."
    ),
    "evidence": AttackEntry(
        EvidenceAttack, Needs.EVIDENCE, "Descend through the scores that a rule makes of local evidence."
    ),
    "universal": AttackEntry(UniversalPatch, Needs.GRADIENTS, "Train one patch for many pictures and any place."),
    "random search": AttackEntry(RandomSearch, Needs.SCORES, "Keep random squares and moves of a patch that help."),
}

__all__ = [
    "ATTACKS",
    "AdaptiveAttack",
    "Attack",
    "AttackEntry",
    "Attacked",
    "Budget",
    "Descent",
    "EvidenceAttack",
    "Harm",
    "Job",
    "Needs",
    "PatchAttack",
    "RandomSearch",
    "Surrogate",
    "Target",
    "UniversalPatch",
    "WorstCase",
    "classifier_judge",
    "defence_judge",
    "worst_case",
]
