"""A certification run on Ray: rows come back as they are finished, and go into the results file of one machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from certmask.certification import (
    MARGIN_PHOTOS,
    Progress,
    checked_stickers,
    holds_somewhere,
    photo_threat,
    recorded,
    whole_header,
)
from certmask.data import Dataset
from certmask.defences import PhotoDefence
from certmask.errors import ChangedModelError, ResultsError
from certmask.results.file import ResultsFile, Row
from certmask.results.run import check_begun
from certmask.scale.attempts import RETRIES
from certmask.scale.crew import Crew
from certmask.scale.photos import block_size
from certmask.scale.pool import Pool, connected, import_ray
from certmask.scale.setting import Setting, Workplace
from certmask.scale.survey import Survey
from certmask.scale.worker import Orders
from certmask.votes import Margin

MOST = {"cpu": 16, "cuda": 256}
"""Photos that a worker takes at a time at most: what is lost with it, and what fills its batches."""

EVERYBODY = Pool()
"""As many workers as there is room for on this machine."""

Told = Callable[[Survey, Pool], None]
"""Called once it is known what will be certified, and by how many workers."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run: photos that have no row, each with the reason, and what it was certified with."""

    set_aside: dict[str, str]
    survey: Survey


def certify_on_ray(
    setting: Setting,
    dataset: Dataset,
    path: Path,
    *,
    pool: Pool = EVERYBODY,
    margin: Margin | None = None,
    margin_photos: Dataset | None = None,
    votes: Path | None = None,
    progress: Progress | None = None,
    told: Told | None = None,
) -> Outcome:
    """Record the rows of every photo that the results file does not have yet, made by the workers of a pool.

    A worker that dies has its photos done again, and each photo is counted once. One that cannot be read, or that takes
    workers down, is noted in the file and set aside. Workers are refused that are not the same function to the last
    bit. The margin is measured on ``margin_photos`` where it is not given; None takes the data set.
    """
    ray = import_ray()
    report: Progress = progress or (lambda *_: None)
    workplace = Workplace(Path.cwd(), pool.threads)
    before, done = _begun(path)
    with connected(pool) as fitted:
        size = _crew_size(len(dataset) - done, done, fitted)
        with Crew(ray, fitted, size, setting, workplace) as crew:
            some = (dataset if margin_photos is None else margin_photos).spread(MARGIN_PHOTOS)
            found = crew.survey(margin, some, before, str(path))
            for note in found.notes:
                warnings.warn(note, stacklevel=2)
            if told:
                told(found, fitted)
            empty = replace(dataset, samples=())
            crew.begin(Orders(found.margin, found.function, empty, votes and votes.absolute()))
            with ResultsFile(path, whole_header(found.header, dataset)) as results:
                left = _left(crew, dataset, results, found)
                report("images", len(dataset) - len(left))
                try:
                    set_aside = _written(crew, fitted, left, results, report)
                except ChangedModelError as change:
                    results.void(str(change))
                    raise
    return Outcome(set_aside, found)


def _begun(path: Path) -> tuple[Row, int]:
    """The header of a run to be continued, and how many rows it has."""
    header, rows = recorded(path)
    return header, len(rows)


def _crew_size(photos: int, done: int, pool: Pool) -> int:
    """Workers that have something to do: photos to certify, or finished ones to read again."""
    blocks = max(-(-photos // _block_size(photos, pool)), -(-done // MOST["cuda"]))
    return max(min(pool.workers or 1, blocks), 1)


def _block_size(photos: int, pool: Pool) -> int:
    return block_size(photos, pool.workers or 1, MOST["cuda" if pool.gpus else "cpu"])


def _left(crew: Crew, dataset: Dataset, results: ResultsFile, found: Survey) -> Dataset:
    """The photos that are still to be done; an error if one that is done looks different now."""
    check_begun(results.path, results.header, results.rows)
    if photo_threat(found.defences):
        families = [one for one in found.defences if isinstance(one, PhotoDefence)]
        checked_stickers(dataset, results.rows, families)
    done = {row["image"]: row["input_sha256"] for row in results.rows}
    results.rows.clear()
    again = [sample for sample in dataset.samples if sample.name in done]
    for answers in crew.each("digests", again, MOST["cuda"]):
        for name, digest in answers:
            if digest != done[name]:
                raise ResultsError(f"expected the same photos as when the run began, got another {name}")
    return dataset.without(frozenset(done))


def _written(crew: Crew, pool: Pool, left: Dataset, results: ResultsFile, report: Progress) -> dict[str, str]:
    """Write the rows of these photos as they come, each once; returns the photos that were set aside."""
    set_aside, waiting = dict[str, str](), {sample.name for sample in left.samples}
    for records in crew.each("rows", left.samples, _block_size(len(left), pool), RETRIES):
        for record in records:
            name = record["row"]["image"] if "row" in record else record["failed"]
            if name not in waiting:
                raise ResultsError(f"expected each photo of {results.path} once, got {name} again")
            waiting.remove(name)
            if "row" in record:
                results.write(record["row"], keep=False)
                report("passes", record["row"]["passes"])
                report("certified", int(holds_somewhere(record["row"])))
            else:
                set_aside[record["failed"]] = record["error"]
                results.set_aside(record["failed"], record["error"])
            report("images", 1)
    if waiting:
        raise ResultsError(f"expected a row of every photo, got none of {len(waiting)}, {min(waiting)} among them")
    return set_aside
