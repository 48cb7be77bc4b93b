"""Every figure once: what is counted in a run, and the tables of columns from which all forms are made.

A new figure is one row in a table of columns: terminal, Markdown, page, LaTeX, CSV and JSON follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Generic, TypeVar

from certmask.certificate import BASES, Guarantee
from certmask.covers.cover import cover_text
from certmask.errors import ResultsError
from certmask.results.clusters import is_certified, is_right
from certmask.results.file import Row
from certmask.results.kinds import AMOUNT, CHANCE, COUNT, EXTENT, NOTHING, PERCENT, SHARE, WORDS, Kind
from certmask.results.run import Run
from certmask.results.statistics import Contest, Share
from certmask.threat import Patch, Size, Threat

T = TypeVar("T")


@dataclass(frozen=True)
class SizeFigures:
    """The images that a defence which is not told the size of a patch certifies for this size, or a larger one."""

    defence: str
    guarantee: Guarantee
    side: int
    certified: Share

    def certified_as(self, guarantee: Guarantee) -> Share | None:
        """The share if it is of this kind."""
        return self.certified if self.guarantee is guarantee else None


@dataclass(frozen=True)
class Figures:
    """One defence over all images of a run.

    None stands where there is no such figure: a rule that promises nothing certifies nothing and needs no masks, and
    another defence may have none. ``certified_quiet`` are images that a rule of detection certifies and answers rightly
    without an alert. Times are estimates: passes, times the run's mean time of one pass. ``bases`` has the share of
    answers that rest on each basis, for rules that recorded it. ``photo_share`` is the side of the largest square patch
    in the stored photo that the certificate covers, in percent of its shorter side: the median over certified images.
    """

    run: str
    model: str
    data: str
    defence: str
    guarantee: Guarantee
    threat: Threat
    image: Size
    mask: Size | None
    masks: int | None
    cover: str | None
    clean: Share
    certified: Share | None
    certified_quiet: Share | None
    false_alerts: Share
    answer_passes: float
    proof_passes: float | None
    proved_passes: float | None
    proved_median: float | None
    unproved_passes: float | None
    pass_milliseconds: float | None
    levels: int
    bases: Mapping[str, Share]
    sizes: Sequence[SizeFigures] = ()
    photo_share: float | None = None

    @property
    def images(self) -> int:
        return self.clean.of

    @property
    def patch(self) -> Size | None:
        """The size of a patch in the input, if it has one."""
        return self.threat.size if isinstance(self.threat, Patch) else None

    def certified_as(self, guarantee: Guarantee) -> Share | None:
        """The certified share if it is of this kind: kinds never share a column."""
        return self.certified if self.guarantee is guarantee else None

    def milliseconds(self, passes: float | None) -> float | None:
        return None if passes is None or self.pass_milliseconds is None else passes * self.pass_milliseconds


def figures(run: Run) -> list[Figures]:
    """One entry per defence of a certification run."""
    _check_kind(run, "certify")
    return [_figures(run, defence) for defence in run.defences]


def _figures(run: Run, defence: str) -> Figures:
    guarantee, cover = run.guarantee(defence), run.cover(defence)
    found, images = [row["defences"][defence] for row in run.rows], len(run.rows)
    proves = guarantee is not Guarantee.NONE
    prices = [(o["certified"], o["certificate_passes"]) for o in found] if proves else []
    completed = [passes for proved, passes in prices if proved]
    return Figures(
        run=run.name,
        model=run.model["name"],
        data=run.data["name"],
        defence=defence,
        guarantee=guarantee,
        threat=run.threat(defence),
        image=run.image(defence),
        mask=(cover["mask"][0], cover["mask"][1]) if cover else None,
        masks=cover["masks"] if cover and proves else None,
        cover=cover_text(cover) if cover and proves else None,
        clean=Share(sum(is_right(row, defence) for row in run.rows), images),
        certified=Share(sum(o["certified"] for o in found), images) if proves else None,
        certified_quiet=_certified_quiet(run, defence),
        false_alerts=Share(sum(o["alert"] for o in found), images),
        answer_passes=sum(o["passes"] for o in found) / images,
        proof_passes=_mean([passes for _, passes in prices]),
        proved_passes=_mean(completed),
        proved_median=median(completed) if completed else None,
        unproved_passes=_mean([passes for proved, passes in prices if not proved]),
        pass_milliseconds=run.pass_milliseconds,
        levels=len(cover.get("levels", ())) if cover else 0,
        bases=_bases(found),
        sizes=_sizes(run, defence) if proves else (),
        photo_share=_photo_share(run, defence) if guarantee.proved else None,
    )


def _photo_share(run: Run, defence: str) -> float | None:
    """The median of what certificates cover in the stored photo; None where that is not on record."""
    photos = [row["photo"] for row in run.rows if "photo" in row and is_certified(row, defence)]
    return median(100 * photo["side"] / min(photo["size"]) for photo in photos) if photos else None


def _certified_quiet(run: Run, defence: str) -> Share | None:
    """The images that are certified and answered rightly without an alert, for a rule that may raise one."""
    if run.guarantee(defence) is not Guarantee.DETECTION:
        return None
    return Share(sum(is_certified(row, defence) and is_right(row, defence) for row in run.rows), len(run.rows))


def _sizes(run: Run, defence: str) -> list[SizeFigures]:
    """One entry for every size that a patch may have, from small to large; none where the size is known."""
    sides = [row["defences"][defence].get("side", 0) for row in run.rows]
    return [
        SizeFigures(defence, run.guarantee(defence), own, Share(sum(side >= own for side in sides), len(sides)))
        for own in (patch.height for patch in run.threat(defence).steps)
    ]


def _bases(found: Sequence[Row]) -> dict[str, Share]:
    """The share of answers with each basis; nothing where none is on record."""
    said = [outcome.get("basis", "") for outcome in found]
    return {basis: Share(said.count(basis), len(said)) for basis in BASES} if any(said) else {}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class AttackFigures:
    """One defence over all attempts on it; ``broken`` is None where nothing was certified.

    That is so for a rule that promises nothing, and for attempts on images that were chosen for not being
    ``certified``. ``images_lost`` counts images with at least one broken certificate or, without certificates, one
    answer that would have broken it.
    """

    run: str
    defence: str
    guarantee: Guarantee
    attempts: int
    label_changed: int
    alerted: int
    broken: int | None
    images: int
    images_lost: int
    certified: bool = True


def attack_figures(run: Run) -> list[AttackFigures]:
    """One entry per defence of an attack."""
    _check_kind(run, "attack")
    return [_attack_figures(run, defence) for defence in run.defences]


def _attack_figures(run: Run, defence: str) -> AttackFigures:
    rows, guarantee = [row for row in run.rows if row["defence"] == defence], run.guarantee(defence)
    certified = not rows or any(row.get("certified", True) for row in rows)
    lost = "broken" if certified else "fell"
    return AttackFigures(
        run=run.name,
        defence=defence,
        guarantee=guarantee,
        attempts=len(rows),
        label_changed=sum(row["answer"] != row["label"] for row in rows),
        alerted=sum(row["alert"] for row in rows),
        broken=None if guarantee is Guarantee.NONE or not certified else sum(row["broken"] for row in rows),
        images=len({row["image"] for row in rows}),
        images_lost=len({row["image"] for row in rows if row.get(lost)}),
        certified=certified,
    )


def _check_kind(run: Run, kind: str) -> None:
    if run.kind != kind:
        raise ResultsError(f"expected a file of kind {kind!r}, got one of kind {run.kind!r} at {run.path}")


@dataclass(frozen=True)
class Column(Generic[T]):
    """One figure: its key in CSV and JSON, its kind, its value, and its headings.

    ``heading`` (under ``group``) is for pages and papers, ``brief`` for a terminal, with line breaks; without one, the
    column is not shown there. ``note`` qualifies the figure on a page. An ``optional`` column is shown where there is
    such a figure.
    """

    key: str
    kind: Kind
    value: Callable[[T], Any]
    heading: str = ""
    group: str = ""
    brief: str = ""
    note: Callable[[T], str] = lambda _: ""
    optional: bool = False

    def short(self, item: T) -> str:
        """As a terminal prints it."""
        return NOTHING if (value := self.value(item)) is None else self.kind.short(value)

    def long(self, item: T) -> tuple[str, str]:
        """As a page prints it: the figure and what qualifies it."""
        if (value := self.value(item)) is None:
            return NOTHING, ""
        figure, note = self.kind.long(value)
        return figure, note or self.note(item)


JSON_ALIASES = {"passes_to_answer": "passes", "passes_to_prove": "certificate_passes"}
"""Shorter keys under which JSON has these figures, too; there, no passes are 0."""


def json_record(columns: Sequence[Column[T]], item: T) -> dict[str, Any]:
    """One field per column, shares from 0 to 1."""
    record = {column.key: column.kind.plain(column.value(item)) for column in columns}
    return record | {JSON_ALIASES[key]: value or 0.0 for key, value in record.items() if key in JSON_ALIASES}


def csv_record(columns: Sequence[Column[T]], item: T) -> dict[str, Any]:
    """Plain numbers, shares from 0 to 1 with count and interval."""
    fields = (column.kind.fields(column.key, column.value(item)) for column in columns)
    return {key: value for field in fields for key, value in field.items()}


RESTS = "share of answers, %"
BASIS_COLUMNS: list[Column[Figures]] = [
    Column("unanimous_answers", SHARE, lambda f: f.bases.get("unanimous"), "unanimous", RESTS),
    Column("unbeaten_answers", SHARE, lambda f: f.bases.get("unbeaten"), "unbeaten", RESTS),
    Column("bare_answers", SHARE, lambda f: f.bases.get("bare"), "bare", RESTS),
    Column("majority_answers", SHARE, lambda f: f.bases.get("majority"), "majority", RESTS),
]
"""What the answers of a defence rest on; in a table of their own where they are shown."""

SIZE_COLUMNS: list[Column[SizeFigures]] = [
    Column("defence", WORDS, lambda s: s.defence, "defence", "", "defence"),
    Column("side", COUNT, lambda s: s.side, "patch side", "", "patch\nside"),
    Column("certified_recovery", SHARE, lambda s: s.certified_as(Guarantee.RECOVERY), "certified recovery",
           "share of images, %", "certified\nrecovery"),
    Column("certified_detection", SHARE, lambda s: s.certified_as(Guarantee.DETECTION), "certified detection",
           "share of images, %", "certified\ndetection"),
]  # fmt: skip
"""A patch whose size the defence is not told: the share that is certified for each size, from one run."""

SHARES, PASSES, TIMES = "share of images, %", "passes per image", "ms per image, estimated"
COLUMNS: list[Column[Figures]] = [
    Column("run", WORDS, lambda f: f.run),
    Column("model", WORDS, lambda f: f.model),
    Column("data", WORDS, lambda f: f.data),
    Column("defence", WORDS, lambda f: f.defence, "defence", "", "defence"),
    Column("guarantee", WORDS, lambda f: f.guarantee.value),
    Column("image", EXTENT, lambda f: f.image),
    Column("threat", WORDS, lambda f: f.threat.label),
    Column("patch", EXTENT, lambda f: f.patch),
    Column("mask", EXTENT, lambda f: f.mask),
    Column("clean_accuracy", SHARE, lambda f: f.clean, "clean accuracy", SHARES, "clean"),
    Column("certified_recovery", SHARE, lambda f: f.certified_as(Guarantee.RECOVERY), "certified recovery", SHARES,
           "certified\nrecovery"),
    Column("certified_detection", SHARE, lambda f: f.certified_as(Guarantee.DETECTION), "certified detection", SHARES,
           "certified\ndetection"),
    Column("certified_and_quiet", SHARE, lambda f: f.certified_quiet, "certified and quiet", SHARES,
           "certified\nand quiet"),
    Column("false_alerts", SHARE, lambda f: f.false_alerts, "false alerts", SHARES, "false\nalerts"),
    Column("published_test", SHARE, lambda f: f.certified_as(Guarantee.PUBLISHED), "published test", SHARES,
           "published\ntest"),
    Column("certified_side_in_photo", PERCENT, lambda f: f.photo_share, "patch in the photo, % of its side",
           optional=True),
    Column("masks", COUNT, lambda f: f.masks, "masks"),
    Column("passes_to_answer", AMOUNT, lambda f: f.answer_passes, "to answer", PASSES, "passes,\nanswer"),
    Column("passes_to_prove", AMOUNT, lambda f: f.proof_passes, brief="passes,\nproof"),
    Column("passes_to_prove_if_proved", AMOUNT, lambda f: f.proved_passes, "to prove: proved", PASSES,
           note=lambda f: f"median {f.proved_median:,g}"),
    Column("passes_to_prove_if_proved_median", AMOUNT, lambda f: f.proved_median),
    Column("passes_to_prove_if_not", AMOUNT, lambda f: f.unproved_passes, "to prove: not proved", PASSES),
    Column("estimated_milliseconds_to_answer", AMOUNT, lambda f: f.milliseconds(f.answer_passes), "to answer", TIMES),
    Column("estimated_milliseconds_to_prove", AMOUNT, lambda f: f.milliseconds(f.proof_passes), "to prove", TIMES),
    Column("images", COUNT, lambda f: f.images, "images"),
    Column("cover", WORDS, lambda f: f.cover),
    *(replace(column, heading="") for column in BASIS_COLUMNS),
]  # fmt: skip
"""One row per figure of a defence."""

UNITS = "shares in %, passes per image"
"""What the brief headings leave unsaid."""

UNCERTIFIED = "not certified"
"""What stands for a certificate beside attempts on images that have none."""

ATTACK_COLUMNS: list[Column[AttackFigures]] = [
    Column("run", WORDS, lambda f: f.run),
    Column("defence", WORDS, lambda f: f.defence, "defence", "", "defence"),
    Column(
        "guarantee",
        WORDS,
        lambda f: f.guarantee.value if f.certified else UNCERTIFIED,
        "certificate",
        "",
        "certificate",
    ),
    Column("attempts", COUNT, lambda f: f.attempts, "attempts", "", "attempts"),
    Column("label_changed", COUNT, lambda f: f.label_changed, "label changed", "", "label\nchanged"),
    Column("alerted", COUNT, lambda f: f.alerted, "alerted", "", "alerted"),
    Column("broken", COUNT, lambda f: f.broken, "certificate broken", "", "certificate\nbroken"),
    Column("images", COUNT, lambda f: f.images, "images", "", "images"),
    Column("images_lost", COUNT, lambda f: f.images_lost, "images lost", "", "images\nlost"),
]
"""One row per figure of an attacked defence."""

HOLDS, TESTED = "holds on images", "McNemar, exact"
CONTEST_COLUMNS: list[Column[Contest]] = [
    Column("certificate", WORDS, lambda c: c.guarantee.value, "certificate or test"),
    Column("first", WORDS, lambda c: c.first, "A"),
    Column("second", WORDS, lambda c: c.second, "B"),
    Column("both", COUNT, lambda c: c.both, "both", HOLDS),
    Column("only_first", COUNT, lambda c: c.only_first, "only A", HOLDS),
    Column("only_second", COUNT, lambda c: c.only_second, "only B", HOLDS),
    Column("neither", COUNT, lambda c: c.neither, "neither", HOLDS),
    Column("images", COUNT, lambda c: c.images, "images"),
    Column("p_mcnemar", CHANCE, lambda c: c.chance, "p", TESTED),
    Column("p_holm", CHANCE, lambda c: c.adjusted, "p, Holm", TESTED),
]
"""One row per figure of a comparison."""
