"""Blocks and figures about what was run twice: in two processes, or by two states of the program."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiment_tables import lined, trials_in
from runs import every_trial, measured_folders

from certmask.errors import ResultsError
from certmask.results.run import Run, read_run

CHANGED = ("jury recovery", "0.1.0")
"""A rule and the version after which its answers, not certificates, changed: where nobody is unbeaten."""
PROGRAM = ("0.2.0", "be08e8290868beba")
"""Version and digest of the source that ran again what earlier states of the program had run."""
PHOTOS = {"again": "a tenth of the photos", "before": "all photos"}
"""Folders: its runs on a part of the photos of results/reproduce, and the runs that its own replaced there."""


@dataclass(frozen=True)
class Verdict:
    """What one defence made of one photo, in two runs, the other by some version of certmask."""

    rule: str
    other_version: str
    other_answer: bool
    other_certificate: bool

    @property
    def has_changed_rule(self) -> bool:
        return (self.rule, self.other_version) == CHANGED


def verdicts(one: Run, other: Run, names: Iterable[tuple[str, str]]) -> list[Verdict]:
    """On every photo that two runs share, by what each calls the same defence; an error for other photos."""
    before, names = {row["image"]: row for row in other.rows}, list(names)
    shared = [(row, before[row["image"]]) for row in one.rows if row["image"] in before]
    if not shared or any(a["input_sha256"] != b["input_sha256"] for a, b in shared):
        raise ResultsError(f"expected the same photos in both runs of {one.model['name']}, got none or others")
    return [
        Verdict(
            one.defences[mine]["rule"]["rule"],
            program_of(other)[0],
            any(a["defences"][mine][key] != b["defences"][theirs][key] for key in ("label", "alert")),
            a["defences"][mine]["certified"] != b["defences"][theirs]["certified"],
        )
        for a, b in shared
        for mine, theirs in names
    ]


def counted(found: list[Verdict]) -> str:
    """How many there are, how many have another answer, and how many another certificate."""
    answers, certificates = sum(v.other_answer for v in found), sum(v.other_certificate for v in found)
    return f"{len(found):,} | {answers} | {certificates}"


def twice(folder: Path) -> str:
    """Every run in ``folder`` beside the gauntlet's of the same function with the same defences."""
    firsts = [read_run(path) for path in sorted(folder.parent.glob("attacks/*-certified.jsonl.gz"))]
    again = [read_run(path) for path in sorted(folder.glob("*.jsonl.gz"))]
    rows = [row for one in again for other in firsts if (row := _compared(one, other))]
    if not rows:
        raise ResultsError(f"expected runs in {folder} that were made before, got none")
    headings = "model | photos | verdicts | other answer | other certificate"
    title = "The same defences on the same photos in two processes, each with kernels that it timed"
    return f"**{title}**\n\n{lined(headings, rows)}"


def _compared(one: Run, other: Run) -> str:
    """A row on the photos and defences that two runs share; nothing where their functions are described differently."""
    if not (names := shared_defences(one, other)):
        return ""
    found = verdicts(one, other, names)
    return f"{one.model['name']} | {len(found) // len(names)} | {counted(found)}"


def shared_defences(one: Run, other: Run) -> list[tuple[str, str]]:
    """What each of two runs of one function calls the same defence; the first of several in the other."""
    if one.model != other.model:
        return []
    theirs = {json.dumps((b["rule"], _looks(b))): name for name, b in reversed(other.defences.items())}
    mine = {name: json.dumps((a["rule"], _looks(a))) for name, a in one.defences.items()}
    return [(name, theirs[same]) for name, same in mine.items() if same in theirs]


def _looks(defence: dict[str, Any]) -> Any:
    """What a defence looks at: the masks of its cover, or the fields of its cells."""
    return defence["cover"]["digest"] if "cover" in defence else defence["fields"]


@lru_cache
def two_programs(results: Path) -> dict[tuple[str, str], list[list[Verdict]]]:
    """By experiment and folder: what two programs made of the same photos, run by run; an error if they are one."""
    found: dict[tuple[str, str], list[list[Verdict]]] = {}
    for folder in PHOTOS:
        for place in measured_folders(results / folder):
            twins = {trial.run.path.name: trial.run for trial in trials_in(results / "reproduce" / place.name)}
            for trial in trials_in(place):
                if trial.run.path.name not in twins:
                    raise ResultsError(f"expected a file beside {trial.run.path} in results/reproduce, got none")
                twin = twins[trial.run.path.name]
                newer, older = (trial.run, twin) if folder == "again" else (twin, trial.run)
                _check_twins(newer, older)
                if not images(trial.run) <= images(twin):
                    raise ResultsError(f"expected photos of {twin.path} alone in {trial.run.path}, got others")
                names = [(name, name) for name in newer.defences if name in older.defences]
                found.setdefault((place.name, folder), []).append(verdicts(newer, older, names))
    return found


def _check_twins(newer: Run, older: Run) -> None:
    """An error unless two runs are of one network and only the first is of the program that ran again."""
    if newer.model["weights_sha256"] != older.model["weights_sha256"]:
        raise ResultsError(f"expected the network of {older.path} in {newer.path}, got another")
    programs = [program_of(run) for run in (newer, older)]
    if programs[0] != PROGRAM or programs[1] == PROGRAM:
        raise ResultsError(f"expected {PROGRAM} and an earlier program of {newer.path}, got {programs}")


def images(run: Run) -> set[str]:
    return {row["image"] for row in run.rows}


def program_of(run: Run) -> tuple[str, str]:
    """The version of certmask and the digest of its source, as far as a run knew them."""
    versions = run.header["versions"]
    return versions["certmask"], versions.get("certmask source", "")


def again_table(results: Path) -> str:
    """One row per experiment and share of photos; the rule whose answers changed by design has a row of its own."""
    runs = two_programs(results)
    rows = []
    for (name, folder), each in runs.items():
        same_rules = [v for own in each for v in own if not v.has_changed_rule]
        rows.append(f"{name} | {PHOTOS[folder]} | {len(each)} | {counted(same_rules)}")
    juries = [found for each in runs.values() for own in each if (found := [v for v in own if v.has_changed_rule])]
    told = counted([v for own in juries for v in own])
    rows.append(f"{' of '.join(CHANGED)}, in all of these | – | {len(juries)} | {told}")
    headings = "experiment | on | runs | verdicts | other answer | other certificate"
    every = lined(headings, rows, words=2)
    return f"**Verdicts of {PROGRAM[0]} beside those of earlier states of the program**\n\n{every}"


def again(results: Path) -> dict[str, str]:
    found = [v for each in two_programs(results).values() for own in each for v in own]
    juries, others = ([v for v in found if v.has_changed_rule is own] for own in (True, False))
    return {
        "verdicts": f"{len(found):,}",
        "certificates": str(sum(v.other_certificate for v in found)),
        "answers": str(sum(v.other_answer for v in others)),
        "juries": f"{sum(v.other_answer for v in juries):,} of {len(juries):,}",
        "files": _made_anew(results / "reproduce"),
    }


def _made_anew(folder: Path) -> str:
    """How many of the files that the pages print are of the program that ran again."""
    made = [program_of(trial.run) == PROGRAM for trial in every_trial(folder)]
    return f"{sum(made)} of {len(made)}"
