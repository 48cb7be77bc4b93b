"""A certification run on Ray: rows come back as they are finished, and go into the results file of one machine."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from certmask import errors
from certmask.certification import Progress, checked_stickers, holds_somewhere, photo_threat, recorded, whole_header
from certmask.data import Dataset
from certmask.defences import PhotoDefence
from certmask.errors import CertmaskError, ChangedModelError, ResultsError, first_line
from certmask.results.file import ResultsFile, Row
from certmask.results.run import check_begun
from certmask.scale.attempts import started_record
from certmask.scale.photos import block_size, blocks, digests, read
from certmask.scale.pool import Pool, connected, import_ray
from certmask.scale.setting import Setting, Workplace
from certmask.scale.survey import Survey, surveyed
from certmask.scale.worker import Orders, Worker
from certmask.votes import Margin

MOST = {"cpu": 16, "cuda": 256}
"""Photos that a worker takes at a time at most: what is lost with it, and what fills its batches."""
ROUNDS = 3
"""How often photos are handed out of which nothing came back, though no worker complained."""

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
    with connected(pool) as fitted:
        record = started_record(ray)
        some = dataset if margin_photos is None else margin_photos
        found = surveyed(ray, fitted, setting, some, margin, recorded(path)[0], str(path), workplace, record)
        for note in found.notes:
            warnings.warn(note, stacklevel=2)
        if told:
            told(found, fitted)
        empty = replace(dataset, samples=())
        orders = Orders(setting, found.margin, found.function, empty, workplace, record, votes and votes.absolute())
        with ResultsFile(path, whole_header(found.header, dataset)) as results:
            left = _left(ray, fitted, dataset, results, found)
            report("images", len(dataset) - len(left))
            try:
                set_aside = _written(ray, fitted, left, orders, results, report)
            except ChangedModelError as change:
                results.void(str(change))
                raise
    return Outcome(set_aside, found)


def _left(ray: Any, pool: Pool, dataset: Dataset, results: ResultsFile, found: Survey) -> Dataset:
    """The photos that are still to be done; an error if one that is done looks different now."""
    check_begun(results.path, results.header, results.rows)
    if photo_threat(found.defences):
        families = [one for one in found.defences if isinstance(one, PhotoDefence)]
        checked_stickers(dataset, results.rows, families)
    done = {row["image"]: row["input_sha256"] for row in results.rows}
    results.rows.clear()
    again = [sample for sample in dataset.samples if sample.name in done]
    look = partial(digests, empty=replace(dataset, samples=()), size=found.size)
    parts = blocks(again, MOST["cuda"])
    for row in _streamed(ray, [(look, _tasks(ray, _busy(pool, parts)))], parts):
        if row["digest"] != done[row["image"]]:
            raise ResultsError(f"expected the same photos as when the run began, got another {row['image']}")
    return dataset.without(frozenset(done))


def _busy(pool: Pool, parts: Sequence[Any]) -> int:
    """Workers that have something to do."""
    return max(min(pool.workers or 1, len(parts)), 1)


def _tasks(ray: Any, size: int) -> dict[str, Any]:
    """So many processes that read, which take no place from workers."""
    return {"compute": ray.data.TaskPoolStrategy(size=size), "num_cpus": 0}


def _actors(ray: Any, size: int, pool: Pool, orders: Orders) -> dict[str, Any]:
    """Workers that are begun again whenever they die, with one block in work and the next one at hand."""
    strategy = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2)
    return {"compute": strategy, "num_cpus": pool.cpus, "num_gpus": pool.gpus, "fn_constructor_args": (orders,)}


def _written(
    ray: Any, pool: Pool, left: Dataset, orders: Orders, results: ResultsFile, report: Progress
) -> dict[str, str]:
    """Write the rows of these photos as they come, each once; returns the photos that were set aside."""
    waiting, set_aside = {sample.name: sample for sample in left.samples}, dict[str, str]()
    for _ in range(ROUNDS):
        for record in _records(ray, pool, list(waiting.values()), orders):
            name = record["row"]["image"] if "row" in record else record["failed"]
            if waiting.pop(name, None) is None:
                continue
            if "row" in record:
                results.write(record["row"], keep=False)
                report("passes", record["row"]["passes"])
                report("certified", int(holds_somewhere(record["row"])))
            else:
                set_aside[name] = record["error"]
                results.set_aside(name, record["error"])
            report("images", 1)
        if not waiting:
            return set_aside
    raise ResultsError(f"expected a row of every photo, got none of {len(waiting)}, {next(iter(waiting))} among them")


def _records(ray: Any, pool: Pool, samples: Sequence[Any], orders: Orders) -> Iterator[Row]:
    """What workers find out about these photos, in the order in which it is ready; what stops a run is an error."""
    most = MOST["cuda" if pool.gpus else "cpu"]
    parts = blocks(samples, block_size(len(samples), pool.workers or 1, most))
    size = _busy(pool, parts)
    stages = [(read, _tasks(ray, size)), (Worker, _actors(ray, size, pool, orders))]
    for row in _streamed(ray, stages, parts):
        record = json.loads(row["record"])
        if "stop" in record:
            raise getattr(errors, record["kind"], CertmaskError)(record["stop"])
        yield record


def _streamed(ray: Any, stages: Sequence[tuple[Any, dict[str, Any]]], parts: Sequence[Any]) -> Iterator[Row]:
    """The rows that come of tables which go through all stages, table by table."""
    if not parts:
        return
    data = ray.data.from_arrow(parts)
    for function, means in stages:
        data = data.map_batches(function, batch_size=None, batch_format="pyarrow", **means)
    try:
        for table in data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from table.to_pylist()
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise CertmaskError(f"expected Ray to go on, got {first_line(error)}; the same command continues") from None
