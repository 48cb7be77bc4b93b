"""A certification run in two halves: rows for photos, which many workers can make, and recording them, resumably."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path

from torch import Tensor

from certmask.backends.devices import settings
from certmask.certificate import Guarantee
from certmask.company import ROUNDING
from certmask.data import Dataset, Sample, pixel_digest
from certmask.defences import AnyDefence, Outcome, RuledDefence, examine
from certmask.engine import Engine, Finding
from certmask.engine.archive import KeptVotes
from certmask.engine.margin import measured_margin
from certmask.engine.premises import check_company, check_unchanged
from certmask.errors import ChangedModelError, DataError, ResultsError, first_line
from certmask.function import continued_header, rules_of
from certmask.results.file import ResultsFile, Row, provenance, read_results
from certmask.results.run import check_begun, check_header
from certmask.threat import Size
from certmask.votes import Margin

COMPANY_PHOTOS = 2
"""Photos whose masked views a run tries among strangers before it begins."""
MARGIN_PHOTOS = 8

Progress = Callable[[str, int], None]
"""Called with ``"passes"`` or ``"images"`` and how many more are done."""


def certified_rows(
    engine: Engine, dataset: Dataset, defences: Sequence[AnyDefence], votes: Path | None = None
) -> Generator[Row]:
    """One row per photo, in the order in which they are ready: no file, no progress bar.

    Votes that the folder ``votes`` has are not made again, and all votes are kept there. There is an error after the
    last row if the model answers otherwise than before the first one.
    """
    digests: list[str] = []
    archive = None if votes is None else KeptVotes(votes, engine, digests)
    labels = [sample.label for sample in dataset.samples]
    images = _noted(dataset.tensors(engine.classifier.size), digests)
    try:
        for finding in examine(engine, images, labels, defences, archive):
            row = _row(dataset.samples[finding.number], finding, defences, engine.classifier.cost)
            yield {**row, "input_sha256": digests[finding.number], "batch": finding.batch, **_silence(finding)}
        check_unchanged(engine, least_margin(defences))
    except BaseException as error:
        if archive is not None and change_behind(error, engine, defences):
            archive.forget()
        raise


def certify_run(
    engine: Engine,
    dataset: Dataset,
    defences: Sequence[AnyDefence],
    path: Path,
    *,
    votes: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Row, list[Row]]:
    """Record the rows of every photo that the results file does not have yet; return its header and all rows.

    The model is tried with masked views of some photos among strangers before, and on the fixed pictures again
    afterwards, also when the run is interrupted; should it then answer otherwise, the file is marked as void.
    """
    report: Progress = progress or (lambda *_: None)
    engine.progress = lambda votes: report("passes", votes * engine.classifier.cost)
    check_company(engine, some_photos(engine, dataset, COMPANY_PHOTOS))
    header, notes = continued_header(recorded(path)[0], run_header(engine, dataset, defences), engine, str(path))
    for note in notes:
        warnings.warn(note, stacklevel=2)
    with ResultsFile(path, header) as results:
        check_begun(path, results.header, results.rows)
        done = frozenset(row["image"] for row in results.rows)
        report("images", len(done))
        check_inputs(dataset, results.rows, engine.classifier.size)
        rows = certified_rows(engine, dataset.without(done), defences, votes)
        try:
            for row in rows:
                results.write(row)
                report("images", 1)
        except BaseException as error:
            rows.close()
            change = change_behind(error, engine, defences)
            if change is not None:
                results.void(str(change))
            raise
        return header, results.rows


def change_behind(error: BaseException, engine: Engine, defences: Sequence[AnyDefence]) -> ChangedModelError | None:
    """Whether, when a run ends in an error of any kind, the model answers otherwise than when it was first asked."""
    if isinstance(error, ChangedModelError):
        return error
    try:
        check_unchanged(engine, least_margin(defences))
    except ChangedModelError as change:
        return change
    except Exception as other:  # it cannot be asked any more: the error that ended the run is the one to be told
        warnings.warn(f"the model could not be asked again after the run: {first_line(other)}", stacklevel=2)
    return None


def least_margin(defences: Sequence[AnyDefence]) -> Margin:
    """The smallest margin of defences that promise something, in each unit; any change is within one that none has."""
    found = [d for d in defences if d.guarantee is not Guarantee.NONE]
    margins = [(d.rule.unit if isinstance(d, RuledDefence) else "probability", _margin(d)) for d in found]
    return Margin(*(min((m for own, m in margins if own == unit), default=inf) for unit in Margin._fields))


def _margin(defence: AnyDefence) -> float:
    return float(defence.parameters()["rule"].get("margin", 0.0))


def recorded(path: Path) -> tuple[Row, list[Row]]:
    """Header and rows of a run to be continued; both empty where its file has not been begun."""
    if not (path.is_file() and b"\n" in path.read_bytes()):
        return {}, []
    header, rows = read_results(path)
    check_header(header, path)
    return header, rows


def run_margin(engine: Engine, dataset: Dataset, header: Row) -> tuple[Margin, str]:
    """The margin that a run to be continued has recorded, else one measured on some of the photos; and which it is."""
    if header:
        return recorded_margin(header), "as in the file"
    return photo_margin(engine, dataset), "measured"


def recorded_margin(header: Row) -> Margin:
    """The margin of a run's rules, in probabilities and in logarithms."""
    rules = rules_of(header)
    return Margin(*(max((rule.margin for rule in rules if rule.unit == unit), default=0.0) for unit in Margin._fields))


