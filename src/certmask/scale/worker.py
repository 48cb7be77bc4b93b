"""A worker: it holds the defence once, and turns photos into the rows that one machine would write."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from certmask.certification import COMPANY_PHOTOS, certified_rows, some_photos
from certmask.data import Dataset, Sample
from certmask.engine.premises import check_company
from certmask.errors import DataError
from certmask.results.file import Row
from certmask.scale.attempts import RETRIES, Record
from certmask.scale.photos import Photo, digests, read
from certmask.scale.setting import Setting, Workplace, check_same_function
from certmask.scale.survey import Survey, survey
from certmask.votes import Margin

T = TypeVar("T")


@dataclass(frozen=True)
class Orders:
    """What every worker of a run is given; ``empty`` is the data set without its photos."""

    margin: Margin
    function: Row
    empty: Dataset
    votes: Path | None


class Worker:
    """An actor that turns blocks of photos into records, one for each: a row, or why there is none.

    Nothing about a photo is an error here, so that no block of photos is ever lost. One thread owns the model; while it
    computes, another reads the next block.
    """

    def __init__(self, setting: Setting, workplace: Workplace, record: Record) -> None:
        self.setting, self.workplace, self.record = setting, workplace, record
        self._model = ThreadPoolExecutor(1, "certmask-model")
        self._said: list[warnings.WarningMessage] = []

    def _owned(self, work: Callable[..., T], *arguments: object) -> T:
        """What the thread that owns the model finds."""
        return self._model.submit(work, *arguments).result()

    def set_up(self) -> None:
        """Load the model, and compute with as many threads as were reserved."""
        self._owned(self._set_up)

    def _set_up(self) -> None:
        self.workplace.enter()
        with warnings.catch_warnings(record=True) as self._said:
            self.engine = self.setting.engine()

    def survey(self, given: Margin | None, some: Dataset, before: Row, where: str) -> Survey:
        """What is found out before all workers begin."""
        return self._owned(survey, self.setting, self.engine, self._said, given, some, before, where, self.record)

    def begin(self, orders: Orders) -> None:
        """Be one of the run; an error if this is another function than the run's."""
        self._owned(self._begin, orders)

    def _begin(self, orders: Orders) -> None:
        self.orders, self.defences = orders, self.setting.defences(self.engine, orders.margin)
        check_same_function(orders.function, self.engine, self.defences)

    def digests(self, block: bytes) -> list[tuple[str, str]]:
        """Names and hashes of photos as they are now."""
        dataset = replace(self.orders.empty, samples=tuple(pickle.loads(block)))
        return digests(dataset, self.engine.classifier.size)

    def rows(self, block: bytes) -> list[Row]:
        """A record for each photo of a block."""
        return self._owned(self._records, read(pickle.loads(block)))

    def _records(self, photos: Sequence[Photo]) -> list[Row]:
        """All photos at once; one after the other where a worker was lost over them before."""
        block = f"the photos from {photos[0].sample.name} on"
        again = self.record.begin(block)
        try:
            return list(self._one_by_one(photos) if again else self._together(photos))
        finally:
            self.record.end(block)

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
            if self.record.begin(name) >= RETRIES:
                yield _failed(photo.sample, f"expected {name} to be read and certified, got {RETRIES} crashed workers")
            else:
                yield from self._together([photo])
            self.record.end(name)

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


def _failed(sample: Sample, reason: str | None) -> Row:
    return {"failed": sample.name, "error": reason}
