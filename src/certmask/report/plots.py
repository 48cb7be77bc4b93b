"""Plots of runs as SVG; the same figures give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import log, sqrt
from textwrap import fill
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from certmask.certificate import Guarantee
from certmask.results.columns import Figures
from certmask.results.run import Run

BLUE, GREEN, ORANGE, GREY = "#0072b2", "#009e73", "#d55e00", "#8a8a8a"
PALETTE = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours: distinct to colour-blind readers."""

MARKERS, ZOOM = "osD^vPX", "*"
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
WIDTH, SVG_DPI = 10.4, 72
NAME = 32
"""Names of defences are broken into lines of so many characters."""

SHARE_END = 113
"""Axes of shares go on beyond 100 % by the width of a printed figure."""

MARK = 7.5
NEAR = (0.01, 0.025)
"""Marks closer than these parts of a panel's width and of the highest share hide one another."""


def svg_plot(draw: Callable[..., Figure], *shown: Any) -> bytes:
    """What a function draws, in the style of the page.

    The layout's solver is off by a last bit now and then, which names of clip paths would show: it is rounded.
    """
    with mpl.rc_context(STYLE):
        figure = draw(*shown)
        FigureCanvasSVG(figure)
        figure.set_dpi(SVG_DPI)
        layout = figure.get_layout_engine()
        if layout is not None:
            layout.execute(figure)
            figure.set_layout_engine(None)
        for axes in figure.axes:
            left, bottom, width, height = (round(edge, 9) for edge in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()


def share_figure(lines: Sequence[Figures]) -> Figure:
    """Certified shares with their intervals, the bars of every guarantee in a panel of its own."""
    groups = {kind: [line for line in lines if line.guarantee is kind] for kind in TITLE}
    groups = {kind: group for kind, group in groups.items() if group}
    heights = [len(group) * (2 if kind is Guarantee.DETECTION else 1) for kind, group in groups.items()]
    figure = Figure(figsize=(WIDTH, 0.38 * sum(heights) + 0.85 * len(groups) + 0.3), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=[h + 0.6 for h in heights])
    for axes, (kind, group) in zip(panels[:, 0], groups.items(), strict=True):
        _bar_panel(axes, kind, group)
    panels[-1, 0].set_xlabel("share of images (%), whiskers: 95 % confidence interval")
    return figure


def _bar_panel(axes: Axes, kind: Guarantee, group: Sequence[Figures]) -> None:
    """Bars of one guarantee with whiskers and, at their upper corners where no mark can lie, figures."""
    certified = [line.certified for line in group if line.certified]
    bars = [(certified, TITLE[kind], COLOUR[kind], "//" if kind is Guarantee.PUBLISHED else "")]
    if kind is Guarantee.DETECTION:
        bars.append(([line.false_alerts for line in group], "false alerts", ORANGE, "xx"))
    for first, (shares, label, colour, hatch) in enumerate(bars):
        rows = range(first, len(bars) * len(group), len(bars))
        look: dict[str, Any] = {"color": colour, "alpha": 0.85, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(rows, [100 * share.value for share in shares], height=0.64, label=label, **look)
        for row, share in zip(rows, shares, strict=True):
            low, high = share.interval
            axes.plot([100 * low, 100 * high], [row, row], color="0.15", lw=1.3, marker="|", ms=6, zorder=3)
            corner = (100 * share.value, row)
            axes.annotate(share.percent, corner, xytext=(3, 5.5), textcoords="offset points", fontsize=9)
    for number, line in enumerate(group):
        mark: dict[str, Any] = {"color": "black", "mfc": "white", "ms": 5.5, "zorder": 4, "clip_on": False}
        clean = "_" if number else "clean accuracy"
        axes.plot([100 * line.clean.value], [number * len(bars)], "D", label=clean, **mark)
    places = [len(bars) * number + (len(bars) - 1) / 2 for number in range(len(group))]
    axes.set_yticks(places, [plot_text(line.defence, NAME) for line in group])
    axes.set(xlim=(0, SHARE_END), ylim=(len(bars) * len(group) - 0.4, -0.6), title=TITLE[kind])
    axes.set_xticks(range(0, 101, 20))
    axes.spines.bottom.set_bounds(0, 100)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.4, borderaxespad=0.2)


def size_figure(lines: Sequence[Figures]) -> Figure:
    """Certified share against the size of a patch that the defences are not told, each guarantee in a panel."""
    groups = {kind: [line for line in lines if line.guarantee is kind] for kind in TITLE}
    groups = {kind: group for kind, group in groups.items() if group}
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)
    for axes, (kind, group) in zip(panels[0], groups.items(), strict=True):
        for number, line in enumerate(group):
            sides = [size.side for size in line.sizes]
            shares = [100 * size.certified.value for size in line.sizes]
            bounds = [[100 * bound for bound in size.certified.interval] for size in line.sizes]
            colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
            axes.plot(sides, shares, color=colour, marker=marker, ms=MARK, mec="white", label=plot_text(line.defence))
            axes.fill_between(sides, *zip(*bounds, strict=True), color=colour, alpha=0.15, lw=0)
        axes.set(xlabel="side of the patch (pixels), not told", title=TITLE[kind], ylim=(0, 100))
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    panels[0, 0].set_ylabel("% of images")
    return figure


