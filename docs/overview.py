"""The page of results: its one table, its two plots, and the figures in its sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from attempts import attack_runs
from experiment_tables import entries_in, lined, trials_in
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from networks import title_of
from runs import unmeasured_figures
from zoom import (
    BARE,
    CHALLENGER,
    CLEANSER,
    DEIT,
    GRID,
    IMAGENETTE,
    JURIES,
    by_name,
    ends,
    measured,
    on_tokens,
    passes,
    percent,
    trials,
)  # fmt: skip

from certmask.certificate import Guarantee
from certmask.covers import offset_cover
from certmask.errors import ResultsError
from certmask.experiments.measured import Entry, FinishedTrial
from certmask.experiments.paper_tables import MASKS, PAPER_FOLD, SIDES
from certmask.experiments.sheets import mask_counts
from certmask.experiments.zooming import SHIPPED, SHIPPED_DETECTION, TUNED
from certmask.geometry import minimum_masks
from certmask.geometry.paper import theorem2_bound
from certmask.report.plots import BLUE, GREEN, GREY, ORANGE, svg_plot
from certmask.results.clusters import difference, is_right
from certmask.results.columns import Figures, attack_figures, figures
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share
from certmask.threat import Patch

PUBLISHED, SIZE_PLOT, PRICE_PLOT = "published k=6", "patch-size.svg", "price.svg"
ONE_PATCH, TINY, PAPER_SIDE = ("2 %", "2.4 %"), "0.4 %", 224
COLUMNS = (
    "network | defence | clean | certified recovery | certified detection | false alerts | "
    "passes to answer | passes to prove"
)
UNTRAINED = (DEIT, "resnet50_v1", "efficientnet-lite0")
"""The networks of zoom's experiment that were not trained for hidden pixels: ImageNet's."""
ENLARGED = Path("recipes/imagenette-kept-reported-greedy-384.jsonl.gz")
KINDS = (Guarantee.RECOVERY, Guarantee.DETECTION)


def overview_table(folder: Path) -> str:
    """Every network that has zoom beside it with every defence, at 2 % (2.4 % on CIFAR-10), one promise a column."""
    lines = []
    for trial in trials(folder / "zoom").values():
        own, published = measured(trial), _published(trial, folder / "table1")
        rows = (own[BARE], published, own[CLEANSER], own[CHALLENGER], own[SHIPPED], own[SHIPPED_DETECTION])
        lines += [_line(title_of(trial), row) for row in rows]
    return lined(COLUMNS, lines, words=2)


def further_trials(folder: Path) -> list[FinishedTrial]:
    """Networks of masks that have zoom in Table 1 alone, at the patch of the table."""
    known, chosen = trials(folder / "zoom"), _at_the_patch(folder / "table1")
    return [trial for trial in chosen if trial.model not in known and {PUBLISHED, SHIPPED} <= trial.entries.keys()]


def _further(folder: Path) -> dict[str, str]:
    """Zoom beside PatchCleanser where zoom is in Table 1 alone: further networks, and CIFAR-10's smallest patch."""
    tiny = [trial for trial in trials_in(folder / "table1") if trial.patch.label == TINY and SHIPPED in trial.entries]
    return {
        "further": ", ".join(f"{_said(trial)} {_lead(trial)}" for trial in further_trials(folder)),
        "smallest": " and ".join(map(_lead, tiny)),
    }


def _said(trial: FinishedTrial) -> str:
    return title_of(trial).replace(", ", " on ")


def _lead(trial: FinishedTrial) -> str:
    """Points of certificates by which zoom is ahead of PatchCleanser."""
    return f"{difference([trial.run], SHIPPED, CLEANSER).points:+.1f}".replace("-", "−")


def _published(trial: FinishedTrial, folder: Path) -> Figures:
    """The published rule on the network and the photos of a trial; an error if they are others."""
    beside = [one for one in trials_in(folder) if (one.model, one.patch) == (trial.model, trial.patch)]
    same = [one for one in beside if _photos(one.run) == _photos(trial.run) and PUBLISHED in one.entries]
    if len(same) != 1:
        raise ResultsError(f"expected a run of {PUBLISHED!r} on the photos of {trial.run.path}, got {len(same)}")
    return same[0].entries[PUBLISHED].measured


