"""A certification run in two halves: rows for photos, which many workers can make, and recording them, resumably."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from torch import Tensor

from certmask.backends.devices import settings
from certmask.certificate import Guarantee
from certmask.company import ROUNDING
from certmask.data import Dataset, Framing, Sample, pixel_digest
from certmask.data.reach import largest_side
from certmask.data.sticker import Sticker
from certmask.defences import AnyDefence, Outcome, PhotoDefence, RuledDefence, examine
from certmask.engine import Engine, Finding
from certmask.engine.archive import KeptVotes
from certmask.engine.margin import measured_margin
from certmask.engine.premises import check_company, check_unchanged
from certmask.errors import CertmaskError, ChangedModelError, DataError, ResultsError, first_line
from certmask.function import continued_header, rules_of
from certmask.results.file import ResultsFile, Row, provenance, read_results
from certmask.results.run import check_begun, check_header
from certmask.threat import Patch, PhotoPatch, Size
from certmask.votes import Margin

COMPANY_PHOTOS = 2
"""Photos whose masked views a run tries among strangers before it begins."""
MARGIN_PHOTOS = 8

Progress = Callable[[str, int], None]
"""Called with ``"passes"`` or ``"images"`` and how many more are done; a cluster's run tells ``"certified"``, too."""


Defences = Sequence[AnyDefence] | Sequence[PhotoDefence]
"""Defences against one threat each, or against a patch in the stored photo, which is another threat in each photo."""


@dataclass(frozen=True)
class Part:
    """Photos that are certified together; ``about`` is what the row of the n-th one says of the stored photo.

    The defences have the names and, unless nothing can be proved about these photos, the guarantees of those asked for.
    """

    dataset: Dataset
    defences: Sequence[AnyDefence]
    about: Callable[[int], Row]
    provable: bool = True


def certified_rows(engine: Engine, dataset: Dataset, defences: Defences, votes: Path | None = None) -> Generator[Row]:
    """One row per photo, in the order in which they are ready: no file, no progress bar.

    Votes that the folder ``votes`` has are not made again, and all votes are kept there. There is an error after the
    last row if the model answers otherwise than before the first one. Where the threat is a patch in the photo, photos
    in which it reaches as much are certified one after the other.
    """
    archives: list[KeptVotes] = []
    try:
        for part in _parts(dataset, defences, engine.classifier.size):
            digests: list[str] = []
            if votes is not None:
                archives.append(KeptVotes(votes, engine, digests))
            images = _noted(part.dataset.tensors(engine.classifier.size), digests)
            labels = [sample.label for sample in part.dataset.samples]
            for finding in examine(engine, images, labels, part.defences, archives[-1] if archives else None):
                row = _row(part, finding, engine.classifier.cost)
                own = {"input_sha256": digests[finding.number], "batch": finding.batch}
                yield {**row, **own, **part.about(finding.number), **_silence(finding)}
        check_unchanged(engine, least_margin(defences))
    except BaseException as error:
        if archives and change_behind(error, engine, defences):
            for archive in archives:
                archive.forget()
        raise


def _parts(dataset: Dataset, defences: Defences, image: Size) -> Iterator[Part]:
    """The photos by what a patch in them reaches, all at once where that is no question."""
    against = photo_threat(defences)
    if against is None:
        alike = [one for one in defences if not isinstance(one, PhotoDefence)]
        yield Part(dataset, alike, partial(_about, dataset, _one_patch(alike), image))
        return
    families = [one for one in defences if isinstance(one, PhotoDefence)]
    stickers = dict(zip((s.name for s in dataset.samples), dataset.stickers(against, image), strict=True))
    for threat in (*(one.threat for one in families[0].classes), None):
        known = {name for name, found in stickers.items() if _class_of(found, families) == threat}
        part = dataset.without(frozenset(stickers.keys() - known))
        told = [{"photo": photo_record(stickers[s.name], families, dataset.framing)} for s in part.samples]
        own = [one.unproved if threat is None else one.of(threat) for one in families]
        if part.samples:
            yield Part(part, [one for one in own if one], told.__getitem__, threat is not None)


def photo_threat(defences: Defences) -> PhotoPatch | None:
    """The patch in the photo that all defences are against; None where they are against patches in the input."""
    families = [one for one in defences if isinstance(one, PhotoDefence)]
    if not families:
        return None
    told = {(one.threat, tuple(own.threat for own in one.classes)) for one in families}
    if len(told) > 1 or len(families) < len(defences):
        raise CertmaskError("expected defences against one patch in the photo and in the same classes, got others")
    return families[0].threat


def _class_of(sticker: Sticker, families: Sequence[PhotoDefence]) -> Patch | None:
    """The patch in the input that the photo's defences are made for; None where nothing can be proved."""
    return sticker.threat if families[0].of(sticker.threat) else None


