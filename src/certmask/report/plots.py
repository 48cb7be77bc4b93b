"""Plots of runs as SVG; the same figures give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import count
from math import log, sqrt
from textwrap import fill
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from certmask.certificate import Guarantee
from certmask.results.columns import Figures
from certmask.results.run import Run
from certmask.results.statistics import Share

BLUE, GREEN, ORANGE, GREY = "#0072b2", "#009e73", "#d55e00", "#8a8a8a"
PALETTE = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours: distinct to colour-blind readers."""

MARKERS = "osD^vPX"
COLOUR = {Guarantee.RECOVERY: BLUE, Guarantee.DETECTION: GREEN, Guarantee.PUBLISHED: GREY}
TITLE = {
    Guarantee.RECOVERY: "certified recovery",
    Guarantee.DETECTION: "certified detection",
    Guarantee.PUBLISHED: "published test: no guarantee",
}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "certmask",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.parse_math": False,
}
WIDTH = 10.4
SHARE_END = 113
"""Axes of shares go on beyond 100 % by the width of a printed figure."""

MARK = 7.5
NEAR = (0.01, 0.025)
"""Marks closer than these parts of a panel's width and of the highest share hide one another."""


def share_bars(lines: Sequence[Figures]) -> bytes | None:
    """Certified shares with their intervals, one panel per guarantee; None where nothing can be certified."""
    groups = {kind: [line for line in lines if line.guarantee is kind] for kind in TITLE}
    groups = {kind: group for kind, group in groups.items() if group}
    with mpl.rc_context(STYLE):
        return _svg(share_figure(groups)) if groups else None


def share_figure(groups: Mapping[Guarantee, Sequence[Figures]]) -> Figure:
    """Bars of every guarantee in a panel of its own."""
    heights = [len(group) * (2 if kind is Guarantee.DETECTION else 1) for kind, group in groups.items()]
    figure = Figure(figsize=(WIDTH, 0.34 * sum(heights) + 0.85 * len(groups) + 0.3), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=[h + 0.6 for h in heights])
    for axes, (kind, group) in zip(panels[:, 0], groups.items(), strict=True):
        _bar_panel(axes, kind, group)
    panels[-1, 0].set_xlabel("share of images (%), whiskers: 95 % confidence interval")
    return figure


def _bar_panel(axes: Axes, kind: Guarantee, group: Sequence[Figures]) -> None:
    """Bars of one guarantee; with detection, the false alerts below each bar."""
    places, names = [], []
    place = count()
    for line in group:
        shares = [(line.certified, COLOUR[kind], TITLE[kind], "//" if kind is Guarantee.PUBLISHED else "")]
        if kind is Guarantee.DETECTION:
            shares.append((line.false_alerts, ORANGE, "false alerts", "xx"))
        rows = [next(place) for _ in shares]
        for row, (share, colour, label, hatch) in zip(rows, shares, strict=True):
            beside = 100 * line.clean.value if row == rows[0] else 0.0
            _bar(axes, row, share, colour, label if line is group[0] else "_", hatch, beside)
        clean = "clean accuracy" if line is group[0] else "_"
        mark: dict[str, Any] = {"color": "black", "mfc": "white", "ms": 5.5, "zorder": 4, "clip_on": False}
        axes.plot([100 * line.clean.value], [rows[0]], "D", label=clean, **mark)
        places.append(sum(rows) / len(rows))
        names.append(plot_text(line.defence, 26))
    axes.set(yticks=places, yticklabels=names, xlim=(0, SHARE_END), ylim=(next(place) - 0.4, -0.6), title=TITLE[kind])
    axes.set_xticks(range(0, 101, 20))
    axes.spines.bottom.set_bounds(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.4, borderaxespad=0.2)


