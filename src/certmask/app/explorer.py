"""Results files that a page may open: those below one folder, and nothing else; their rows by what became of them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from certmask.app.findings import found, notice
from certmask.app.studio import Bench, Meter, Studio, Tell, bench_of
from certmask.app.study import looked_at
from certmask.certificate import NO_CLASS
from certmask.data import Sample, load_dataset
from certmask.defences import MaskedDefence, defence_from
from certmask.errors import CertmaskError, DataError, ResultsError, UsageError
from certmask.function import check_function
from certmask.report.gallery import FATES, Album, Verdict, fate, seen_photo, verdict
from certmask.report.markup import Markup, joined, tag
from certmask.report.reasons import level_masks, shortfall, weak_point
from certmask.report.report import attacked_chapter, certified_chapter
from certmask.report.tables import html_table
from certmask.results.file import Row
from certmask.results.run import Run, read_run
from certmask.zoo import card_of, is_known, name_aliases, readable_names

MOST_SEEN, MOST_FILES, MOST_BYTES, MOST_ROWS = 50_000, 500, 64 * 2**20, 100
"""Files that are looked through, results files that are listed, the largest that is opened, rows shown at once."""
KINDS, PIECE = (".jsonl", ".jsonl.gz"), 2**20
"""How results files are called, packed or not, and the bytes that are counted at once before one is opened."""
ALL = "all"
HEADINGS = ("photo", "true class", "what became of it")
FIGURES = ("masks against", "passes to answer", "passes to prove")


@dataclass(frozen=True)
class Library:
    """A folder of results files, and the photos that they are about, if anybody said where these are."""

    folder: Path
    photos: str | None = None

    def names(self) -> list[str]:
        """The results files below the folder; links that lead out of it are left out."""
        root = self.folder.resolve()
        seen = islice(root.rglob("*"), MOST_SEEN) if root.is_dir() else ()
        files = sorted(path for path in seen if path.name.endswith(KINDS) and _is_text(str(path)))[:MOST_FILES]
        inside = [path for path in files if path.is_file() and path.resolve().is_relative_to(root)]
        return [path.relative_to(root).as_posix() for path in inside]

    def run(self, name: str) -> Run:
        """One of them, checked field by field; an error for any other path, whatever it is."""
        if name not in self.names():
            raise UsageError(f"expected a results file below {self.folder.name}, got {name!r}")
        path = self.folder.resolve() / name
        with self.discreet():
            return _read(path, path.stat().st_mtime_ns)

    def album(self, names: Sequence[str]) -> Album:
        """The photos by the names that results files call them; none where they are not those of such classes."""
        try:
            samples = _samples(self.photos, tuple(names)) if self.photos else {}
        except DataError:
            samples = {}
        return Album(samples, names)

    @contextmanager
    def discreet(self) -> Iterator[None]:
        """Errors about files and photos, without the place of their folders on this machine."""
        try:
            yield
        except (OSError, DataError, ResultsError) as error:
            words = str(error)
            for folder in (self.folder, Path(self.photos or self.folder)):
                words = words.replace(f"{folder.resolve().parent}/", "").replace(f"{folder.parent}/", "")
            raise ResultsError(words) from None


def _is_text(name: str) -> bool:
    """Whether a file's name can be told to a browser."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int) -> Run:
    if _is_larger(path, MOST_BYTES):
        raise ResultsError(f"expected a results file of at most {MOST_BYTES:,} bytes, got a larger one")
    return read_run(path)


def _is_larger(path: Path, most: int) -> bool:
    """Whether a results file has more bytes than this once it is unpacked; of a broken one its reader will tell."""
    if path.suffix != ".gz":
        return path.stat().st_size > most
    with suppress(EOFError, zlib.error, gzip.BadGzipFile), gzip.open(path, "rb") as file:
        left = most
        while left >= 0:
            piece = file.read(PIECE)
            if not piece:
                return False
            left -= len(piece)
        return True
    return False


@lru_cache(maxsize=4)
def _samples(source: str, names: tuple[str, ...]) -> Mapping[str, Sample]:
    return {sample.name: sample for sample in load_dataset(source, name_aliases(names), 1.0).samples}


def class_names(studio: Studio, run: Run) -> Sequence[str]:
    """What a run's classes are called, where its model is one of the page's or has a name that certmask knows.

    Of others only numbers are known.
    """
    model, count = run.model["name"], run.model.get("classes")
    known = studio.card(model) if model in studio.models else card_of(model) if is_known(model) else None
    return readable_names(known.classes) if known is not None and len(known.classes) == count else ()


def summary(run: Run) -> Markup:
    """What a run says of itself: its table, and what is proved, in words."""
    chapter = certified_chapter(run) if run.kind == "certify" else attacked_chapter(run)
    sentences = tag("ul", *(tag("li", sentence) for sentence in (*chapter.sentences, *chapter.cautions)))
    return tag("div", html_table(chapter.brief), sentences, class_="cm")


def chosen_rows(run: Run, defence: str, kind: str, named: str = "") -> list[Row]:
    """The photos of a run of which this became under a defence, and whose names have these letters in them."""
    if run.kind != "certify":
        return []
    if defence not in run.defences:
        raise UsageError(f"expected a defence of {run.name}, got {defence!r}")
    if kind not in (ALL, *FATES):
        raise UsageError(f"expected one of {', '.join((ALL, *FATES))}, got {kind!r}")
    kept = [row for row in run.rows if kind in (ALL, fate(row["defences"][defence], row["label"]))]
    return [row for row in kept if named.strip().casefold() in str(row["image"]).casefold()]


