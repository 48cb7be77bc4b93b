"""Plots of an experiment: a picture per model, data set and patch, a panel per measure, never two guarantees in one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from certmask.certificate import Guarantee
from certmask.experiments.experiment import Experiment, Plot
from certmask.experiments.reading import Entry
from certmask.report.drawing import COLOURS, save_figure
from certmask.results.statistics import Share

MEASURES = {
    "clean_accuracy": "clean accuracy (%)",
    "published_test": "published test passed (%),\nno guarantee",
    "certified_detection": "certified detection (%)",
    "certified_recovery": "certified recovery (%)",
    "false_alerts": "false alerts (%)",
}
AXES = {
    "mask": "mask side (pixels)",
    "patch": "patch side (pixels)",
    "k": "fold k (masks that cover each place)",
    "answer": "passes to answer, mean",
    "proof": "passes to prove one certified image",
}
LOGARITHMIC = ("answer", "proof")
MARKERS = "osD^vPX*<>"
Point = tuple[float, Share, Entry]
GUARANTEES = {
    "published_test": Guarantee.PUBLISHED,
    "certified_detection": Guarantee.DETECTION,
    "certified_recovery": Guarantee.RECOVERY,
}


def draw(experiment: Experiment, entries: Sequence[Entry], folder: Path) -> list[Path]:
    """Draw the experiment's plot for every model, data set and patch; nothing where it declares none."""
    if experiment.plot is None:
        return []
    found = pictures(experiment, entries)
    for name, group in found.items():
        _draw_one(experiment, experiment.plot, group, folder / name)
    return [folder / name for name in found]


def pictures(experiment: Experiment, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """File names of the experiment's pictures, and what each shows; runs of a handful of images are left out."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if experiment.plot is not None and not entry.few:
            name = f"{experiment.name}--{_group(experiment.plot, entry)}.png"
            found.setdefault(name, []).append(entry)
    return found


def _group(plot: Plot, entry: Entry) -> str:
    """What is drawn in one picture: patches apart, unless they are the axis."""
    pair = f"{entry.model}--{entry.data}"
    return pair if plot.panels[0][0] == "patch" else f"{pair}--{entry.threat.slug}"


def _draw_one(experiment: Experiment, plot: Plot, entries: Sequence[Entry], path: Path) -> None:
    columns = 2 if len(plot.panels) == 4 else len(plot.panels)
    rows = -(-len(plot.panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows + 1.3), layout="constrained")
    series = list(dict.fromkeys(entry.series for entry in entries))
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (x, measure) in zip(panels, plot.panels, strict=True):
        if plot.front:
            _draw_front(axes, points_of(x, measure, entries))
        for number, name in enumerate(series):
            _draw_line(axes, x, measure, [e for e in entries if e.series == name], number)
        low, high = axes.get_ylim()
        axes.set(xlabel=AXES[x], ylabel=MEASURES[measure], ylim=(max(low, -2), min(high, 102)))
        axes.set_xscale("log" if x in LOGARITHMIC else "linear")
        axes.grid(alpha=0.3)
    legend = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(_title(experiment, entries), fontsize=11)
    save_figure(figure, path)


def _title(experiment: Experiment, entries: Sequence[Entry]) -> str:
    counts = sorted({entry.measured.images for entry in entries})
    images = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    first, labels = entries[0], list(dict.fromkeys(entry.threat.label for entry in entries))
    patch = f" {labels[0]} patch," if len(labels) == 1 else ""
    return f"{experiment.title}: {first.model} on {first.data},{patch} {images} images, 95 % intervals"


def points_of(kind: str, measure: str, entries: Sequence[Entry]) -> list[Point]:
    """The entries that have both a place on the axis and the measure, from left to right."""
    points = [
        (x, share, entry)
        for entry in entries
        if (share := share_of(measure, entry)) is not None and (x := x_value(kind, entry)) is not None
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


def _draw_line(axes: Axes, kind: str, measure: str, entries: Sequence[Entry], number: int) -> None:
    points = points_of(kind, measure, entries)
    if not points:
        return
    xs = [x for x, _, _ in points]
    shares = [share for _, share, _ in points]
    low = [100 * (s.value - s.interval[0]) for s in shares]
    high = [100 * (s.interval[1] - s.value) for s in shares]
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
    label = points[0][2].series
    bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "ecolor": (style["color"], 0.45)}
    axes.errorbar(xs, [100 * s.value for s in shares], [low, high], label=label, **bars, **style)
    printed = [(x, value) for x, _, e in points if (value := paper_value(measure, e)) is not None]
    if printed:
        paper = f"{label}: reported by the paper"
        axes.plot(*zip(*printed, strict=True), ls=":", mfc="none", ms=10, label=paper, **style)


def x_value(kind: str, entry: Entry) -> float | None:
    """Where an entry stands on the axis; None where nothing was certified, so that no proof was completed."""
    found = entry.measured
    places = {"mask": found.mask[0] if found.mask else None, "patch": found.patch[0], "k": entry.k}
    return {**places, "answer": found.answer_passes, "proof": found.proved_passes}[kind]


def share_of(measure: str, entry: Entry) -> Share | None:
    """The measured share; None where the defence gives no such figure."""
    found = entry.measured
    if measure == "clean_accuracy":
        return found.clean
    if measure == "false_alerts":
        return found.false_alerts if found.guarantee is Guarantee.DETECTION else None
    return found.certified_as(GUARANTEES[measure])


def paper_value(measure: str, entry: Entry) -> float | None:
    """The paper's figure for the same measure: its robust accuracy stands with the test that it is."""
    if entry.reported is None:
        return None
    if measure == "clean_accuracy":
        return entry.reported.clean
    return entry.reported.robust if GUARANTEES.get(measure) is entry.measured.guarantee else None
