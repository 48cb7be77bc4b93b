"""The figures inside sentences: each is printed from the rows, by the name that the page gives it.

``<!--=table1 juries ahead-->13 of 16<!--=-->``: the first word says which reading, the rest which of its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment_tables import CHANCE, gaps, measured_in
from speed import speed

from certmask.errors import ResultsError
from certmask.experiments.measured import Entry, FinishedTrial
from certmask.results.clusters import Holds, difference, is_certified, is_right, split
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.results.statistics import holm, mcnemar

SIX, ONCE = "published k=6", "published, exact minimum k=1"
DETECTION, DETECTION_ONCE, REPORTS = "jury detection k=6", "jury detection, exact minimum k=1", "Minority Reports k=6"
JURIES, CLEANSER, CHALLENGER = "jury recovery k=4, aligned", "PatchCleanser 6×6", "PatchCleanser challenger 6×6"
COPIES, COPIED, OFFSET = "published, Replicated k=6", "published, Replicated k=1", "published, Offset k=6"
CHOSEN, MOST_PASSES = "jury recovery k=4, mask 80, aligned", 1000


@dataclass(frozen=True)
class Seen:
    """A trial and what its defences came to."""

    trial: FinishedTrial
    entries: dict[str, Entry]

    def of(self, defence: str) -> Figures:
        return self.entries[defence].measured

    def held(self, defence: str) -> int:
        share = self.of(defence).certified
        return share.count if share else 0

    def right(self, defence: str) -> int:
        return self.of(defence).clean.count

    def proved(self, defence: str) -> float:
        """Passes of a completed proof; endless where there is none."""
        return self.of(defence).proved_passes or float("inf")


def seen(folder: Path, *defences: str, data: str = "") -> list[Seen]:
    """The trials with all these defences, on one data set if it is named; handfuls of images are left out."""
    found = [Seen(entries[0].trial, {e.declared.name: e for e in entries}) for entries in measured_in(folder)]
    return [
        one for one in found
        if not one.trial.few and {*defences} <= one.entries.keys() and data in ("", one.trial.data)
    ]  # fmt: skip


def number(held: Iterable[bool]) -> str:
    flags = list(held)
    return f"{sum(flags):,} of {len(flags):,}"


def span(values: Iterable[float]) -> str:
    low, *_, high = sorted(values)
    return f"{low:,.0f} to {high:,.0f}"


def beyond_chance(found: Sequence[Seen], first: str, second: str, holds: Holds) -> list[int]:
    """In how many trials the first is ahead beyond chance, and in how many the second; Holm's correction over them."""
    splits = [split(one.trial.run, first, second, holds) for one in found]
    sure = [counts for counts, p in zip(splits, holm([mcnemar(*s) for s in splits]), strict=True) if p < CHANCE]
    return [sum(a > b for a, b in sure), sum(a < b for a, b in sure)]


def clustered(what: str, found: Sequence[Seen], unless: frozenset[str] = frozenset()) -> dict[str, str]:
    """Juries minus PatchCleanser over trials that share photos."""
    runs = [one.trial.run for one in found]
    gain, price = (difference(runs, JURIES, CLEANSER, holds, unless) for holds in (is_certified, is_right))
    return {f"{what} photos": f"{gain.photos:,}", f"{what} certificates": str(gain), f"{what} clean": str(price)}