def photo_record(sticker: Sticker, families: Sequence[PhotoDefence], framing: Framing) -> Row:
    """What a row says of a stored photo and the patch in it, every size as height and width; the file's is not turned.

    ``threat`` is the patch in the input that the certificate speaks of, ``side`` the largest square in the photo that
    is covered by that.
    """
    photo, threat = sticker.photo, _class_of(sticker, families)
    return {
        "size": [photo.height, photo.width],
        "patch": list(sticker.patch),
        "reach": list(sticker.reach.size),
        "threat": None if threat is None else list(threat.size),
        "side": 0 if threat is None else largest_side(photo, framing, sticker.image, threat.size),
    }


def _one_patch(defences: Sequence[AnyDefence]) -> Patch | None:
    """The patch that all defences are against which promise something; None where there is no such one."""
    threats = {one.threat for one in defences if one.guarantee is not Guarantee.NONE}
    (threat,) = threats if len(threats) == 1 else (None,)
    return threat if isinstance(threat, Patch) else None


def _about(dataset: Dataset, patch: Patch | None, image: Size, number: int) -> Row:
    """The size of the stored photo, and the largest square in it that is covered by a certificate against the patch."""
    photo = None if patch is None else dataset.samples[number].stored()
    if photo is None or patch is None:
        return {}
    side = largest_side(photo, dataset.framing, image, patch.size)
    return {"photo": {"size": [photo.height, photo.width], "side": side}}


def certify_run(
    engine: Engine,
    dataset: Dataset,
    defences: Defences,
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
        if photo_threat(defences):
            checked_stickers(dataset, results.rows, [one for one in defences if isinstance(one, PhotoDefence)])
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


def holds_somewhere(row: Row) -> bool:
    """Whether any defence certified the photo of a row, be it for some of the sizes of a patch."""
    return any(told.get("certified") or told.get("side") for told in row["defences"].values())


def change_behind(error: BaseException, engine: Engine, defences: Defences) -> ChangedModelError | None:
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


def least_margin(defences: Defences) -> Margin:
    """The smallest margin of defences that promise something, in each unit; any change is within one that none has."""
    found = [d for d in defences if d.guarantee is not Guarantee.NONE]
    ruled = (RuledDefence, PhotoDefence)
    margins = [(d.rule.unit if isinstance(d, ruled) else "probability", _margin(d)) for d in found]
    return Margin(*(min((m for own, m in margins if own == unit), default=inf) for unit in Margin._fields))


def _margin(defence: AnyDefence | PhotoDefence) -> float:
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


def checked_stickers(
    dataset: Dataset, rows: Sequence[Row], families: Sequence[PhotoDefence], told: str = "as its row says"
) -> list[tuple[Sample, Sticker]]:
    """The photos that have a row, with the patch in each as it is now; an error where its row says another one."""
    said, checked = {row["image"]: row["photo"] for row in rows}, []
    for number, sample in enumerate(dataset.samples):
        if sample.name in said:
            sticker = dataset.sticker(number, families[0].threat, families[0].image)
            found = photo_record(sticker, families, dataset.framing)
            if found != said[sample.name]:
                raise ResultsError(f"expected {sample.name} with {said[sample.name]} {told}, got {found}")
            checked.append((sample, sticker))
    return checked


def run_header(engine: Engine, dataset: Dataset, defences: Defences) -> Row:
    """Everything that the rows depend on."""
    return whole_header(function_header(engine, defences), dataset)


def whole_header(function: Row, dataset: Dataset) -> Row:
    """The header of a run: the function that answers, and the photos."""
    return {"kind": "certify", "model": function["model"], "data": dataset.describe(), **function}


def function_header(engine: Engine, defences: Defences) -> Row:
    """Everything that the rows depend on beside the photos."""
    return {
        "model": engine.describe(),
        "defences": {defence.name: defence.describe() for defence in defences},
        "versions": provenance(engine.classifier.packages),
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


def _row(part: Part, finding: Finding[list[Outcome]], cost: int) -> Row:
    """What was found about one image, with ``cost`` passes of the network for each vote."""
    sample = part.dataset.samples[finding.number]
    outcomes = [one if part.provable else replace(one, certified=False) for one in finding.value]
    return {
        "image": sample.name,
        "label": sample.label,
        "passes": finding.passes * cost,
        "seconds": round(finding.seconds, 4),
        "defences": {s.name: _told(outcome) for s, outcome in zip(part.defences, outcomes, strict=True)},
    }


def _told(outcome: Outcome) -> Row:
    """A certified side only where there may be one."""
    told = asdict(outcome)
    if outcome.side is None:
        told.pop("side")
    return told
