"""Results files of an experiment, read back as what was measured beside what the paper reported. Never a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from certmask.errors import ResultsError
from certmask.experiments.experiment import Case, Experiment, Reported, Threat
from certmask.experiments.meter import joules_per_pass, milliseconds_per_pass, read_sessions
from certmask.experiments.plan import FEW
from certmask.results.columns import Figures, figures
from certmask.results.file import read_results
from certmask.results.run import Run, read_runs


@dataclass(frozen=True)
class Done:
    """A finished run: which model, data and patch its file name says, and the file."""

    model: str
    data: str
    threat: Threat
    few: bool
    file: Run


@dataclass(frozen=True)
class Entry:
    """One row of a table: what the paper reported and what was measured, in fields of their own.

    ``planned`` images were to be examined; ``placed`` masks count every copy, as the paper does.
    """

    model: str
    data: str
    threat: Threat
    defence: str
    series: str
    few: bool
    planned: int
    placed: int
    k: int
    measured: Figures
    joules_per_pass: float | None
    reported: Reported | None

    def joules(self, passes: float | None) -> float | None:
        return None if passes is None or self.joules_per_pass is None else passes * self.joules_per_pass


def read_done(experiment: Experiment, folder: Path) -> list[Done]:
    """The results of an experiment under ``folder`` by model, data and patch; runs without an image are left out."""
    paths = [path for path in result_paths(experiment, folder) if _has_rows(path)]
    if not paths:
        raise ResultsError(f"expected results of {experiment.name} in {folder / experiment.name}, got none")
    done = [_done(experiment, path) for path in paths]
    return sorted(done, key=lambda run: (run.model, run.data, run.threat.side, run.few))


def unstarted(experiment: Experiment, folder: Path) -> list[Path]:
    """Results files of runs that were stopped before their first image was done: a header and no more."""
    return [path for path in result_paths(experiment, folder) if not _has_rows(path)]


def _has_rows(path: Path) -> bool:
    return bool(read_results(path)[1])


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


def _done(experiment: Experiment, path: Path) -> Done:
    parts = unpacked_path(path).stem.split("--")
    threat = experiment.threat(parts[-1].removesuffix(FEW))
    if len(parts) != 3 or threat is None:
        raise ResultsError(f"expected MODEL--DATA--PATCH.jsonl with a patch of {experiment.name}, got {path.name}")
    runs, _ = read_runs([path])
    if not runs:
        raise ResultsError(f"expected results of a certification run, got others in {path}")
    return Done(parts[0], parts[1], threat, parts[-1].endswith(FEW), runs[0])


def entries(experiment: Experiment, done: Done) -> list[Entry]:
    """One entry per defence of a run; an error if the file holds another defence than the experiment declares."""
    sessions = read_sessions(unpacked_path(done.file.path))
    cases = {case.name: case for case in experiment.cases(done.threat)}
    found = []
    for measured in figures(done.file):
        if measured.defence not in cases:
            raise ResultsError(
                f"expected defences of {experiment.name} in {done.file.path}, got another: {measured.defence!r}"
            )
        case = cases[measured.defence]
        _check_cover(case, done, measured)
        found.append(
            Entry(
                done.model,
                done.data,
                done.threat,
                case.name,
                case.series,
                done.few,
                done.file.header["data"]["images"],
                done.file.defences[case.name]["cover"].get("placed", measured.masks),
                case.fold[0] * case.fold[1],
                replace(measured, pass_milliseconds=milliseconds_per_pass(sessions)),
                joules_per_pass(sessions),
                experiment.reported_for(case, done.model, done.data, done.threat),
            )
        )
    return found


def _check_cover(case: Case, done: Done, measured: Figures) -> None:
    """The file must hold the cover that the experiment declares today."""
    patch = done.threat.patch(measured.image)
    cover = done.file.defences[case.name]["cover"]
    said = (measured.patch, measured.mask, cover.get("tiling"), cover.get("fold"))
    expected = (patch.size, case.mask_size(patch, measured.image), case.tiling, list(case.fold))
    if said != expected:
        raise ResultsError(
            f"expected {case.name!r} with patch, mask, tiling and fold {expected}, got {said} in {done.file.path}"
        )


def unmeasured(experiment: Experiment, measured: list[Entry]) -> list[Reported]:
    """What the paper reported and no run here stands beside."""
    beside = {entry.reported for entry in measured}
    return [reported for reported in experiment.reported if reported not in beside]