def table1(folder: Path) -> dict[str, str]:
    found, sixes = seen(folder, JURIES, CLEANSER), seen(folder, SIX, CLEANSER)
    imagenet, others = seen(folder, SIX, data="imagenet"), [one for one in found if one.trial.data != "imagenet"]
    paper = [(100 * e.measured.clean.value, 100 * e.measured.certified.value, e.reported) for one in sixes
             for e in one.entries.values() if e.reported and e.measured.certified]  # fmt: skip
    more, fewer = beyond_chance(found, JURIES, CLEANSER, is_certified)
    return {
        "test ahead": number(one.held(SIX) > one.held(CLEANSER) for one in sixes),
        "distance within": number(abs(printed - apart.points) <= apart.half for _, printed, apart in gaps(folder)),
        "clean below": number(clean < (told.clean or 0) for clean, _, told in paper),
        "robust below": number(robust < (told.robust or 0) for _, robust, told in paper),
        "test falls": number(one.held(SIX) < one.held(ONCE) for one in sixes),
        "clean rises": number(one.right(SIX) > one.right(ONCE) for one in sixes),
        "detection gain": str(difference([one.trial.run for one in sixes], DETECTION, DETECTION_ONCE)),
        "times": span(one.of(DETECTION).answer_passes / one.of(DETECTION_ONCE).answer_passes for one in sixes),
        "alerts": span(100 * one.of(DETECTION).false_alerts.value for one in imagenet),
        "reports fewer": number(one.held(REPORTS) < one.held(DETECTION) for one in imagenet),
        "reports quieter": number(one.of(REPORTS).false_alerts.value < one.of(DETECTION).false_alerts.value
                                  for one in imagenet),
        "juries ahead": number(one.held(JURIES) > one.held(CLEANSER) for one in found),
        "juries ahead beyond chance": str(more),
        "juries behind beyond chance": str(fewer),
        "juries lose clean": number(one.right(JURIES) < one.right(CLEANSER) for one in found),
        "clean lost beyond chance": str(beyond_chance(found, JURIES, CLEANSER, is_right)[1]),
        "models": str(len({one.trial.model for one in found})),
        "imagenet runs": str(len(imagenet)),
        **clustered("imagenet", imagenet),
        "other runs": str(len(others)),
        **clustered("other", others),
        "challenger passes": span(one.of(CHALLENGER).answer_passes for one in found),
        "cleanser passes": span(one.of(CLEANSER).answer_passes for one in found),
        "jury passes": span(one.of(JURIES).answer_passes for one in found),
        "published times": span(one.of(SIX).answer_passes / one.of(CLEANSER).answer_passes for one in sixes),
    }  # fmt: skip


def tilings(folder: Path) -> dict[str, str]:
    found = seen(folder, COPIES, COPIED, OFFSET)
    return {
        "clean behind": number(one.right(COPIES) < one.right(OFFSET) for one in found),
        "clean behind beyond chance": str(beyond_chance(found, COPIES, OFFSET, is_right)[1]),
        "same": number(is_certified(r, COPIES) == is_certified(r, COPIED) for one in found for r in one.trial.run.rows),
    }


def front(folder: Path) -> dict[str, str]:
    """What the default cover is chosen from; an error if the choice is not the best for its passes."""
    (one,) = seen(folder)
    if max((name for name in one.entries if one.proved(name) <= MOST_PASSES), key=one.held) != CHOSEN:
        raise ResultsError(f"expected {CHOSEN!r} to certify the most for {MOST_PASSES} passes, got another")
    grids = [name for name in one.entries if name.startswith("PatchCleanser")]
    best = max(grids, key=one.held)
    dearer = {what: f"jury recovery {name}" for what, name in (
        ("smaller", "k=4, mask 64, aligned"), ("nine", "k=9, mask 80, aligned"), ("all", "k=4, mask 80, all"),
        ("both", "k=9, mask 80, all"))}  # fmt: skip
    used = {row["image"] for other in (one, *seen(folder.parent / "fold")) for row in other.trial.run.rows}
    return {
        "photos": str(one.of(CHOSEN).images),
        "chosen": str(one.held(CHOSEN)),
        "chosen passes": f"{one.proved(CHOSEN):,.0f}",
        "best grid": str(one.held(best)),
        "best grid size": best.split()[1],
        "best grid passes": f"{one.proved(best):,.0f}",
        **{f"{what} times": f"{one.proved(name) / one.proved(CHOSEN):.1f}" for what, name in dearer.items()},
        **{f"{what} more": str(one.held(name) - one.held(CHOSEN)) for what, name in dearer.items()},
        **clustered("unused", seen(folder.parent / "table1", SIX, data="imagenet"), frozenset(used)),
    }


def demo(path: Path) -> dict[str, str]:
    (published,) = [line for line in figures(read_run(path)) if line.defence == "published rule k=6" and line.mask]
    return {"mask": str(published.mask[0])}  # type: ignore[index]


READINGS: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "table1": (table1, "reproduce/table1"),
    "tilings": (tilings, "reproduce/table3"),
    "front": (front, "reproduce/pareto"),
    "demo": (demo, "demo.jsonl"),
    "speed": (speed, "speed"),
}
"""Which function reads which file or folder under ``results``."""
