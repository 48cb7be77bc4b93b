"""What was measured: results files of an experiment read back, beside what the paper reported. Never a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from certmask.covers.cover import against
from certmask.errors import ResultsError
from certmask.experiments.experiment import Comparison, DeclaredDefence, Experiment, LabelledPatch, Reported
from certmask.experiments.meter import joules_per_pass, milliseconds_per_pass, read_stretches
from certmask.experiments.trials import FEW, mask_size
from certmask.results.clusters import is_certified, split
from certmask.results.columns import Figures, figures
from certmask.results.run import Run, begun_run
from certmask.results.statistics import holm, mcnemar
from certmask.zoo.networks import MASKS


@dataclass(frozen=True)
class FinishedTrial:
    """Which model, data and patch the name of an experiment's results file says, and what it holds."""

    experiment: Experiment
    model: str
    data: str
    patch: LabelledPatch
    few: bool
    run: Run

    @property
    def planned(self) -> int:
        """How many images were to be examined."""
        return int(self.run.data["images"])

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """One entry per defence, by name; an error if the file holds another than the experiment declares."""
        stretches = read_stretches(unpacked_path(self.run.path))
        declared, found = {one.name: one for one in self.experiment.defences(self.patch)}, {}
        for measured in figures(self.run):
            if measured.defence not in declared:
                raise ResultsError(
                    f"expected defences of {self.experiment.name} in {self.run.path}, got another: {measured.defence!r}"
                )
            one = declared[measured.defence]
            _check_cover(one, self, measured)
            timed = replace(measured, pass_milliseconds=milliseconds_per_pass(stretches))
            reported = self.experiment.reported_for(one, self.model, self.data, self.patch)
            found[one.name] = Entry(self, one, timed, joules_per_pass(stretches), reported)
        return found


@dataclass(frozen=True)
class Entry:
    """One row of a table: what the paper reported and what was measured, in fields of their own."""

    trial: FinishedTrial
    declared: DeclaredDefence
    measured: Figures
    joules_per_pass: float | None
    reported: Reported | None

    @property
    def placed(self) -> int | None:
        """Masks with every copy counted, as the paper does."""
        cover = self.trial.run.cover(self.declared.name) or {}
        return cover.get("placed", self.measured.masks)

    def joules(self, passes: float | None) -> float | None:
        return None if passes is None or self.joules_per_pass is None else passes * self.joules_per_pass


def finished_trials(experiment: Experiment, folder: Path) -> list[FinishedTrial]:
    """The results of an experiment under ``folder`` by model, data and patch; those without an image are left out."""
    patches, found = {patch.slug: patch for patch in experiment.every_patch}, []
    for run in filter(None, map(begun_run, result_paths(experiment, folder))):
        *names, end = unpacked_path(run.path).stem.split("--")
        patch = patches.get(end.removesuffix(FEW))
        if len(names) != 2 or patch is None:
            told = f"MODEL--DATA--PATCH.jsonl with a patch of {experiment.name}"
            raise ResultsError(f"expected {told}, got {run.path.name}")
        found.append(FinishedTrial(experiment, names[0], names[1], patch, end.endswith(FEW), run))
    if not found:
        raise ResultsError(f"expected results of {experiment.name} in {folder / experiment.name}, got none")
    return sorted(found, key=lambda trial: (trial.model, trial.data, trial.patch.side, trial.few))


def result_paths(experiment: Experiment, folder: Path) -> list[Path]:
    """The results files of an experiment, packed or not; an error if one is there in both forms."""
    found = sorted(path for form in ("*.jsonl", "*.jsonl.gz") for path in (folder / experiment.name).glob(form))
    for path in found:
        if unpacked_path(path) != path and unpacked_path(path) in found:
            raise ResultsError(f"expected one of {unpacked_path(path)} and {path.name}, got both")
    return found


def unpacked_path(path: Path) -> Path:
    """Where a packed results file lay before it was packed; its meter still lies beside that place."""
    return path.with_suffix("") if path.suffix == ".gz" else path


def _check_cover(declared: DeclaredDefence, trial: FinishedTrial, measured: Figures) -> None:
    """The file must hold the cover that the experiment declares today; without masks of its choosing, the patch."""
    if declared.network != MASKS:
        if trial.patch.on(measured.image).size != measured.patch:
            told = f"{declared.name!r} against {trial.patch.on(measured.image)}"
            raise ResultsError(f"expected {told}, got {measured.threat} in {trial.run.path}")
        return
    patch, cover = trial.patch.on(measured.image), trial.run.cover(declared.name) or {}
    said = (against(cover) if cover else None, measured.mask, cover.get("tiling"), cover.get("fold"))
    mask = measured.mask if declared.tuned else mask_size(declared, patch, measured.image)
    expected = (declared.threat(patch), mask, declared.tiling, list(declared.fold))
    if said != expected:
        raise ResultsError(
            f"expected {declared.name!r} with threat, mask, tiling and fold {expected}, got {said} in {trial.run.path}"
        )


def unmeasured(experiment: Experiment, measured: Iterable[Entry]) -> list[Reported]:
    """What the paper reported and no trial here stands beside."""
    beside = {entry.reported for entry in measured}
    return [reported for reported in experiment.reported if reported not in beside]


@dataclass(frozen=True)
class Paired:
    """A declared comparison on the images of one trial; ``adjusted`` is Holm's chance among all that are tested."""

    comparison: Comparison
    trial: FinishedTrial
    certified: tuple[int, ...]
    gained: int
    lost: int
    adjusted: float | None = None

    @property
    def chance(self) -> float | None:
        """McNemar's exact test: how likely so uneven a split is if neither is better; None where a theorem decides."""
        return None if self.comparison.theorem else mcnemar(self.gained, self.lost)


def paired(comparisons: Sequence[Comparison], found: Sequence[FinishedTrial]) -> list[Paired]:
    """The comparisons in every trial that has both defences and more than a handful of images."""
    pairs = []
    for trial in (trial for trial in found if not trial.few):
        for comparison in comparisons:
            names, rows = (comparison.first, comparison.second), trial.run.rows
            if {*names} <= trial.run.defences.keys() and comparison.patch in ("", trial.patch.label):
                certified = tuple(sum(is_certified(row, name) for row in rows) for name in names)
                pairs.append(Paired(comparison, trial, certified, *split(trial.run, *names)))
    adjusted = iter(holm([pair.chance for pair in pairs if pair.chance is not None]))
    return [pair if pair.chance is None else replace(pair, adjusted=next(adjusted)) for pair in pairs]
