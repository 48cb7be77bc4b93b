"""What is found out on one worker before the others begin: the margin, and the header that all rows stand under."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from certmask.certification import COMPANY_PHOTOS, MARGIN_PHOTOS, Defences, function_header, run_margin, some_photos
from certmask.data import Dataset
from certmask.engine.premises import check_company
from certmask.errors import CertmaskError, DataError
from certmask.function import continued_header
from certmask.results.file import Row
from certmask.scale.attempts import RETRIES, Record
from certmask.scale.pool import Pool
from certmask.scale.setting import Setting, Workplace
from certmask.threat import Size
from certmask.votes import Margin


@dataclass(frozen=True)
class Survey:
    """The function as workers must have it, the header as the results file has it, and what a user should know."""

    function: Row
    header: Row
    notes: list[str]
    margin: Margin
    origin: str
    defences: Defences
    size: Size


def survey(
    setting: Setting, given: Margin | None, some: Dataset, before: Row, where: str, workplace: Workplace, record: Record
) -> Survey:
    """Try the model with some of the photos, and settle the margin: as given, as in the file, or measured.

    ``before`` is the header of a run to be continued; the new one has no data.
    """
    workplace.enter()
    with warnings.catch_warnings(record=True) as said:
        engine = setting.engine()
        photos = _without_crashes(some, record)
        check_company(engine, some_photos(engine, photos, COMPANY_PHOTOS))
        margin, origin = (given, "as given") if given is not None else run_margin(engine, photos, before)
        defences = setting.defences(engine, margin)
        function = function_header(engine, defences)
        header, notes = continued_header(before, function, engine, where)
    own = [str(one.message) for one in said if one.category is UserWarning and "certmask" in one.filename]
    return Survey(function, header, [*own, *notes], margin, origin, defences, engine.classifier.size)


def _without_crashes(some: Dataset, record: Record) -> Dataset:
    """The photos that have not taken this process down before."""
    harmless = []
    for sample in some.samples:
        if record.begin(sample.name) < RETRIES:
            with suppress(DataError):  # it is named when its turn comes
                sample.photo()
            harmless.append(sample)
            record.end(sample.name)
    if not harmless:
        raise DataError(f"expected photos that can be read in {some.name}, got some that crash whoever reads them")
    return replace(some, samples=tuple(harmless))


def surveyed(
    ray: Any, pool: Pool, setting: Setting, dataset: Dataset, margin: Margin | None, before: Row, where: str,
    workplace: Workplace, record: Record,
) -> Survey:  # fmt: skip
    """The survey, made by a process with what a worker reserves; the driver needs neither model nor GPU."""
    retries = RETRIES * MARGIN_PHOTOS
    task = ray.remote(survey).options(num_cpus=pool.cpus, num_gpus=pool.gpus, max_retries=retries)
    some = dataset.spread(MARGIN_PHOTOS)
    try:
        found: Survey = ray.get(task.remote(setting, margin, some, before, where, workplace, record))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CertmaskError):
            raise error.cause from None
        raise
    return found
