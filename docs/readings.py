"""The figures inside sentences: each is printed from the rows, by the name that the page gives it.

``<!--=table1 juries ahead-->13 of 16<!--=-->``: the first word says which reading, the rest which of its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from again import again
from experiment_tables import CHANCE, ahead_in, behind_in, beyond_chance, compared, entries_in, gaps, trials_in
from other_methods import others
from overview import overview
from reach import reach
from recipes import recipes
from scale import scale
from sizes import sizes
from speed import speed
from zoom import zoom

from certmask.errors import ResultsError
from certmask.experiments.measured import FinishedTrial
from certmask.results.clusters import Holds, difference, is_certified, is_right, split
from certmask.results.run import read_run
from certmask.results.statistics import holm, mcnemar
from certmask.zoo.networks import MASKS

SIX, ONCE = "published k=6", "published, exact minimum k=1"
DETECTION, DETECTION_ONCE, REPORTS = "jury detection k=6", "jury detection, exact minimum k=1", "Minority Reports k=6"
JURIES, CLEANSER, CHALLENGER = "jury recovery k=4, aligned", "PatchCleanser 6×6", "PatchCleanser challenger 6×6"
COPIES, COPIED, OFFSET = "published, Replicated k=6", "published, Replicated k=1", "published, Offset k=6"
JURIES_OFFSET, JURIES_COPIES = "jury detection, Offset k=6", "jury detection, Replicated k=6"
CHOSEN, MOST_PASSES = "jury recovery k=4, mask 80, aligned", 1000


def seen(folder: Path, *defences: str, data: str = "") -> list[FinishedTrial]:
    """The trials with all these defences, on one data set if it is named; handfuls of images are left out."""
    found = (trial for trial in trials_in(folder) if not trial.few and data in ("", trial.data))
    return [trial for trial in found if {*defences} <= trial.entries.keys()]


def passes(trial: FinishedTrial, defence: str) -> float:
    return trial.entries[defence].measured.answer_passes


def alerts(trial: FinishedTrial, defence: str) -> float:
    return trial.entries[defence].measured.false_alerts.value


def number(held: Iterable[bool]) -> str:
    flags = list(held)
    return f"{sum(flags):,} of {len(flags):,}"


def span(values: Iterable[float]) -> str:
    low, *_, high = sorted(values)
    return f"{low:,.0f} to {high:,.0f}"


def ahead(found: Sequence[FinishedTrial], first: str, second: str, holds: Holds = is_certified) -> dict[str, str]:
    """In how many trials it holds on more photos for the first; beyond chance after Holm's correction over them."""
    splits = [split(one.run, first, second, holds) for one in found]
    chances = holm([mcnemar(*counts) for counts in splits])
    sure = sum(p < CHANCE and gained > lost for (gained, lost), p in zip(splits, chances, strict=True))
    return {"": number(gained > lost for gained, lost in splits), " beyond chance": str(sure)}


def clustered(found: Sequence[FinishedTrial], unless: frozenset[str] = frozenset()) -> dict[str, str]:
    """Juries minus PatchCleanser over trials that share photos."""
    runs = [one.run for one in found]
    gain, price = (difference(runs, JURIES, CLEANSER, holds, unless) for holds in (is_certified, is_right))
    return {" photos": f"{gain.photos:,}", " certificates": str(gain), " clean": str(price)}


def named(what: str, figures: dict[str, str]) -> dict[str, str]:
    return {f"{what}{name}": text for name, text in figures.items()}


