"""Plots of an experiment: a picture per model, data set and patch, a panel per measure, never two guarantees in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from certmask.certificate import Guarantee
from certmask.experiments.experiment import Experiment
from certmask.experiments.measured import Entry
from certmask.report.drawing import save_figure
from certmask.report.plots import PALETTE, frontier
from certmask.results.columns import COLUMNS
from certmask.results.statistics import Share

MEASURES = {
    "clean_accuracy": "clean accuracy (%)",
    "published_test": "published test passed (%),\nno guarantee",
    "certified_detection": "certified detection (%)",
    "certified_recovery": "certified recovery (%)",
    "false_alerts": "false alerts (%)",
}
VALUES = {column.key: column.value for column in COLUMNS if column.key in MEASURES}
AXES: dict[str, tuple[str, Callable[[Entry], float | None]]] = {
    "mask": ("mask side (pixels)", lambda e: e.measured.mask[0] if e.measured.mask else None),
    "patch": ("patch side (pixels)", lambda e: e.measured.threat.boxes_on(e.measured.image)[0][0]),
    "k": ("fold k (masks that cover each place)", lambda e: e.declared.k),
    "answer": ("passes to answer, mean", lambda e: e.measured.answer_passes),
    "proof": ("passes to prove one certified image", lambda e: e.measured.proved_passes),
}
PRICES = ("answer", "proof")
"""Axes in logarithms, on which a front is drawn: what nothing cheaper beats."""

MARKERS = "osD^vPX*<>"
Point = tuple[float, Share, Entry]


def draw(experiment: Experiment, found: Sequence[Entry], folder: Path) -> None:
    """Draw the experiment's panels for every model, data set and patch; nothing where it declares none."""
    for name, group in pictures(experiment, found).items():
        save_figure(_picture(experiment, group), folder / name)


def pictures(experiment: Experiment, found: Sequence[Entry]) -> dict[str, list[Entry]]:
    """File names of the experiment's pictures, and what each shows; trials of a handful of images are left out."""
    groups: dict[str, list[Entry]] = {}
    for entry in found if experiment.panels else ():
        trial = entry.trial
        if not trial.few:
            patch = "" if experiment.panels[0][0] == "patch" else f"--{trial.patch.slug}"
            groups.setdefault(f"{experiment.name}--{trial.model}--{trial.data}{patch}.png", []).append(entry)
    return groups


def _picture(experiment: Experiment, found: Sequence[Entry]) -> Figure:
    columns = 2 if len(experiment.panels) == 4 else len(experiment.panels)
    rows = -(-len(experiment.panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows + 1.3), layout="constrained")
    lines: dict[str, list[Entry]] = {}
    for entry in found:
        lines.setdefault(entry.declared.line, []).append(entry)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (x, measure) in zip(panels, experiment.panels, strict=True):
        if x in PRICES:
            _draw_front(axes, points_of(x, measure, found))
        for number, (line, group) in enumerate(lines.items()):
            _draw_line(axes, measure, points_of(x, measure, group), number, line)
        low, high = axes.get_ylim()
        axes.set(xlabel=AXES[x][0], ylabel=MEASURES[measure], ylim=(max(low, -2), min(high, 102)))
        if x in PRICES:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(LogFormatter(minor_thresholds=(1.5, 0.4)))
            axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.4)))
        axes.grid(alpha=0.3)
    legend = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(_title(experiment, found), fontsize=11)
    return figure


def _title(experiment: Experiment, found: Sequence[Entry]) -> str:
    counts = sorted({entry.measured.images for entry in found})
    images = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    first, labels = found[0].trial, {entry.trial.patch.label for entry in found}
    patch = f" {first.patch.label} patch," if len(labels) == 1 else ""
    return f"{experiment.title}: {first.model} on {first.data},{patch} {images} images, 95 % intervals"


def points_of(axis: str, measure: str, found: Sequence[Entry]) -> list[Point]:
    """The entries that have both a place on the axis and the measure, from left to right.

    No proof was completed where nothing was certified, so such an entry has no place there; false alerts are drawn
    of what promises detection alone.
    """
    points: list[Point] = []
    for entry in found:
        share, x = VALUES[measure](entry.measured), AXES[axis][1](entry)
        alerts = measure != "false_alerts" or entry.measured.guarantee is Guarantee.DETECTION
        if alerts and share is not None and x is not None:
            points.append((x, share, entry))
    return sorted(points, key=lambda point: (point[0], -point[1].value))


def _draw_front(axes: Axes, points: Sequence[Point]) -> None:
    """A step through what nothing cheaper beats, to the dearest."""
    best = [points[number] for number in frontier([x for x, _, _ in points], [share.value for _, share, _ in points])]
    if best:
        xs = [*(x for x, _, _ in best), points[-1][0]]
        shares = [100 * share.value for _, share, _ in (*best, best[-1])]
        axes.step(xs, shares, where="post", color="0.6", ls="--", lw=1, zorder=0, label="best for so many passes")


def _draw_line(axes: Axes, measure: str, points: Sequence[Point], number: int, line: str) -> None:
    """What was measured, with intervals; what the paper reported, where it stands beside: its robust with the test."""
    if not points:
        return
    xs, shares = [x for x, _, _ in points], [share for _, share, _ in points]
    low = [100 * (s.value - s.interval[0]) for s in shares]
    high = [100 * (s.interval[1] - s.value) for s in shares]
    style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": MARKERS[number % len(MARKERS)]}
    bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "ecolor": (style["color"], 0.45)}
    axes.errorbar(
        xs, [100 * s.value for s in shares], [low, high], label=line, zorder=3 - number / 100, **bars, **style
    )
    what = {"clean_accuracy": "clean", "false_alerts": ""}.get(measure, "robust")
    printed = [(x, told) for x, _, entry in points if (told := getattr(entry.reported, what, None)) is not None]
    if printed:
        paper = f"{line}: reported by the paper"
        axes.plot(*zip(*printed, strict=True), ls=":", mfc="none", ms=10, label=paper, **style)
