"""The sections of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from certmask.certificate import Guarantee
from certmask.report.exhibits import attack_cards
from certmask.report.findings import Findings
from certmask.report.gallery import Card, photo_cards
from certmask.report.markup import Markup, data_uri, tag
from certmask.report.plots import (
    TITLE,
    certified_shares,
    dissent_plot,
    frontier,
    price_plot,
    prices,
    rings,
    share_bars,
)
from certmask.report.report import Assault, Chapter, Report
from certmask.report.run_files import RunFile
from certmask.report.table_forms import html_table
from certmask.report.tables import contests_table, figures_table
from certmask.report.thumbnails import Photos
from certmask.report.words import attacked, cautions

MANY = 15
"""Longer tables are folded."""

BARS = "Certified shares by guarantee. Recovery and detection are different promises: their bars do not compare."
DISSENT = (
    "How many single masks voted against the answer, image by image. Where proved images have dissenters, a jury "
    "forgave them."
)
TERMS = {
    "clean accuracy": "Images without a patch that are answered rightly and without an alert.",
    "certified recovery": f"Images for which it is proved that {Guarantee.RECOVERY.sentence}.",
    "certified detection": f"Images for which it is proved that {Guarantee.DETECTION.sentence}. Worth as much as "
    "its false alerts are few. Never to be added to recovery.",
    "false alerts": "Images without a patch on which an alert is raised.",
    "published test": "Images on which all masks vote for the true class, which the CertMask paper calls certified. "
    "It gives no guarantee against an adaptive attacker.",
    "passes": "Forward passes of the classifier per image: to answer, as a deployed defence does, and to prove, as an "
    "evaluation does; a proof that fails stops early.",
}


@dataclass(frozen=True)
class Album:
    """Photos for the gallery, the classes' names, and how many cards the page may show."""

    photos: Photos = field(default_factory=dict)
    names: Sequence[str] = ()
    cards: int = 12


@dataclass(frozen=True)
class Section:
    """A title and what stands under it."""

    title: str
    parts: Sequence[Markup]


def sections(report: Report, album: Album) -> list[Section]:
    """All sections that have something to say, in order."""
    found = [
        *map(chapter_section, report.chapters),
        Section("Compared", list(comparison(report))),
        *map(assault_section, report.assaults),
        *gallery(report, album),
        Section("What the words mean", [terms()]),
        Section("Provenance", [provenance(run) for run in (*report.runs, *(a.run for a in report.assaults))]),
    ]
    return [section for section in found if section.parts]


def chapter_section(chapter: Chapter) -> Section:
    """Table, cautions and plots of one run."""
    parts = [html_table(chapter.table), *(tag("p", line, class_="caution") for line in cautions(chapter.run))]
    for svg, caption in ((share_bars(chapter.lines), BARS), (dissent_plot(chapter.run, chapter.lines), DISSENT)):
        parts += [picture(svg, caption)] if svg else []
    return Section(chapter.run.name, parts)


def comparison(report: Report) -> Iterator[Markup]:
    """Runs side by side, certified share against passes, paired tests."""
    if len(report.chapters) > 1:
        lines = [line for chapter in report.chapters for line in chapter.lines]
        yield folded(html_table(figures_table(lines, "All runs", with_run=True)), len(lines), "All runs")
    for group in report.price_groups():
        names = [line.defence if len(report.chapters) == 1 else f"{line.run}: {line.defence}" for line in group]
        yield picture(price_plot(group, names), price_caption(group))
    if report.contests:
        yield folded(html_table(contests_table(report.contests)), len(report.contests), "Paired on the same images")


def price_caption(lines: Sequence[Findings]) -> str:
    """What is shown, and what dashed lines and hollow marks mean where there are any."""
    line, shares, panels = lines[0], certified_shares(lines), prices(lines).values()
    words = [
        f"The price of a proof ({TITLE[line.guarantee]}): {line.model} on {line.data}, "
        f"{line.patch[0]}×{line.patch[1]} patch.",
        "Vertical: 95 % intervals.",
    ]
    if any(len(frontier(passes, shares)) > 1 for passes in panels):
        words.append("Dashed: what no cheaper defence reaches.")
    if any(any(rings(passes, shares)) for passes in panels):
        words.append("Hollow marks lie around others in nearly the same place.")
    return " ".join(words)


def assault_section(assault: Assault) -> Section:
    words = tag("p", " ".join(attacked(assault.lines)))
    return Section(f"Attacks: {assault.run.name}", [words, html_table(assault.table)])


def gallery(report: Report, album: Album) -> list[Section]:
    """Cards of photos, then of attacks, never more than the album allows; attacks, being few, choose first."""
    known = [run for run in report.runs if any(row["image"] in album.photos for row in run.rows)]
    sources: list[tuple[str, Callable[[int], list[Card]]]] = [
        *((f"Attacked pictures: {a.run.name}", partial(attack_cards, a.run, report.runs, album.photos, album.names))
          for a in report.assaults),
        *((f"Photos: {run.name}", partial(photo_cards, run, album.photos, album.names)) for run in known),
    ]  # fmt: skip
    left = album.cards
    found = []
    for place, (title, cards_of) in enumerate(sources):
        cards = cards_of(left // (len(sources) - place))
        left -= len(cards)
        found.append(Section(title, [tag("div", *map(card_box, cards), class_="cards")] if cards else []))
    return [*found[len(report.assaults) :], *found[: len(report.assaults)]]


def card_box(card: Card) -> Markup:
    """Pictures, what they show, and what each defence said."""
    pictures = []
    for source, caption in card.pictures:
        image = tag("img", src=source, alt=f"{card.title} {caption}".strip())
        pictures.append(tag("figure", image, *([tag("figcaption", caption)] if caption else [])))
    verdicts = [tag("div", tag("dt", who), tag("dd", words, class_=tone)) for who, tone, words in card.verdicts]
    about = (tag("div", card.heading, class_=card.tone), tag("b", card.title), tag("div", card.drawn, class_="note"))
    text = tag("div", *about, tag("dl", *verdicts), class_="text")
    return tag("div", tag("div", *pictures, class_="pictures"), text, class_="card")


def terms() -> Markup:
    entries = [tag("div", tag("dt", word), tag("dd", meaning)) for word, meaning in TERMS.items()]
    return tag("dl", *entries, class_="terms")


def provenance(run: RunFile) -> Markup:
    """Every field of a header."""
    facts = [("sha256 of the file, first 16 digits", run.digest), ("rows", str(len(run.rows))), *flat(run.header)]
    rows = [tag("tr", tag("td", name), tag("td", value)) for name, value in facts]
    return tag("details", tag("summary", run.name), tag("table", tag("tbody", *rows), class_="facts"))


def flat(fields: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as joined names and values."""
    if isinstance(fields, dict) and fields:
        for key, value in fields.items():
            yield from flat(value, f"{where} › {key}" if where else str(key))
    else:
        yield where, fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)


def picture(svg: bytes, caption: str) -> Markup:
    image = tag("img", src=data_uri(svg, "image/svg+xml"), alt=caption)
    return tag("figure", image, tag("figcaption", caption))


def folded(table: Markup, rows: int, title: str) -> Markup:
    """The table, behind a click where it is long."""
    return tag("details", tag("summary", f"{title}: {rows} rows"), table) if rows > MANY else table
