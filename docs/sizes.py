"""Blocks and figures about zoom at every patch of Table 1, and about what a later version makes of the same photos."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from again import shared_defences
from experiment_tables import ahead_in, behind_in, beyond_chance, compared, lined, trials_in
from networks import title_of
from zoom import BARE, CLEANSER, ends, passes, percent

from certmask.experiments.measured import FinishedTrial
from certmask.experiments.paper_tables import HICERT
from certmask.experiments.zooming import AGREEMENT, SHIPPED, SHIPPED_DETECTION, SIZES, ZOOM, ZOOM_HICERT
from certmask.results.clusters import difference
from certmask.results.columns import figures

DETECTION = (AGREEMENT.name, SHIPPED_DETECTION, HICERT.name, ZOOM_HICERT.name)
SMALL = "1 %"
SAME = ("label", "alert", "certified", "passes")
"""What two versions must agree in."""


def by_network(folder: Path) -> list[FinishedTrial]:
    return sorted(trials_in(folder), key=lambda trial: (title_of(trial), trial.patch.side))


def recovery_table(folder: Path) -> str:
    """PatchCleanser and zoom, one row a network and patch."""
    lines = []
    for trial in by_network(folder):
        own = {line.defence: line for line in figures(trial.run)}
        bare, one, two = (own[name] for name in (BARE, CLEANSER, SHIPPED))
        lines.append(
            f"{title_of(trial)} | {trial.patch.label} | {len(trial.run.rows):,} | "
            f"{percent(one.certified)} → {percent(two.certified)} | "
            f"{difference([trial.run], SHIPPED, CLEANSER)} | {percent(bare.clean)} | "
            f"{percent(one.clean)} → {percent(two.clean)} | "
            f"{passes(one.answer_passes)} → {passes(two.answer_passes)} | "
            f"{passes(one.proved_passes)} → {passes(two.proved_passes)}"
        )
    return lined(
        "PatchCleanser 6×6 → zoom | patch | photos | certified recovery, % | lead, points | clean, no defence, % | "
        "clean, % | passes to answer | passes of a completed proof", lines, words=2,
    )  # fmt: skip


def detection_table(folder: Path) -> str:
    lines = []
    for trial in by_network(folder):
        for own in (line for line in figures(trial.run) if line.defence in DETECTION):
            lines.append(
                f"{title_of(trial)} | {trial.patch.label} | {own.defence} | {percent(own.clean)} | "
                f"{percent(own.certified)} | {percent(own.false_alerts)} | {passes(own.answer_passes)} | "
                f"{passes(own.proved_passes)}"
            )
    return lined(
        "network | patch | defence | clean, % | certified detection, % | false alerts, % | passes to answer | "
        "passes of a completed proof", lines, words=3,
    )  # fmt: skip


def sizes(results: Path) -> dict[str, str]:
    """In how many runs zoom is ahead of PatchCleanser, where it is not, and how many verdicts of before are others."""
    folder = results / "reproduce" / SIZES.name
    asked = compared(folder, SHIPPED, CLEANSER)
    ahead, behind = ahead_in(asked), behind_in(asked)
    small = [p for p in asked if p.trial.patch.label == SMALL]
    again = list(_again(folder))
    return {
        "ahead": f"{len(ahead)} of {len(asked)}",
        "ahead beyond chance": beyond_chance(ahead),
        "behind": "; ".join(sorted(f"{title_of(p.trial)}, {p.trial.patch.label}" for p in behind)),
        "behind beyond chance": beyond_chance(behind),
        "small": f"{sum(p in ahead for p in small)} of {len(small)}",
        "points": ends((difference([p.trial.run], SHIPPED, CLEANSER).points for p in asked), "+.1f"),
        "again": f"{len(again):,}",
        "again other": str(sum(not same for same in again)),
    }


def _again(folder: Path) -> Iterable[bool]:
    """Whether each verdict is that of the zoom experiment on the same network, photo and defence."""
    before = {(trial.model, trial.patch): trial.run for trial in trials_in(folder.parent / ZOOM.name)}
    for trial in trials_in(folder):
        run = before.get((trial.model, trial.patch))
        if run is None or not (names := shared_defences(trial.run, run)):
            continue
        rows = {row["input_sha256"]: row["defences"] for row in run.rows}
        for row in trial.run.rows:
            for mine, theirs in names:
                one, two = row["defences"][mine], rows[row["input_sha256"]][theirs]
                yield all(one[key] == two[key] for key in SAME)
