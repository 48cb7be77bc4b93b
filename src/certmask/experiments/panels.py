"""Plots of an experiment: a picture per model, data set and patch, a panel per measure, never two guarantees in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from certmask.certificate import Guarantee
from certmask.experiments.experiment import Experiment, Plot
from certmask.experiments.measured import Entry
from certmask.report.drawing import COLOURS, save_figure
from certmask.results.columns import COLUMNS
from certmask.results.statistics import Share

CERTIFIED = {
    "published_test": "published test passed (%),\nno guarantee",
    "certified_detection": "certified detection (%)",
    "certified_recovery": "certified recovery (%)",
}
MEASURES = {"clean_accuracy": "clean accuracy (%)", **CERTIFIED, "false_alerts": "false alerts (%)"}
VALUES = {column.key: column.value for column in COLUMNS if column.key in MEASURES}
AXES: dict[str, tuple[str, Callable[[Entry], float | None]]] = {
    "mask": ("mask side (pixels)", lambda e: e.measured.mask[0] if e.measured.mask else None),
    "patch": ("patch side (pixels)", lambda e: e.measured.patch[0]),
    "k": ("fold k (masks that cover each place)", lambda e: e.declared.k),
    "answer": ("passes to answer, mean", lambda e: e.measured.answer_passes),
    "proof": ("passes to prove one certified image", lambda e: e.measured.proved_passes),
}
LOGARITHMIC = ("answer", "proof")
MARKERS = "osD^vPX*<>"
Point = tuple[float, Share, Entry]


def draw(experiment: Experiment, found: Sequence[Entry], folder: Path) -> list[Path]:
    """Draw the experiment's plot for every model, data set and patch; nothing where it declares none."""
    if experiment.plot is None:
        return []
    groups = pictures(experiment, found)
    for name, group in groups.items():
        save_figure(_picture(experiment, experiment.plot, group), folder / name)
    return [folder / name for name in groups]


def pictures(experiment: Experiment, found: Sequence[Entry]) -> dict[str, list[Entry]]:
    """File names of the experiment's pictures, and what each shows; trials of a handful of images are left out."""
    groups: dict[str, list[Entry]] = {}
    for entry in found:
        trial = entry.trial
        if experiment.plot is not None and not trial.few:
            patch = "" if experiment.plot.panels[0][0] == "patch" else f"--{trial.patch.slug}"
            groups.setdefault(f"{experiment.name}--{trial.model}--{trial.data}{patch}.png", []).append(entry)
    return groups


def _picture(experiment: Experiment, plot: Plot, found: Sequence[Entry]) -> Figure:
    columns = 2 if len(plot.panels) == 4 else len(plot.panels)
    rows = -(-len(plot.panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows + 1.3), layout="constrained")
    series = list(dict.fromkeys(entry.declared.series for entry in found))
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (x, measure) in zip(panels, plot.panels, strict=True):
        if plot.front:
            _draw_front(axes, points_of(x, measure, found))
        for number, name in enumerate(series):
            _draw_line(axes, measure, points_of(x, measure, [e for e in found if e.declared.series == name]), number)
        low, high = axes.get_ylim()
        axes.set(xlabel=AXES[x][0], ylabel=MEASURES[measure], ylim=(max(low, -2), min(high, 102)))
        axes.set_xscale("log" if x in LOGARITHMIC else "linear")
        axes.grid(alpha=0.3)
    legend = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(_title(experiment, found), fontsize=11)
    return figure


def _title(experiment: Experiment, found: Sequence[Entry]) -> str:
    counts = sorted({entry.measured.images for entry in found})
    images = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    first, labels = found[0].trial, list(dict.fromkeys(entry.trial.patch.label for entry in found))
    patch = f" {labels[0]} patch," if len(labels) == 1 else ""
    return f"{experiment.title}: {first.model} on {first.data},{patch} {images} images, 95 % intervals"


def points_of(axis: str, measure: str, found: Sequence[Entry]) -> list[Point]:
    """The entries that have both a place on the axis and the measure, from left to right.

    No proof was completed where nothing was certified, so such an entry has no place there.
    """
    points = [
        (x, share, entry)
        for entry in found
        if (share := share_of(measure, entry)) is not None and (x := AXES[axis][1](entry)) is not None
    ]
    return sorted(points, key=lambda point: (point[0], -point[1].value))


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no point as far left or further left reaches."""
    kept: list[Point] = []
    for point in points:
        if not kept or point[1].value > kept[-1][1].value:
            kept.append(point)
    return kept


def _draw_front(axes: Axes, points: Sequence[Point]) -> None:
    best = front(points)
    if not best:
        return
    xs = [*(x for x, _, _ in best), points[-1][0]]
    shares = [100 * share.value for _, share, _ in (*best, best[-1])]
    axes.step(xs, shares, where="post", color="0.6", ls="--", lw=1, zorder=0, label="best for so many passes")


def _draw_line(axes: Axes, measure: str, points: Sequence[Point], number: int) -> None:
    if not points:
        return
    xs, shares = [x for x, _, _ in points], [share for _, share, _ in points]
    low = [100 * (s.value - s.interval[0]) for s in shares]
    high = [100 * (s.interval[1] - s.value) for s in shares]
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
    label = points[0][2].declared.series
    bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "ecolor": (style["color"], 0.45)}
    axes.errorbar(xs, [100 * s.value for s in shares], [low, high], label=label, **bars, **style)
    printed = [(x, value) for x, _, entry in points if (value := paper_value(measure, entry)) is not None]
    if printed:
        paper = f"{label}: reported by the paper"
        axes.plot(*zip(*printed, strict=True), ls=":", mfc="none", ms=10, label=paper, **style)


def share_of(measure: str, entry: Entry) -> Share | None:
    """The measured share; None where the defence gives no such figure."""
    if measure == "false_alerts" and entry.measured.guarantee is not Guarantee.DETECTION:
        return None
    share: Share | None = VALUES[measure](entry.measured)
    return share


def paper_value(measure: str, entry: Entry) -> float | None:
    """The paper's figure for the same measure: its robust accuracy stands with the test that it is."""
    if entry.reported is None or measure == "false_alerts":
        return None
    return entry.reported.robust if measure in CERTIFIED else entry.reported.clean
