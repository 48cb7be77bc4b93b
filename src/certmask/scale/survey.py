"""What is found out on one worker before all begin: the margin, and the header that all rows stand under."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from certmask.certification import COMPANY_PHOTOS, Defences, function_header, run_margin, some_photos
from certmask.data import Dataset
from certmask.engine import Engine
from certmask.engine.premises import check_company
from certmask.errors import DataError
from certmask.function import continued_header
from certmask.results.file import Row
from certmask.scale.attempts import RETRIES, Record
from certmask.scale.setting import Setting
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
    setting: Setting, engine: Engine, said: Sequence[warnings.WarningMessage], given: Margin | None, some: Dataset,
    before: Row, where: str, record: Record,
) -> Survey:  # fmt: skip
    """Try the model with some of the photos, and settle the margin: as given, as in the file, or measured.

    ``said`` are the warnings from when the engine was made, ``before`` is the header of a run to be continued; the new
    one has no data.
    """
    with warnings.catch_warnings(record=True) as more:
        photos = _without_crashes(some, record)
        check_company(engine, some_photos(engine, photos, COMPANY_PHOTOS))
        margin, origin = (given, "as given") if given is not None else run_margin(engine, photos, before)
        defences = setting.defences(engine, margin)
        function = function_header(engine, defences)
        header, notes = continued_header(before, function, engine, where)
    own = [
        str(one.message) for one in (*said, *more) if one.category is UserWarning and "certmask" in str(one.filename)
    ]
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
