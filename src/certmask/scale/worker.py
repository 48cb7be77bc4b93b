"""A worker: it holds the defence once, and turns photos into the rows that one machine would write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from certmask.certification import COMPANY_PHOTOS, certified_rows, some_photos
from certmask.data import Dataset, Sample
from certmask.engine.premises import check_company
from certmask.errors import CertmaskError, DataError
from certmask.results.file import Row
from certmask.scale.attempts import RETRIES, Record
from certmask.scale.photos import Photo, photos_of
from certmask.scale.setting import Setting, Workplace, check_same_function
from certmask.votes import Margin


@dataclass(frozen=True)
class Orders:
    """What every worker of a run is given; ``empty`` is the data set without its photos."""

    setting: Setting
    margin: Margin
    function: Row
    empty: Dataset
    workplace: Workplace
    record: Record
    votes: Path | None


class Worker:
    """Turns a table of photos into records, one for each: a row, or why there is none.

    Nothing about a photo is an error here, so that no block of photos is ever lost; what stops a run is a record, too.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.refusal: list[str] = []
        name = f"worker {_own_name()}"
        if orders.record.begin(name) > RETRIES:
            self.refusal = stopped(
                CertmaskError(f"expected to set up a worker on {os.uname().nodename}, got one that crashed each time")
            )
        else:
            try:
                self._set_up()
            except CertmaskError as error:
                self.refusal = stopped(error)
        orders.record.end(name)

    def _set_up(self) -> None:
        orders = self.orders
        orders.workplace.enter()
        self.engine = orders.setting.engine()
        self.defences = orders.setting.defences(self.engine, orders.margin)
        check_same_function(orders.function, self.engine, self.defences)

    def __call__(self, table: Any) -> Any:
        import pyarrow

        return pyarrow.table({"record": self.refusal or self._records(photos_of(table))})

    def _records(self, photos: Sequence[Photo]) -> list[str]:
        """All photos at once; one after the other where a worker was lost over them before."""
        block, record = f"the photos from {photos[0].sample.name} on", self.orders.record
        again = record.begin(block)
        try:
            found = list(self._one_by_one(photos) if again else self._together(photos))
        except CertmaskError as error:
            return stopped(error)
        finally:
            record.end(block)
        return [json.dumps(one) for one in found]

    def _together(self, photos: Sequence[Photo]) -> Iterator[Row]:
        samples = [photo.sample for photo in photos if photo.error is None]
        yield from (_failed(photo.sample, photo.error) for photo in photos if photo.error is not None)
        try:
            yield from self._rows(samples)
        except DataError:
            sound = list(map(self._reason, samples))
            found = [_failed(*one) for one in zip(samples, sound, strict=True) if one[1] is not None]
            if not found:
                raise
            yield from found
            yield from self._rows([one for one, reason in zip(samples, sound, strict=True) if reason is None])

    def _one_by_one(self, photos: Sequence[Photo]) -> Iterator[Row]:
        """Each by itself and on record, so that it is known which one takes a worker down."""
        for photo in photos:
            name = photo.sample.name
            if self.orders.record.begin(name) >= RETRIES:
                yield _failed(photo.sample, f"expected {name} to be read and certified, got {RETRIES} crashed workers")
            else:
                yield from self._together([photo])
            self.orders.record.end(name)

    def _rows(self, samples: Sequence[Sample]) -> list[Row]:
        """What one machine would write about these photos; an error if one of them cannot be read."""
        if not samples:
            return []
        dataset = replace(self.orders.empty, samples=tuple(samples))
        check_company(self.engine, some_photos(self.engine, dataset, COMPANY_PHOTOS))
        return [{"row": row} for row in certified_rows(self.engine, dataset, self.defences, self.orders.votes)]

    def _reason(self, sample: Sample) -> str | None:
        """Why a photo cannot become model input; None if it can."""
        try:
            replace(self.orders.empty, samples=(sample,)).tensor(0, self.engine.classifier.size)
            sample.stored()
        except DataError as error:
            return str(error)
        return None


def _own_name() -> str:
    """What this worker is called, also after it was begun again."""
    import ray

    return str(ray.get_runtime_context().get_actor_id())


def _failed(sample: Sample, reason: str | None) -> Row:
    return {"failed": sample.name, "error": reason}


def stopped(error: CertmaskError) -> list[str]:
    """The one record that stops a run."""
    return [json.dumps({"stop": str(error), "kind": type(error).__name__})]