def photo_margin(engine: Engine, dataset: Dataset) -> Margin:
    """The margin as measured on eight photos of a data set."""
    return measured_margin(engine, some_photos(engine, dataset, MARGIN_PHOTOS))


def some_photos(engine: Engine, dataset: Dataset, count: int) -> list[Tensor]:
    """Evenly spaced photos, as the model takes them; unreadable ones are left out, but none at all is an error."""
    photos, some = [], dataset.spread(count)
    for number in range(len(some)):
        try:
            photos.append(some.tensor(number, engine.classifier.size))
        except DataError:
            if number == len(some) - 1 and not photos:
                raise
    return photos


def _noted(images: Iterable[Tensor], digests: list[str]) -> Iterator[Tensor]:
    """The same images; a hash of each one's pixels is appended to ``digests``."""
    for image in images:
        digests.append(pixel_digest(image))
        yield image


def check_inputs(dataset: Dataset, rows: Sequence[Row], size: Size) -> None:
    """Refuse to continue a run whose finished photos look different now."""
    finished = {row["image"]: row["input_sha256"] for row in rows}
    again = dataset.without(frozenset(s.name for s in dataset.samples) - finished.keys())
    for sample, image in zip(again.samples, again.tensors(size), strict=True):
        if pixel_digest(image) != finished[sample.name]:
            raise ResultsError(f"expected the same photos as when the run began, got another {sample.name}")


def run_header(engine: Engine, dataset: Dataset, defences: Sequence[AnyDefence]) -> Row:
    """Everything that the rows depend on."""
    return {
        "kind": "certify",
        "model": engine.describe(),
        "data": dataset.describe(),
        "defences": {defence.name: defence.describe() for defence in defences},
        "versions": provenance(),
        "settings": settings(),
        "checked": {"company": engine.classifier.company, "rounding": ROUNDING[engine.classifier.precision]},
    }


def _silence(finding: Finding[list[Outcome]]) -> Row:
    """How many votes gave no numbers, if any; a photo without any other is an error of its own."""
    if not finding.silent:
        return {}
    if finding.silent < finding.votes:
        return {"silent": finding.silent}
    return {"silent": finding.silent, "error": "expected finite logits, got NaN or infinity under every mask"}


def _row(sample: Sample, finding: Finding[list[Outcome]], defences: Sequence[AnyDefence], cost: int) -> Row:
    """What was found about one image, with ``cost`` passes of the network for each vote."""
    return {
        "image": sample.name,
        "label": sample.label,
        "passes": finding.passes * cost,
        "seconds": round(finding.seconds, 4),
        "defences": {s.name: _told(outcome) for s, outcome in zip(defences, finding.value, strict=True)},
    }


def _told(outcome: Outcome) -> Row:
    """A certified side only where there may be one."""
    told = asdict(outcome)
    if outcome.side is None:
        told.pop("side")
    return told