def table1(folder: Path) -> dict[str, str]:
    found, sixes = seen(folder, JURIES, CLEANSER), seen(folder, SIX, CLEANSER)
    imagenet, others = seen(folder, SIX, data="imagenet"), [one for one in found if one.data != "imagenet"]
    juries = compared(folder, JURIES, CLEANSER)
    masked = (entry for entry in entries_in(folder) if entry.declared.network == MASKS and not entry.trial.few)
    paper = [(entry.measured, entry.reported) for entry in masked if entry.reported]
    return {
        "test ahead": ahead(sixes, SIX, CLEANSER)[""],
        "distance within": number(abs(printed - apart.points) <= apart.half for _, printed, apart in gaps(folder)),
        "clean below": number(100 * f.clean.value < (told.clean or 0) for f, told in paper),
        "robust below": number(100 * f.certified.value < (told.robust or 0) for f, told in paper if f.certified),
        "test falls": ahead(sixes, ONCE, SIX)[""],
        "clean rises": ahead(sixes, SIX, ONCE, is_right)[""],
        "detection gain": str(difference([one.run for one in sixes], DETECTION, DETECTION_ONCE)),
        "times": span(passes(one, DETECTION) / passes(one, DETECTION_ONCE) for one in sixes),
        "alerts": span(100 * alerts(one, DETECTION) for one in imagenet),
        "reports fewer": ahead(imagenet, DETECTION, REPORTS)[""],
        "reports quieter": number(alerts(one, REPORTS) < alerts(one, DETECTION) for one in imagenet),
        "juries ahead": f"{len(ahead_in(juries))} of {len(juries)}",
        "juries ahead beyond chance": beyond_chance(ahead_in(juries)),
        "juries behind beyond chance": beyond_chance(behind_in(juries)),
        **named("juries lose clean", ahead(found, CLEANSER, JURIES, is_right)),
        "models": str(len({one.model for one in found})),
        "imagenet runs": str(len(imagenet)),
        **named("imagenet", clustered(imagenet)),
        "other runs": str(len(others)),
        **named("other", clustered(others)),
        "challenger passes": span(passes(one, CHALLENGER) for one in found),
        "cleanser passes": span(passes(one, CLEANSER) for one in found),
        "jury passes": span(passes(one, JURIES) for one in found),
        "published times": span(passes(one, SIX) / passes(one, CLEANSER) for one in sixes),
    }


def tilings(folder: Path) -> dict[str, str]:
    found = seen(folder, COPIES, COPIED, OFFSET)
    rows = [row for one in found for row in one.run.rows]
    return {
        "test ahead": ahead(found, COPIES, OFFSET)[""],
        **named("clean behind", ahead(found, OFFSET, COPIES, is_right)),
        "juries": ahead(found, JURIES_OFFSET, JURIES_COPIES)[""],
        "same": number(is_certified(row, COPIES) == is_certified(row, COPIED) for row in rows),
    }


def front(folder: Path) -> dict[str, str]:
    """What the default cover is chosen from; an error if the choice is not the best for its passes."""
    (one,) = seen(folder)
    figures = {name: entry.measured for name, entry in one.entries.items()}
    held = {name: found.certified.count for name, found in figures.items() if found.certified}
    proved = {name: found.proved_passes or float("inf") for name, found in figures.items()}
    if max((name for name in held if proved[name] <= MOST_PASSES), key=held.__getitem__) != CHOSEN:
        raise ResultsError(f"expected {CHOSEN!r} to certify the most for {MOST_PASSES} passes, got another")
    best = max((name for name in held if name.startswith("PatchCleanser")), key=held.__getitem__)
    dearer = {what: f"jury recovery {name}" for what, name in (
        ("smaller", "k=4, mask 64, aligned"), ("nine", "k=9, mask 80, aligned"), ("all", "k=4, mask 80, all"),
        ("both", "k=9, mask 80, all"))}  # fmt: skip
    used = {row["image"] for other in (one, *seen(folder.parent / "fold")) for row in other.run.rows}
    return {
        "photos": str(figures[CHOSEN].images),
        "chosen": str(held[CHOSEN]),
        "chosen passes": f"{proved[CHOSEN]:,.0f}",
        "best grid": str(held[best]),
        "best grid size": best.split()[1],
        "best grid passes": f"{proved[best]:,.0f}",
        **{f"{what} times": f"{proved[name] / proved[CHOSEN]:.1f}" for what, name in dearer.items()},
        **{f"{what} more": str(held[name] - held[CHOSEN]) for what, name in dearer.items()},
        **named("unused", clustered(seen(folder.parent / "table1", SIX, data="imagenet"), frozenset(used))),
    }


def demo(path: Path) -> dict[str, str]:
    return {"mask": str(read_run(path).defences["published rule k=6"]["cover"]["mask"][0])}


READINGS: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "table1": (table1, "reproduce/table1"),
    "tilings": (tilings, "reproduce/table3"),
    "front": (front, "reproduce/pareto"),
    "demo": (demo, "demo.jsonl"),
    "speed": (speed, "speed"),
    "scale": (scale, "speed"),
    "overview": (overview, ""),
    "zoom": (zoom, ""),
    "sizes": (sizes, ""),
    "others": (others, ""),
    "reach": (reach, ""),
    "recipes": (recipes, ""),
    "again": (again, ""),
}
"""Which function reads which file or folder under ``results``."""
