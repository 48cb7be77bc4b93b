"""Blocks and figures about what was run again: in another process, or with this version on a tenth of the photos."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_tables import lined, trials_in
from runs import measured_folders

from certmask.errors import ResultsError
from certmask.results.run import Run, read_run

JURIES = "jury recovery"
"""The rule whose answers, not certificates, changed with 0.2.0: where nobody is unbeaten, the bare picture answers."""


@dataclass(frozen=True)
class Verdict:
    """What one defence made of one photo, in two runs."""

    rule: str
    other_answer: bool
    other_certificate: bool


def verdicts(one: Run, other: Run, names: Iterable[tuple[str, str]]) -> list[Verdict]:
    """On every photo that two runs share, by what each calls the same defence; an error for other photos."""
    before, names = {row["image"]: row for row in other.rows}, list(names)
    shared = [(row, before[row["image"]]) for row in one.rows if row["image"] in before]
    if not shared or any(a["input_sha256"] != b["input_sha256"] for a, b in shared):
        raise ResultsError(f"expected the same photos in both runs of {one.model['name']}, got none or others")
    return [
        Verdict(
            one.defences[mine]["rule"]["rule"],
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


def with_this_version(folder: Path) -> dict[str, list[list[Verdict]]]:
    """By experiment: every run in ``folder`` beside the one of results/reproduce that has the same name."""
    found: dict[str, list[list[Verdict]]] = {}
    for place in measured_folders(folder):
        for trial in trials_in(place):
            before = read_run(folder.parent / "reproduce" / trial.run.path.relative_to(folder))
            if trial.run.model["weights_sha256"] != before.model["weights_sha256"]:
                raise ResultsError(f"expected the network of {before.path} in {trial.run.path}, got another")
            names = [(name, name) for name in trial.run.defences if name in before.defences]
            found.setdefault(place.name, []).append(verdicts(trial.run, before, names))
    return found


def again_table(folder: Path) -> str:
    """One row per experiment; jury recovery, whose answers changed by design, in a row of its own."""
    runs = with_this_version(folder)
    rows = [
        f"{name} | {len(each)} | {counted([v for own in each for v in own if v.rule != JURIES])}"
        for name, each in runs.items()
    ]
    juries = [own for each in runs.values() for own in each if any(v.rule == JURIES for v in own)]
    told = counted([v for own in juries for v in own if v.rule == JURIES])
    headings = "experiment | runs | verdicts | other answer | other certificate"
    every = lined(headings, [*rows, f"{JURIES}, in all of these | {len(juries)} | {told}"])
    return f"**Verdicts of 0.2.0 beside those in results/reproduce**\n\n{every}"


def again(folder: Path) -> dict[str, str]:
    found = [v for each in with_this_version(folder).values() for own in each for v in own]
    juries, others = ([v for v in found if (v.rule == JURIES) is own] for own in (True, False))
    return {
        "verdicts": f"{len(found):,}",
        "certificates": str(sum(v.other_certificate for v in found)),
        "answers": str(sum(v.other_answer for v in others)),
        "juries": f"{sum(v.other_answer for v in juries)} of {len(juries):,}",
    }