def rows_table(run: Run, rows: Sequence[Row], defence: str, album: Album) -> Markup:
    """Rows, one line each."""
    if run.kind != "certify":
        return tag("p", "Attempts of an attack: the table above is all that is shown of them.", class_="cm cm-note")
    lines = [tag("tr", *_cells(run, row, defence, album)) for row in rows[:MOST_ROWS]]
    figures = [tag("th", heading, scope="col", class_="figure") for heading in FIGURES]
    head = tag("tr", *(tag("th", heading, scope="col") for heading in HEADINGS), *figures)
    rest = f"; the first {MOST_ROWS} are shown" if len(rows) > MOST_ROWS else ""
    count = f"{len(rows):,} of {len(run.rows):,} photos under {defence}{rest}"
    grid = tag("table", tag("caption", count), tag("thead", head), tag("tbody", *lines))
    return tag("div", tag("div", grid, class_="scroll"), class_="cm")


def _cells(run: Run, row: Row, defence: str, album: Album) -> list[Markup]:
    outcome = row["defences"][defence]
    tone, words = _verdict(run, row, defence, album)
    numbers = [outcome.get("dissent"), outcome["passes"], outcome["certificate_passes"] or None]
    return [
        tag("td", str(row["image"])),
        tag("td", album.class_name(row["label"])),
        tag("td", tag("span", words, class_=f"cm-badge cm-{tone}")),
        *(tag("td", "–" if number is None else f"{number:,}", class_="figure") for number in numbers),
    ]


def _verdict(run: Run, row: Row, defence: str, album: Album) -> Verdict:
    """What became of a photo; beside a test that was passed, what that is worth."""
    kind, outcome = run.guarantee(defence), row["defences"][defence]
    tone, words = verdict(kind, outcome, row["label"], album)
    return tone, f"{words}, which proves nothing" if outcome.get("certified") and not kind.proved else words


def photo_votes(studio: Studio, library: Library, name: str, image: str, defence: str, tell: Tell | None) -> Markup:
    """What the file says of one photo and, where photo and model are at hand, its votes: made again, now and here."""
    run = library.run(name)
    row = next((row for row in chosen_rows(run, defence, ALL) if row["image"] == image), None)
    if row is None:
        raise UsageError(f"expected a photo of {run.name}, got {image!r}")
    album = library.album(class_names(studio, run))
    recorded = tag("p", f"The file says of {defence}: {_recorded(run, row, defence, album)}.")
    missing = _missing(studio, library, run, row, album)
    try:
        with library.discreet():
            again = tag("p", missing, class_="cm-note") if missing else _again(studio, run, row, defence, album, tell)
    except CertmaskError as error:
        again = notice(str(error))
    return tag("div", tag("h3", image), recorded, again, class_="cm")


def _recorded(run: Run, row: Row, defence: str, album: Album) -> str:
    """What became of a photo, and why, from its row alone."""
    outcome = row["defences"][defence]
    words = _verdict(run, row, defence, album)[1]
    if not outcome.get("certified"):
        return f"{words}; {shortfall(run, row, defence, album.class_name)}"
    weakest = outcome.get("weakest")
    return f"{words}; {weak_point(weakest, True, level_masks(run.cover(defence, row)))}" if weakest else words


def _missing(studio: Studio, library: Library, run: Run, row: Row, album: Album) -> str:
    """Why the votes cannot be made again; nothing where they can."""
    if run.model["name"] not in studio.models:
        return f"Its votes are not in the file, and the page does not have its model, {run.model['name']}."
    if library.photos is None:
        return "Its votes are not in the file; start the page with --photos to have them made again."
    return "" if row["image"] in album.photos else f"Among the photos is no {row['image']} of such classes."


def _again(studio: Studio, run: Run, row: Row, name: str, album: Album, tell: Tell | None) -> Markup:
    """The photo's votes, with a word where they are not those of the run."""
    defence = defence_from({**run.defences[name], "name": name})
    if not isinstance(defence, MaskedDefence):
        raise UsageError(f"expected a defence that looks through masks, got {name!r}")
    picture = seen_photo(run, row, album)
    with studio.alone:
        bench = bench_of(studio.classifier(run.model["name"], run.model), [defence])
        study = looked_at(bench, row["image"], (picture, picture), Meter(studio.limits, tell))
        alike, note = _alike(run, bench)
    label, one = row["defences"][name]["label"], study.explanation
    same = "" if one.label in (label, NO_CLASS) else " The answer is another one, too."
    wrong = one.certificate.holds and one.label != row["label"]
    truth = f" The photo shows {album.class_name(row['label'])}: a proof about {study.name} is none about it."
    words = f"{note}{same}{truth if alike and wrong else ''}"
    return joined(tag("p", words, class_="cm-note"), found(study, promise=alike and not wrong))


def _alike(run: Run, bench: Bench) -> tuple[bool, str]:
    """Whether the model is known to answer here as in a run, so that the run's margin holds, and a word on that."""
    try:
        notes = check_function(run.header, bench.engine, [bench.defences[0].rule], run.name)
    except ResultsError as error:
        return False, f"The votes below are made here and now, not by the function of that run: {error}."
    told = f" Noted: {'; '.join(notes)}." if notes else ""
    if run.model.get("fingerprint") is None:
        return False, f"Whether the model answers here as it did in that run is not known.{told}"
    return True, f"The model answers here as it did in that run.{told}"
