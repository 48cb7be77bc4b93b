"""Blocks with what an experiment measured, narrow enough for a page: `certmask reproduce` has the wide form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from pathlib import Path

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.experiments import EXPERIMENTS, Comparison, Experiment
from certmask.experiments.counts import counts_table
from certmask.experiments.pairing import Paired, paired
from certmask.experiments.reading import Done, Entry, entries, read_done
from certmask.experiments.sheets import number_text, patch_text, reported_cells, share_cell, size_text
from certmask.report.tables import Cell, Heading, Table, markdown_table, markdown_text
from certmask.results.kinds import NOTHING
from certmask.results.statistics import holm

COLUMNS = (
    Heading("defence", words=True),
    Heading("masks", words=True),
    Heading("clean, paper"),
    Heading("robust, paper"),
    Heading("clean"),
    Heading("published test"),
    Heading("certified detection"),
    Heading("false alerts"),
    Heading("certified recovery"),
    Heading("passes"),
    Heading("ms"),
    Heading("J"),
)
CERTIFICATES = {
    Guarantee.PUBLISHED: "published test",
    Guarantee.DETECTION: "certified detection",
    Guarantee.RECOVERY: "certified recovery",
}
CHANCE = 0.05

TALLIED = {
    "table1": (
        Comparison("published test: one mask per place against six",
                   "published, exact minimum k=1", "published k=6"),
        Comparison("jury detection: six masks per place against one",
                   "jury detection k=6", "jury detection, exact minimum k=1"),
        Comparison("certified detection: juries against Minority Reports", "jury detection k=6",
                   "Minority Reports k=6"),
    ),
    "fold": (
        Comparison("published test: k = 1 against k = 9", "published k=1", "published k=9"),
        Comparison("PatchCleanser's rule: k = 1 against k = 9",
                   "PatchCleanser's rule k=1", "PatchCleanser's rule k=9"),
        Comparison("jury recovery: all pairs against aligned pairs at k = 9",
                   "jury recovery k=9, all", "jury recovery k=9, aligned"),
    ),
}  # fmt: skip
"""Questions that came up while reading the tables: counted, not tested."""


def experiment_of(path: Path) -> Experiment:
    if path.name not in EXPERIMENTS:
        raise ResultsError(f"expected a folder called {', '.join(EXPERIMENTS)}, got {path}")
    return EXPERIMENTS[path.name]


@lru_cache
def runs_of(path: Path) -> tuple[tuple[Done, tuple[Entry, ...]], ...]:
    """The runs in an experiment's folder, by data set, patch and model, with what each measured."""
    experiment = experiment_of(path)
    done = sorted(read_done(experiment, path.parent), key=lambda run: (run.data, run.threat.side, run.few, run.model))
    return tuple((run, tuple(entries(experiment, run))) for run in done)


def measured_tables(path: Path) -> str:
    """One table per model, data set and patch."""
    tables = [markdown_table(Table(_title(found), *_filled_columns(found))) for _, found in runs_of(path)]
    return "\n".join([*tables, *(f"{markdown_text(note)}\n" for note in experiment_of(path).notes)]).strip()


def _title(found: Sequence[Entry]) -> str:
    first = found[0]
    threat = "" if first.threat.label == "none" else f", any patch of {patch_text(first)}"
    images = f"{first.measured.images:,} images"
    if first.measured.images != first.planned:
        images = f"{first.measured.images:,} of {first.planned:,} images"
    few = ", only so few because a cover has so many masks" if first.few else ""
    return f"{first.model} on {first.data}{threat}; {images}{few}"