def _photos(run: Run) -> set[str]:
    return {row["input_sha256"] for row in run.rows}


def _at_the_patch(folder: Path) -> list[FinishedTrial]:
    """Table 1's trials at the patch of the table, Imagenette's first."""
    found = [trial for trial in trials_in(folder) if trial.patch.label in ONE_PATCH and not trial.few]
    return sorted(found, key=lambda trial: (trial.data != "imagenette", trial.model))


def _line(network: str, own: Figures) -> str:
    name = f"**{own.defence}**" if own.defence in (SHIPPED, SHIPPED_DETECTION) else own.defence
    recovery, detection = (percent(own.certified_as(kind)) for kind in KINDS)
    prices = (passes(own.answer_passes), passes(own.proved_passes if own.guarantee.proved else None))
    return " | ".join((network, name, percent(own.clean), recovery, detection, percent(own.false_alerts), *prices))


def draw_overview(results: Path, images: Path) -> None:
    entries = [entry for entry in entries_in(results / "figure-patch-size") if entry.trial.model == DEIT]
    (images / SIZE_PLOT).write_bytes(svg_plot(_size_figure, entries))
    (images / PRICE_PLOT).write_bytes(svg_plot(_price_figure, [*trials(results / "zoom").values()]))


PANELS = {
    Guarantee.RECOVERY: ("certified recovery", "upper right", (ORANGE, GREEN, BLUE)),
    Guarantee.DETECTION: ("certified detection", "upper right", (BLUE, GREEN, ORANGE)),
    Guarantee.PUBLISHED: ("published test, no guarantee", "lower left", (GREY,)),
}
"""Of the plot over patch sizes: title, place of the legend and colours."""


def _size_figure(entries: list[Entry]) -> Figure:
    """Certified share by the side of the patch, one promise a panel; hollow marks are the paper's."""
    figure = Figure(figsize=(10.4, 3.1), layout="constrained")
    for axes, (kind, (title, legend, colours)) in zip(figure.subplots(1, 3, sharey=True), PANELS.items(), strict=True):
        lines: dict[str, list[Entry]] = {}
        for entry in (one for one in entries if one.measured.guarantee is kind):
            lines.setdefault(entry.declared.line, []).append(entry)
        for (line, found), colour, marker in zip(lines.items(), colours, "s^*", strict=False):
            _size_line(axes, line, found, colour, marker)
        axes.set(title=title, xlabel="side of the patch, pixels of 224", ylim=(0, 75))
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, loc=legend)
    figure.axes[0].set_ylabel(f"% of {entries[0].measured.images} photos")
    return figure


def _size_line(axes: Axes, line: str, found: list[Entry], colour: str, marker: str) -> None:
    shares = [(entry.trial.patch.side, entry.measured.certified) for entry in found if entry.measured.certified]
    sides, values = [side for side, _ in shares], [100 * share.value for _, share in shares]
    low, high = zip(*(share.interval for _, share in shares), strict=True)
    axes.plot(sides, values, color=colour, marker=marker, ms=6, mec="white", label=line)
    axes.fill_between(sides, [100 * x for x in low], [100 * x for x in high], color=colour, alpha=0.13, lw=0)
    told = [(e.trial.patch.side, e.reported.robust) for e in found if e.reported and e.reported.robust is not None]
    if told:
        label = f"{line}, the paper's"
        axes.plot(*zip(*told, strict=True), ls="", marker=marker, ms=9, mfc="none", mec=colour, label=label)


