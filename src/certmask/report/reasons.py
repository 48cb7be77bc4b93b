"""Why a photo has no certificate, and what an attack did to one that has: in words, from rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from certmask.certificate import BASES, Guarantee
from certmask.results.file import Row
from certmask.results.run import Run

TWO_ROUNDS = ("jury recovery", "patchcleanser")
"""Rules that look at pairs of masks only after every mask alone has passed."""


def shortfall(run: Run, row: Row, defence: str, class_name: Callable[[int], str]) -> str:
    """Why a defence has no certificate for an image, as far as the row knows."""
    if run.guarantee(defence) is Guarantee.NONE:
        return "without a defence nothing is certified"
    outcome = row["defences"][defence]
    right = outcome["label"] == row["label"]
    reasons = [] if right else [f"answers {class_name(outcome['label'])} without any patch"]
    if "photo" in row and row["photo"].get("threat", row) is None:
        return "; ".join([*reasons, "in this photo the patch reaches too much of the input"])
    cover = run.cover(defence, row)
    if outcome.get("weakest"):
        reasons.append(weak_point(outcome["weakest"], False, level_masks(cover)))
    elif cover:
        reasons.append(_votes(run.defences[defence]["rule"], cover["masks"], outcome, right))
    if outcome.get("basis"):
        reasons.append(f"the answer is {outcome['basis']} ({BASES[outcome['basis']]})")
    bare = [row["defences"][name]["label"] for name in run.defences if run.guarantee(name) is Guarantee.NONE]
    if bare:
        wrong = bare[0] != row["label"]
        reasons.append("the undefended answer is wrong already" if wrong else "the undefended answer is right")
    return "; ".join(reasons or ["why is not on record"])


def level_masks(cover: Row | None) -> list[list[int]]:
    """The size of each level's masks, coarse to fine; none for a cover of one level."""
    return [level["mask"] for level in (cover or {}).get("levels", [])]


def weak_point(weakest: Row, proved: bool, levels: Sequence[Sequence[int]]) -> str:
    """Where a proof is weakest, or fails, and by how much; ``levels`` are the masks' sizes, coarse to fine."""
    where = {1: "place", 2: "pair of places"}.get(len(weakest["places"]), "set of places")
    lead, level = f"{weakest['lead']:.2f}".replace("-", "−"), weakest["level"]
    said = f"the proof {'is weakest' if proved else 'fails'} at this {where} (lead {lead}"
    if level >= len(levels):
        return f"{said})"
    return f"{said}, judged by masks of {levels[level][0]}×{levels[level][1]}, level {level + 1} of {len(levels)})"


def _votes(rule: Row, masks: int, outcome: Row, right: bool) -> str:
    """What the masks' votes say about a proof that failed."""
    dissent = outcome["dissent"]
    if rule["rule"] in TWO_ROUNDS and outcome["certificate_passes"] > masks:
        return "the proof holds under one mask at a time and fails under two at once"
    if dissent:
        return f"{dissent:,} of {masks:,} masks {'votes' if dissent == 1 else 'vote'} otherwise"
    if not right:
        return f"all {masks:,} masks say so"
    asked = [f"{name} {rule[name]}" for name in ("threshold", "margin") if rule.get(name)]
    return f"all {masks:,} masks say so, but not clearly enough" + (f" ({', '.join(asked)})" if asked else "")


def attack_outcome(guarantee: Guarantee, broken: bool) -> tuple[str, str]:
    """What became of a promise under an attempt, and what was promised."""
    if guarantee is Guarantee.NONE:
        return f"label {'changed' if broken else 'kept'}", "no certificate to break"
    if guarantee is Guarantee.PUBLISHED:
        return f"label {'changed' if broken else 'kept'}", "the clean photo passes the published test: no guarantee"
    return f"certificate {'broken' if broken else 'held'}", f"the clean photo is certified ({guarantee.value})"


def kept_pictures(attempts: int, kept: int, missing: int, shown: int, folder: str) -> str:
    """How many attempts kept a picture, how many of these are shown, and how many are missing from their folder."""
    which = "certmask attack keeps those that changed an answer, as many per rule as --save says."
    if not kept:
        return f"No picture is shown: none of {attempts:,} attempts kept one; {which}"
    absent = f" {missing:,} {'is' if missing == 1 else 'are'} missing from {folder}." if missing else ""
    return f"{shown:,} of {kept:,} kept pictures are shown, at most one per photo and defence; {which}{absent}"
