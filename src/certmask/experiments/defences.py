"""The defences that experiments compare, each in one line."""

from __future__ import annotations

from functools import partial

from certmask.experiments.experiment import Case
from certmask.rules import (
    AGGREGATES,
    JuryDetection,
    JuryRecovery,
    MinorityReports,
    PatchCleanser,
    Published,
    Undefended,
)
from certmask.threat import Size

THEOREM = "The first certifies whatever passes the second, by a theorem: only how much more it certifies is measured."
"""Of jury detection beside the published test on one cover."""


def undefended(paper: str = "") -> Case:
    return Case("undefended", "undefended", Undefended, "patchcleanser", per_axis=6, paper=paper)


def published(name: str, tiling: str, mask: int, fold: Size, paper: str = "", series: str = "published rule") -> Case:
    """The paper's rule and test: no guarantee against an adaptive attacker."""
    return Case(name, series, Published, tiling, fold, mask, paper=paper)


def jury_detection(name: str, tiling: str, mask: int, fold: Size, series: str = "jury detection") -> Case:
    return Case(name, series, JuryDetection, tiling, fold, mask)


def minority_reports(name: str, tiling: str, mask: int, fold: Size) -> Case:
    return Case(name, "Minority Reports", MinorityReports, tiling, fold, mask)


def patchcleanser(per_axis: int, challenger: bool = False, paper: str = "", series: str = "PatchCleanser") -> Case:
    """PatchCleanser's own grid."""
    name = f"PatchCleanser{' challenger' if challenger else ''} {per_axis}×{per_axis}"
    return Case(name, series, partial(PatchCleanser, challenger), "patchcleanser", per_axis=per_axis, paper=paper)


def two_mask_test(name: str, mask: int, fold: Size) -> Case:
    """PatchCleanser's rule on a k-fold cover: every pair must be right."""
    return Case(name, "PatchCleanser's rule", PatchCleanser, "spread", fold, mask)


def jury_recovery(
    name: str,
    fold: Size,
    pairs: str,
    *,
    mask: int | None = None,
    per_axis: int | None = None,
    aggregate: str = "mean probability",
    series: str = "jury recovery",
) -> Case:
    rule = partial(JuryRecovery, pairs, AGGREGATES[aggregate]())
    in_logarithms = aggregate == "mean log-probability"
    return Case(name, series, rule, "spread", fold, mask, per_axis, in_logarithms=in_logarithms)