MARKS: dict[str, dict[str, Any]] = {
    "other settings of zoom": {"color": "0.72", "marker": ".", "ms": 7, "zorder": 2},
    CLEANSER: {"color": ORANGE, "marker": "s", "ms": 7, "zorder": 3},
    GRID: {"color": ORANGE, "marker": "s", "ms": 7, "mfc": "white", "zorder": 3},
    CHALLENGER: {"color": ORANGE, "marker": "D", "ms": 6.5, "zorder": 3},
    JURIES: {"color": GREEN, "marker": "^", "ms": 7.5, "zorder": 3},
    TUNED: {"color": BLUE, "marker": "o", "ms": 7, "zorder": 4},
    SHIPPED: {"color": BLUE, "marker": "*", "ms": 13, "zorder": 5},
}
"""How a defence is drawn in the plot of prices."""


def _price_figure(found: list[FinishedTrial]) -> Figure:
    """Certified recovery against passes, of a completed proof above and of an answer below; a column a network."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    panels = figure.subplots(2, len(found), sharey="col")
    for (above, below), trial in zip(panels.T, found, strict=True):
        for axes, price, label in ((above, "proved_passes", "proof"), (below, "answer_passes", "answer")):
            for own in figures(trial.run):
                if name := _mark_of(own, trial):
                    axes.plot(getattr(own, price), 100 * certified(own), ls="", label=name, **MARKS[name])
            axes.set(xscale="log", xlabel=f"passes, {label}")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.margins(0.12)
            axes.grid(alpha=0.25)
        above.set_title(title_of(trial).replace(", ", ",\n"))
    for axes in panels[:, 0]:
        axes.set_ylabel("certified recovery, %")
    told = {label: mark for axes in figure.axes for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = [name for name in reversed(MARKS) if name in told]
    figure.legend([told[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
    return figure


def certified(own: Figures) -> float:
    return own.certified.value if own.certified else 0.0


def _mark_of(own: Figures, trial: FinishedTrial) -> str:
    """The mark of a defence that recovers; none for variants of PatchCleanser that the page does not name.

    Nor for a token grid on a network whose masks lie on none.
    """
    if (
        own.guarantee is not Guarantee.RECOVERY
        or not own.proved_passes
        or (own.defence == GRID and not on_tokens(trial))
    ):
        return ""
    other = "" if own.defence.startswith(CLEANSER) else "other settings of zoom"
    return own.defence if own.defence in MARKS else other


@lru_cache
def attempts(results: Path) -> dict[Guarantee, tuple[int, int, int, int]]:
    """By guarantee, over all attacks on certified photos: attempts, certificates broken, photos, photos lost.

    Of networks without a defence: attempts, and how many changed the answer.
    """
    found: dict[Guarantee, tuple[int, int, int, int]] = {}
    for run in attack_runs(results):
        for own in attack_figures(run):
            broken = own.label_changed if own.broken is None else own.broken
            counts = (own.attempts, broken, own.images, own.images_lost)
            before = found.get(own.guarantee, (0, 0, 0, 0))
            found[own.guarantee] = tuple(map(sum, zip(before, counts, strict=True)))  # type: ignore[assignment]
    return found


def _card(results: Path, name: str) -> dict[str, float]:
    return dict(json.loads((results / f"models/{name}.json").read_text())["metrics"])


def _shares(numbers: dict[str, float], *names: str) -> list[str]:
    images = int(numbers["images"])
    return [Share(round(numbers[name] * images), images).percent for name in names]


def _claims() -> dict[str, str]:
    """The paper's counts at the settings of its Table 1, beside exact ones; arithmetic."""
    counts = {str(one["patch"]): one for one in mask_counts()}
    middle, side, mask = counts[ONE_PATCH[0]], SIDES[ONE_PATCH[0]], MASKS[ONE_PATCH[0]]
    cover = offset_cover(PAPER_SIDE, Patch(side, side), mask, PAPER_FOLD)
    offsets = [one["paper_offset"] for one in counts.values()]
    return {
        "offset": f"{middle['paper_offset']:,}",
        "bound": f"{middle['paper_bound']:,}",
        "minimum": f"{middle['exact_k']:,}",
        "offsets": f"{min(offsets):,} to {max(offsets):,}",
        "line paper": str(theorem2_bound(PAPER_SIDE, side, mask)),
        "line": str(minimum_masks((PAPER_SIDE, 1), Patch(side, 1), (mask, 1), 1)),
        "covered": f"{cover.min_fold} to {cover.max_fold}",
        "tiny": f"{counts[TINY]['paper_offset']:,}",
    }