def _filled_columns(found: Sequence[Entry]) -> tuple[list[Heading], list[list[Cell]]]:
    """Columns in which some row has something."""
    rows = [_cells(entry) for entry in found]
    kept = [place for place in range(len(COLUMNS)) if any(row[place].text != NOTHING for row in rows)]
    return [COLUMNS[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _cells(entry: Entry) -> list[Cell]:
    found = entry.measured
    passes = found.answer_passes, found.proof_passes
    alerts = found.false_alerts if found.guarantee in (Guarantee.DETECTION, Guarantee.RECOVERY) else None
    published, detection, recovery = map(found.certified_as, CERTIFICATES)
    return [
        Cell(entry.defence),
        _masks(entry),
        *reported_cells(entry.reported),
        *map(share_cell, (found.clean, published, detection, alerts, recovery)),
        _both(*passes),
        _both(*map(found.milliseconds, passes)),
        _both(*map(entry.joules, passes)),
    ]


def _masks(entry: Entry) -> Cell:
    found = entry.measured
    if found.masks is None or found.mask is None:
        return Cell(NOTHING)
    copies = f", placed {entry.placed:,} times" if entry.placed != found.masks else ""
    return Cell(f"{found.masks:,} of {size_text(found.mask)} px{copies}")


def _both(answer: float | None, proof: float | None) -> Cell:
    return Cell(NOTHING if answer is None else f"{number_text(answer)} / {number_text(proof)}")


def paired_tables(path: Path) -> str:
    """One table per declared comparison; Holm's correction is for all rows of all of them."""
    comparisons = experiment_of(path).comparisons
    found = [pair for run, _ in runs_of(path) if not run.few for pair in paired(comparisons, run)]
    if not found:
        raise ResultsError(f"expected runs with both defences of a comparison in {path}, got none")
    tested = list(zip(found, holm([pair.chance for pair in found]), strict=True))
    groups = [[(p, chance) for p, chance in tested if p.question == c.question] for c in comparisons]
    return "\n".join(markdown_table(_paired_table(group)) for group in groups if group).strip()


def _paired_table(tested: Sequence[tuple[Paired, float]]) -> Table:
    first = tested[0][0]
    words = [Heading(word, words=True) for word in ("model", "data", "patch")]
    figures = ("images", first.first, first.second, "only the first", "only the second", "p", "p, Holm")
    rows = [
        [*map(Cell, (p.model, p.data, p.patch)),
         *(Cell(f"{n:,}") for n in (p.images, p.first_certified, p.second_certified, p.gained, p.lost)),
         Cell(f"{p.chance:.2g}"), Cell(f"{adjusted:.2g}")]
        for p, adjusted in tested
    ]  # fmt: skip
    notes = (_summary(tested), *([first.note] if first.note else []))
    return Table(first.question, [*words, *map(Heading, figures)], rows, notes)


def _summary(tested: Sequence[tuple[Paired, float]]) -> str:
    more, fewer = _ahead([pair for pair, _ in tested])
    sure = sum(adjusted < CHANCE for _, adjusted in tested)
    return (
        f"The first holds on more images in {more} of {len(tested)} runs, on fewer in {fewer}; "
        f"beyond chance (p < {CHANCE:.2f} after Holm) in {sure}."
    )


def _ahead(found: Sequence[Paired]) -> tuple[int, int]:
    return sum(p.gained > p.lost for p in found), sum(p.gained < p.lost for p in found)


def tally_table(path: Path) -> str:
    """In how many runs one defence holds on more images than another, for the questions of the page."""
    asked = TALLIED.get(path.name, ())
    if not asked:
        raise ResultsError(f"expected an experiment with tallied questions ({', '.join(TALLIED)}), got {path.name}")
    figures = ("runs", "first on more images", "second on more", "images only the first", "only the second")
    columns = [Heading("first against second", words=True), *map(Heading, figures)]
    rows = []
    for comparison in asked:
        found = [pair for run, _ in runs_of(path) if not run.few for pair in paired((comparison,), run)]
        sums = sum(p.gained for p in found), sum(p.lost for p in found)
        rows.append([Cell(comparison.question), *(Cell(f"{n:,}") for n in (len(found), *_ahead(found), *sums))])
    return markdown_table(Table("Counted, not tested", columns, rows)).strip()


def gaps_table(path: Path) -> str:
    """How far defences are apart: in the paper, and here on the same images."""
    columns = [Heading(word, words=True) for word in ("model", "data", "patch", "from", "to")]
    columns += map(Heading, ("paper", "measured"))
    rows = [row for run, found in runs_of(path) if not run.few for row in _gap_rows(run, found)]
    if not rows:
        raise ResultsError(f"expected runs with two figures of the paper beside them in {path}, got none")
    note = "In percentage points, as the paper subtracts them; in brackets 95 % intervals (paired, normal)."
    return markdown_table(Table("The paper's robust accuracy, difference", columns, rows, (note,))).strip()


def _gap_rows(run: Done, found: Sequence[Entry]) -> list[list[Cell]]:
    """The first defence that the paper has a figure for, against each of the others."""
    told = [(e, e.reported.robust) for e in found if e.reported and e.reported.robust is not None]
    if not told:
        return []
    (first, printed), *others = told
    return [
        [*map(Cell, (first.model, first.data, first.threat.label, _tested(other), _tested(first))),
         Cell(f"{printed - robust:+.1f}"), measured_gap(run, first.defence, other.defence)]
        for other, robust in others
    ]  # fmt: skip


def _tested(entry: Entry) -> str:
    return f"{entry.defence} ({CERTIFICATES[entry.measured.guarantee]})"


def measured_gap(run: Done, first: str, second: str) -> Cell:
    """The mean over the images of first minus second, in percentage points."""
    held = [(row["defences"][first]["certified"], row["defences"][second]["certified"]) for row in run.file.rows]
    apart = [one - other for one, other in held]
    mean = sum(apart) / len(apart)
    error = sqrt(sum((a - mean) ** 2 for a in apart)) / len(apart)
    low, high = (100 * (mean + sign * 1.96 * error) for sign in (-1, 1))
    return Cell(f"{100 * mean:+.1f}", f"({low:+.1f} to {high:+.1f})")


def mask_counts(_: Path) -> str:
    """How many masks are needed: arithmetic alone, no file is read."""
    return markdown_table(counts_table()).rstrip("\n")
