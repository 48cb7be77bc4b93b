"""Beyond the paper: certified recovery against passes, over mask size, fold, pairing and aggregate."""

from __future__ import annotations

from certmask.experiments.defences import jury_recovery, patchcleanser
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Threat
from certmask.experiments.threats import TWO_PERCENT

GRIDS = (3, 4, 6, 9, 12)
"""PatchCleanser's masks per axis: mask 96, 80, 64, 53, 48 for the 2 % patch."""

MASKS = (112, 96, 80, 64)
FOLDS = {4: (2, 2), 9: (3, 3)}
MOST_PAIRS_FOR = {4: 64, 9: 80}
"""All pairs only down to this mask: below it a proof takes more than 20,000 passes."""

OTHER_AGGREGATES = ("mean log-probability", "label majority")


def cases(_: Threat) -> tuple[Case, ...]:
    grids = [patchcleanser(n) for n in GRIDS]
    aligned = [_jury(mask, k, "aligned") for mask in MASKS for k in FOLDS]
    everything = [_jury(mask, k, "all") for mask in MASKS for k in FOLDS if mask >= MOST_PAIRS_FOR[k]]
    others = [_jury(mask, 4, "aligned", name) for mask in MASKS for name in OTHER_AGGREGATES]
    return (*grids, *aligned, *everything, *others)


def _jury(mask: int, k: int, pairs: str, aggregate: str = "mean probability") -> Case:
    of = "" if aggregate == "mean probability" else f", {aggregate}"
    name = f"jury recovery k={k}, mask {mask}, {pairs}{of}"
    return jury_recovery(name, FOLDS[k], pairs, mask=mask, aggregate=aggregate, series=f"juries k={k}, {pairs}{of}")


PARETO = Experiment(
    name="pareto",
    title="Certified recovery against passes",
    place="beyond the paper",
    threats=TWO_PERCENT,
    cases=cases,
    comparisons=(
        Comparison("fold 2×2 against PatchCleanser, same mask size (64)",
                   "jury recovery k=4, mask 64, aligned", "PatchCleanser 6×6"),
        Comparison("fold 2×2, all pairs, against PatchCleanser, same mask size (64)",
                   "jury recovery k=4, mask 64, all", "PatchCleanser 6×6"),
        Comparison("fold 3×3 against PatchCleanser, same mask size (64)",
                   "jury recovery k=9, mask 64, aligned", "PatchCleanser 6×6"),
        Comparison("fold 2×2 against PatchCleanser, at most 881 and 666 passes",
                   "jury recovery k=4, mask 80, aligned", "PatchCleanser 6×6"),
        Comparison("fold 2×2 against PatchCleanser, at most 3,697 and 3,321 passes",
                   "jury recovery k=4, mask 64, aligned", "PatchCleanser 9×9"),
        Comparison("fold 2×2, all pairs, against PatchCleanser, at most 3,321 passes each",
                   "jury recovery k=4, mask 80, all", "PatchCleanser 9×9"),
        Comparison("fold 3×3 against PatchCleanser, at most 2,276 and 3,321 passes",
                   "jury recovery k=9, mask 80, aligned", "PatchCleanser 9×9"),
        Comparison("fold 3×3 against PatchCleanser, at most 9,178 and 10,440 passes",
                   "jury recovery k=9, mask 64, aligned", "PatchCleanser 12×12"),
    ),
    plot=Plot(
        (("proof", "certified_recovery"), ("answer", "certified_recovery"), ("answer", "clean_accuracy")), front=True
    ),
)  # fmt: skip