def _costs(results: Path) -> dict[str, str]:
    own = {model: measured(trial) for model, trial in trials(results / "reproduce/zoom").items()}
    found = list(trials(results / "reproduce/zoom").values())
    rates: dict[str, list[float]] = {}
    for row in json.loads((results / "speed/zoom-h200.json").read_text())["rows"]:
        rates.setdefault(row["defence"], []).append(row["photos_per_second"])

    def of(defence: str, value: str) -> Iterable[float]:
        for figures_ in own.values():
            number = getattr(figures_[defence], value)
            yield 100 * number.value if isinstance(number, Share) else number

    lost, quieter = (
        [difference([trial.run], name, BARE, is_right).points for trial in found]
        for name in (SHIPPED, SHIPPED_DETECTION)
    )
    tests = [_published(trial, results / "reproduce/table1").certified for trial in found]
    return {
        "answers": ends(of(SHIPPED, "answer_passes"), ".0f"),
        "clean": ends(lost, "+.1f"),
        "challenger": ends((100 * certified(own[model][CHALLENGER]) for model in UNTRAINED), ".1f"),
        "challenger answers": ends((own[model][CHALLENGER].answer_passes for model in UNTRAINED), ".0f"),
        "challenger zoom": ends((100 * certified(own[model][SHIPPED]) for model in UNTRAINED), ".1f"),
        "challenger zoom answers": ends((own[model][SHIPPED].answer_passes for model in UNTRAINED), ".0f"),
        "tuned": percent(own[IMAGENETTE][TUNED].certified),
        "test": ends((100 * share.value for share in tests if share), ".0f"),
        "recovery": ends(of(SHIPPED, "certified"), ".1f"),
        "detection": ends(of(SHIPPED_DETECTION, "certified"), ".0f"),
        "detection clean": ends(quieter, "+.1f"),
        "detection answers": ends(of(SHIPPED_DETECTION, "answer_passes"), ".0f"),
        "alerts": ends(of(SHIPPED_DETECTION, "false_alerts"), ".0f"),
        "deit": percent(own[DEIT][SHIPPED].certified),
        "deit cleanser": percent(own[DEIT][CLEANSER].certified),
        "rate": f"{max(rates[SHIPPED]):.0f}",
        "rate cleanser": f"{max(rates[CLEANSER]):.0f}",
    }


def overview(results: Path) -> dict[str, str]:
    """Figures in sentences of the page of results."""
    tried = attempts(results)
    proved = [sum(counts) for counts in zip(*(tried[kind] for kind in KINDS), strict=True)]
    test, bare = tried[Guarantee.PUBLISHED], tried[Guarantee.NONE]
    wide, pairs = _card(results, "cifar10-resnet26w3-pairs"), _card(results, "cifar10-deit_tiny-pairs")
    two, zoomed = "certified_recovery_two_masks", "certified_recovery_zoom"
    enlarged = by_name(read_run(results / ENLARGED))
    return {
        **_claims(),
        **_costs(results),
        **_further(results / "reproduce"),
        "attempts": f"{proved[0]:,}",
        "broken": str(proved[1]),
        "bare": f"{bare[1]:,} of {bare[0]:,}",
        "published": f"{test[1]:,} of {test[0]:,}",
        "published photos": f"{test[3]} of {test[2]}",
        "untrained": _shares(_card(results, "cifar10-resnet26w2-none"), two)[0],
        "trained": _shares(_card(results, "cifar10-resnet26w2-greedy"), two)[0],
        "wide cleanser": _shares(wide, two)[0],
        "wide": _shares(wide, zoomed)[0],
        "pairs cleanser": _shares(pairs, two)[0],
        "pairs": _shares(pairs, zoomed)[0],
        "enlarged": percent(enlarged["patchcleanser"].certified),
        "enlarged zoom": percent(enlarged["zoom"].certified),
        "missing": str(len(unmeasured_figures(results / "reproduce"))),
    }