def price_figure(lines: Sequence[Figures], names: Sequence[str]) -> Figure:
    """Certified share against passes, to prove and to answer; lines join what nothing else beats in both."""
    columns = max(1, 110 // (8 + max(map(len, names))))
    figure = Figure(figsize=(WIDTH, 3.5 + 0.21 * -(-len(names) // columns)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, (title, passes, shares) in zip((left, right), _price_panels(lines), strict=True):
        front = frontier(passes, shares)
        axes.step([passes[n] for n in front], [shares[n] for n in front], where="post", color="0.6", lw=1, ls="--")
        _price_marks(axes, lines, names, passes, shares)
        axes.set(xscale="log", xlabel=f"{title} (log scale)", ylim=(0, None), xlim=price_range(passes))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.25)
    left.set_ylabel(f"{TITLE[lines[0].guarantee]}\n(% of images)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _price_panels(lines: Sequence[Figures]) -> list[tuple[str, list[float], list[float]]]:
    """The title of each panel's axis, the passes of the defences, and their certified shares in percent."""
    shares = [100 * line.certified.value if line.certified else 0.0 for line in lines]
    prove, answer = [line.proof_passes or 0.0 for line in lines], [line.answer_passes for line in lines]
    return [("mean passes per image to prove", prove, shares), ("mean passes per image to answer", answer, shares)]


def _price_marks(
    axes: Axes, lines: Sequence[Figures], names: Sequence[str], passes: Sequence[float], shares: Sequence[float]
) -> None:
    for number, (line, ring) in enumerate(zip(lines, rings(passes, shares), strict=True)):
        low, high = line.certified.interval if line.certified else (0.0, 0.0)
        colour, x, y = PALETTE[number % len(PALETTE)], passes[number], shares[number]
        marker = ZOOM if line.levels > 1 else MARKERS[(number + number // len(PALETTE)) % len(MARKERS)]
        axes.plot([x, x], [100 * low, 100 * high], color=colour, lw=1.2, alpha=0.55, zorder=2)
        look: dict[str, Any] = {"mfc": "none", "mew": 1.6} if ring else {"mec": "white"}
        size = 1.8 * MARK if line.levels > 1 else MARK
        axes.plot([x], [y], marker, color=colour, ms=size + 6 * ring, zorder=3, **look)
        axes.plot([], [], marker, color=colour, ms=size, mec="white", label=plot_text(names[number]))


def price_caption(lines: Sequence[Figures]) -> str:
    """What is shown, and what dashed lines and hollow marks mean where there are any."""
    line, panels = lines[0], _price_panels(lines)
    where = f"{line.model} on {line.data}, {str(line.threat).removeprefix('any ')}"
    words = [f"The price of a proof ({TITLE[line.guarantee]}): {where}.", "Vertical: 95 % intervals."]
    if any(line.levels > 1 for line in lines):
        words.append("Stars: covers of several levels, where small masks are asked only if large ones leave doubt.")
    if any(len(frontier(passes, shares)) > 1 for _, passes, shares in panels):
        words.append("Dashed: what no cheaper defence reaches.")
    if any(any(rings(passes, shares)) for _, passes, shares in panels):
        words.append("Hollow marks lie around others in nearly the same place.")
    return " ".join(words)


def rings(passes: Sequence[float], shares: Sequence[float]) -> list[int]:
    """How many marks a mark goes around: those later ones that would hide it, and those inside them."""
    low, high = price_range(passes)
    across, up = NEAR[0] * log(high / low), NEAR[1] * max(shares)
    found = [0] * len(passes)
    for n in reversed(range(len(passes))):
        for m in range(n + 1, len(passes)):
            if abs(log(passes[m] / passes[n])) <= across and abs(shares[m] - shares[n]) <= up:
                found[n] = max(found[n], 1 + found[m])
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


def dissent_figure(run: Run, lines: Sequence[Figures]) -> Figure:
    """How many masks disagreed with the answer, for images with and without proof; a panel per defence."""
    columns = min(3, len(lines))
    rows = -(-len(lines) // columns)
    figure = Figure(figsize=(WIDTH, 2.3 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, line in zip_longest(panels.flat, lines):
        if line:
            _dissent_panel(axes, run, line)
        else:
            axes.set_axis_off()
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _dissent_panel(axes: Axes, run: Run, line: Figures) -> None:
    found = [row["defences"][line.defence] for row in run.rows]
    places = [(one["dissent"].bit_length(), one["certified"]) for one in found]
    bins = range(max(place for place, _ in places) + 1)
    proved = [places.count((place, True)) for place in bins]
    unproved = [places.count((place, False)) for place in bins]
    axes.bar(bins, proved, width=0.9, color=BLUE, label="proved")
    axes.bar(bins, unproved, bottom=proved, width=0.9, color="0.78", label="not proved")
    masks = "those asked" if line.levels > 1 else f"{line.masks or 0:,}"
    axes.set(xlabel=f"dissenting masks of {masks}", ylabel="images", title=plot_text(line.defence, NAME))
    axes.set_xticks(bins, [dissent_range(place, line.masks or 0) for place in bins])
    axes.set_ylim(0, 1.05 * max(map(sum, zip(proved, unproved, strict=True))))
    axes.tick_params(axis="x", labelsize=8, rotation=0 if len(bins) < 8 else 40)
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))


def dissent_range(place: int, masks: int) -> str:
    """The numbers of one bin, up to all masks; each bin is twice as wide as the one before: 0, 1, 2–3, 4–7, …"""
    low, high = (1 << place) >> 1, min((1 << place) - 1, masks)
    return f"{low}–{high}" if high > low else f"{low}"


def plot_text(name: str, width: int = 90) -> str:
    """A name in lines of at most ``width``, without characters that would spoil an SVG."""
    return fill("".join(c if c.isprintable() else " " for c in name), width) or "–"