def _bar(axes: Axes, row: int, share: Share | None, colour: str, label: str, hatch: str, beside: float) -> None:
    """A bar with its whisker and its figure, which makes way for a mark that stands ``beside`` it."""
    if share is None:
        return
    value, (low, high) = 100 * share.value, (100 * edge for edge in share.interval)
    axes.barh(
        row, value, height=0.72, color=colour, alpha=0.85, hatch=hatch, edgecolor="white", linewidth=0, label=label
    )
    axes.plot([low, high], [row, row], color="0.15", lw=1.3, marker="|", ms=6, zorder=3)
    end = beside + 1 if high - 1 < beside < high + 11 else high
    axes.annotate(share.percent, (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)


def price_plot(lines: Sequence[Figures], names: Sequence[str]) -> bytes:
    """Certified share against passes, to prove and to answer; lines join what nothing else beats in both."""
    with mpl.rc_context(STYLE):
        return _svg(price_figure(lines, names))


def price_figure(lines: Sequence[Figures], names: Sequence[str]) -> Figure:
    columns = max(1, 110 // (8 + max(map(len, names))))
    figure = Figure(figsize=(WIDTH, 3.5 + 0.21 * -(-len(names) // columns)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, (title, passes) in zip((left, right), prices(lines).items(), strict=True):
        _price_panel(axes, lines, names, passes, title)
    left.set_ylabel(f"{TITLE[lines[0].guarantee]}\n(% of images)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _price_panel(
    axes: Axes, lines: Sequence[Figures], names: Sequence[str], passes: Sequence[float], title: str
) -> None:
    shares = certified_shares(lines)
    front = frontier(passes, shares)
    axes.step([passes[n] for n in front], [shares[n] for n in front], where="post", color="0.6", lw=1, ls="--")
    for number, (line, ring) in enumerate(zip(lines, rings(passes, shares), strict=True)):
        low, high = line.certified.interval if line.certified else (0.0, 0.0)
        colour = PALETTE[number % len(PALETTE)]
        marker = MARKERS[number // len(PALETTE) % len(MARKERS)] if len(lines) > len(MARKERS) else MARKERS[number]
        x, y = passes[number], shares[number]
        axes.plot([x, x], [100 * low, 100 * high], color=colour, lw=1.2, alpha=0.55, zorder=2)
        look: dict[str, Any] = {"mfc": "none", "mew": 1.6} if ring else {"mec": "white"}
        axes.plot([x], [y], marker, color=colour, ms=MARK + 6 * ring, zorder=3, **look)
        axes.plot([], [], marker, color=colour, ms=MARK, mec="white", label=plot_text(names[number]))
    axes.set(xscale="log", xlabel=f"{title} (log scale)", ylim=(0, None), xlim=price_range(passes))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.25)


def prices(lines: Sequence[Figures]) -> dict[str, list[float]]:
    """What the panels are drawn against, by the titles of their axes."""
    return {
        "mean passes per image to prove": [line.proof_passes or 0.0 for line in lines],
        "mean passes per image to answer": [line.answer_passes for line in lines],
    }


def certified_shares(lines: Sequence[Figures]) -> list[float]:
    """In percent."""
    return [100 * line.certified.value if line.certified else 0.0 for line in lines]


def rings(passes: Sequence[float], shares: Sequence[float]) -> list[int]:
    """How many marks a mark goes around: those later ones that would hide it, and those inside them."""
    low, high = price_range(passes)
    across, up = NEAR[0] * log(high / low), NEAR[1] * max(shares)
    found = [0] * len(passes)
    for n in reversed(range(len(passes))):
        hiding = [
            found[m]
            for m in range(n + 1, len(passes))
            if abs(log(passes[m] / passes[n])) <= across and abs(shares[m] - shares[n]) <= up
        ]
        found[n] = 1 + max(hiding) if hiding else 0
    return found


def price_range(prices: Sequence[float]) -> tuple[float, float]:
    """An axis that holds all prices and spans at least a factor of four, so that its ticks have room."""
    low, high = min(prices) / 1.15, max(prices) * 1.15
    widen = max(1.0, sqrt(4 * low / high))
    return low / widen, high * widen


def frontier(prices: Sequence[float], shares: Sequence[float]) -> list[int]:
    """Numbers of the points that no cheaper or equally cheap point reaches, by price."""
    kept: list[int] = []
    for number in sorted(range(len(prices)), key=lambda n: (prices[n], -shares[n], n)):
        if not kept or shares[number] > shares[kept[-1]]:
            kept.append(number)
    return kept


def dissent_plot(run: Run, lines: Sequence[Figures]) -> bytes | None:
    """How many masks disagreed with the answer, for images with and without proof; a panel per proof with masks."""
    shown = [line for line in lines if line.guarantee in (Guarantee.RECOVERY, Guarantee.DETECTION) and line.masks]
    if not shown:
        return None
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 2.3 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for number, axes in enumerate(panels.flat):
            if number < len(shown):
                _dissent_panel(axes, run, shown[number])
            else:
                axes.set_axis_off()
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
        return _svg(figure)


def _dissent_panel(axes: Axes, run: Run, line: Figures) -> None:
    found = [(row["defences"][line.defence]["dissent"], row["defences"][line.defence]["certified"]) for row in run.rows]
    bins = range(max(dissent for dissent, _ in found).bit_length() + 1)
    below = [0] * len(bins)
    for kind, colour, label in ((True, BLUE, "proved"), (False, "0.78", "not proved")):
        counts = [sum(d.bit_length() == place and certified is kind for d, certified in found) for place in bins]
        axes.bar(bins, counts, bottom=below, width=0.9, color=colour, label=label)
        below = [sum(pair) for pair in zip(below, counts, strict=True)]
    axes.set(xlabel=f"dissenting masks of {line.masks or 0:,}", ylabel="images")
    axes.set(xticks=bins, xticklabels=[dissent_range(place, line.masks or 0) for place in bins])
    axes.set_title(plot_text(line.defence, 26))
    axes.tick_params(axis="x", labelsize=9.5 if len(bins) < 7 else 7.5, rotation=0 if len(bins) < 8 else 40)
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))


def dissent_range(place: int, masks: int) -> str:
    """The numbers of one bin, up to all masks; each bin is twice as wide as the one before: 0, 1, 2–3, 4–7, …"""
    low, high = (1 << place) >> 1, min((1 << place) - 1, masks)
    return f"{low}–{high}" if high > low else f"{low}"


def plot_text(name: str, width: int = 90) -> str:
    """A name in lines of at most ``width``, without characters that would spoil an SVG."""
    return fill("".join(c if c.isprintable() else " " for c in name), width) or "–"


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
