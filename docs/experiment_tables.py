"""Blocks with what an experiment measured, narrow enough for a page: `certmask reproduce` has the wide form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from certmask.errors import ResultsError
from certmask.experiments import EXPERIMENTS
from certmask.experiments.experiment import Experiment
from certmask.experiments.measured import Entry, FinishedTrial, Paired, finished_trials, paired
from certmask.experiments.panels import draw, pictures
from certmask.experiments.sheets import MEASURED, PAIRED, paired_table, patch_text
from certmask.report.tables import full_table, markdown_table, markdown_text
from certmask.results.clusters import Difference, difference
from certmask.results.columns import Column
from certmask.results.kinds import WORDS
from certmask.zoo.networks import MASKS

T = TypeVar("T")
CHANCE = 0.05
HEADED = {"paper, %": "{}, paper", "passes": "passes {}"}
"""Headings without their group, which the wide tables print above them."""

NARROW = [
    Column("defence", WORDS, lambda entry: entry.declared.name, "defence"),
    *(replace(c, heading=HEADED.get(c.group, "{}").format(c.heading), group="") for c in MEASURED if c.key not in
      ("model", "data", "patch", "defence", "images")),
]  # fmt: skip


def lined(headings: str, rows: Iterable[str], words: int = 1) -> str:
    """A Markdown table from its headings and rows, cells between bars; the first ``words`` columns hold words."""
    rule = " | ".join(["---"] * words + ["---:"] * (headings.count(" | ") + 1 - words))
    return "\n".join(f"| {line} |" for line in (headings, rule, *rows))


def experiment_of(path: Path) -> Experiment:
    if path.name not in EXPERIMENTS:
        raise ResultsError(f"expected a folder called {', '.join(EXPERIMENTS)}, got {path}")
    return EXPERIMENTS[path.name]


@lru_cache
def trials_in(path: Path) -> tuple[FinishedTrial, ...]:
    """The trials in an experiment's folder, by data set, patch and model."""
    found = finished_trials(experiment_of(path), path.parent)
    return tuple(sorted(found, key=lambda trial: (trial.data, trial.patch.side, trial.few, trial.model)))


def compared(folder: Path, first: str, second: str) -> list[Paired]:
    """One defence beside another in every trial; chances are adjusted over all that the experiment compares."""
    pairs = paired(experiment_of(folder).comparisons, trials_in(folder))
    return [pair for pair in pairs if (pair.comparison.first, pair.comparison.second) == (first, second)]


def ahead_in(pairs: Iterable[Paired]) -> list[Paired]:
    """Those in which the first certifies more."""
    return [pair for pair in pairs if pair.gained > pair.lost]


def behind_in(pairs: Iterable[Paired]) -> list[Paired]:
    """Those in which the first certifies fewer."""
    return [pair for pair in pairs if pair.gained < pair.lost]


def beyond_chance(pairs: Iterable[Paired]) -> str:
    """How many differ beyond chance."""
    return str(sum(pair.adjusted is not None and pair.adjusted < CHANCE for pair in pairs))


def entries_in(path: Path) -> list[Entry]:
    return [entry for trial in trials_in(path) for entry in trial.entries.values()]


def table(
    title: str, columns: Iterable[Column[T]], items: Sequence[T], notes: Sequence[str] = (), unless: str = ""
) -> str:
    """The columns that some item has something in, unless they are named."""
    named = unless.split()
    filled = [c for c in columns if c.key not in named and any(c.value(item) is not None for item in items)]
    return markdown_table(full_table(title, filled, items, notes)).strip()


def measured_tables(path: Path) -> str:
    """One table per model, data set and patch."""
    found = [table(_title(trial), NARROW, [*trial.entries.values()]) for trial in trials_in(path)]
    return "\n\n".join([*found, *map(markdown_text, experiment_of(path).notes)])


def _title(trial: FinishedTrial) -> str:
    patch, done, planned = patch_text(next(iter(trial.entries.values()))), len(trial.run.rows), trial.planned
    return (
        f"{trial.model} on {trial.data}{f', any patch of {patch}' if patch else ''}; "
        f"{done:,}{'' if done == planned else f' of {planned:,}'} images"
        f"{', only so few because a cover has so many masks' if trial.few else ''}"
    )


def paired_tables(path: Path) -> str:
    """One table per declared comparison, or one for all of a single trial; Holm's correction is for all of them."""
    comparisons = experiment_of(path).comparisons
    found = paired(comparisons, trials_in(path))
    if not found:
        raise ResultsError(f"expected trials with both defences of a comparison in {path}, got none")
    if len(trials_in(path)) == 1:
        return markdown_table(paired_table(found)).strip()
    blocks = []
    for asked in comparisons:
        group = [pair for pair in found if pair.comparison == asked]
        if group:
            notes = [_summary(group), *([asked.theorem] if asked.theorem else [])]
            blocks.append(table(asked.question, PAIRED, group, notes, unless="question first second note"))
    return "\n\n".join(blocks)


def _summary(group: Sequence[Paired]) -> str:
    """Which is first, how often it is ahead, by how much; trials on the same photos do not count as independent."""
    asked, tested = group[0].comparison, [p.adjusted for p in group if p.adjusted is not None]
    more, fewer = sum(p.gained > p.lost for p in group), sum(p.gained < p.lost for p in group)
    apart = difference((p.trial.run for p in group), asked.first, asked.second)
    return (
        f"{asked.first} against {asked.second}: ahead in {more} of {len(group)} runs, behind in {fewer}; "
        + (f"beyond chance (p < {CHANCE} after Holm) in {sum(p < CHANCE for p in tested)}; " if tested else "")
        + f"{apart} points over all, clustered by photo ({apart.photos:,})."
    )


def gaps(path: Path) -> list[tuple[FinishedTrial, float, Difference]]:
    """By how much CertMask is ahead of PatchCleanser: in the paper, and here on the same images."""
    found = []
    for trial in (trial for trial in trials_in(path) if not trial.few):
        masked = {name: entry for name, entry in trial.entries.items() if entry.declared.network == MASKS}
        beside = {name: entry.reported for name, entry in masked.items() if entry.reported}
        told = {name: reported.robust for name, reported in beside.items() if reported.robust is not None}
        if len(told) == 2:
            (first, one), (second, other) = told.items()
            found.append((trial, one - other, difference([trial.run], first, second)))
    if not found:
        raise ResultsError(f"expected trials with two figures of the paper beside them in {path}, got none")
    return found


def gaps_table(path: Path) -> str:
    rows = (
        f"{trial.model} | {trial.data} | {trial.patch.label} | {printed:+.1f} | {apart}"
        for trial, printed, apart in gaps(path)
    )
    return lined("model | data | patch | in the paper | here", rows, words=3)


def plots(path: Path) -> str:
    """The pictures that draw_plots makes of an experiment, for a page of the appendix."""
    experiment = experiment_of(path)
    if not experiment.panels:
        raise ResultsError(f"expected an experiment with a plot, got {experiment.name}")
    names = pictures(experiment, entries_in(path))
    return "\n\n".join(f"![{experiment.title}: {Path(name).stem}](../images/{name})" for name in names)


def draw_plots(paths: Iterable[Path], images: Path) -> None:
    """Draw every experiment that has results and declares a plot."""
    for path in paths:
        draw(experiment_of(path), entries_in(path), images)
