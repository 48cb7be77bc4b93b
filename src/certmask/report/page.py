"""The report as one HTML page that needs nothing beside itself: no network, no script, no font."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.figure import Figure

from certmask.report.gallery import Album, Exhibition, exhibitions
from certmask.report.glossary import TERMS
from certmask.report.markup import CSS, Markup, data_uri, joined, tag
from certmask.report.plots import dissent_figure, price_caption, price_figure, share_figure, size_figure, svg_plot
from certmask.report.report import FIGURES_NOTE, Chapter, Report
from certmask.report.tables import Table, full_table, html_table
from certmask.report.words import LIMITS, setting
from certmask.results.columns import COLUMNS, AttackFigures, Figures
from certmask.results.run import Run

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MANY = 15
"""Longer tables are folded."""

BARS = "Certified shares by guarantee. Recovery and detection are different promises: their bars do not compare."
SIZES = "The share that is certified for a patch of each size, or a larger one; bands: 95 % intervals."
DISSENT = (
    "How many single masks voted against the answer, image by image. Where proved images have dissenters, a jury "
    "forgave them."
)


def page(report: Report, album: Album) -> str:
    """The whole page; the same input gives the same bytes."""
    title = "What was proved" if report.chapters else "What was attacked"
    body, links = [], []
    for number, (name, parts) in enumerate(sections(report, album), start=1):
        body.append(tag("section", tag("h2", name), *parts, id=f"section-{number}"))
        links.append(tag("a", name, href=f"#section-{number}"))
    footer = tag("footer", "Made by certmask from results files alone.")
    main = tag("main", tag("h1", title), *_opening(report), tag("nav", *links), *body, footer)
    return f"<!doctype html>\n{tag('html', _head(title), tag('body', main), lang='en')}\n"


def _head(title: str) -> Markup:
    """The policy forbids the browser to load or run anything, should a name slip through unescaped."""
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Markup(CSS)),
    )


def _opening(report: Report) -> list[Markup]:
    """The worst news if there is any, then the summary in words."""
    parts = [tag("p", line, class_="broken") for line in report.broken]
    several = len(report.chapters) + len(report.attacks) > 1
    for chapter in report.chapters:
        name = tag("b", f"{chapter.run.name}. ") if several else Markup("")
        parts.append(tag("p", name, setting(chapter.run, chapter.lines), class_="lede"))
        parts.append(tag("ul", *(tag("li", sentence) for sentence in chapter.sentences)))
    for attack in report.attacks:
        words = joined(tag("b", f"{attack.run.name}, attacks. "), " ".join(attack.sentences))
        parts.append(tag("p", words, class_="lede"))
    return [*parts, tag("p", LIMITS, class_="note")]


def sections(report: Report, album: Album) -> list[tuple[str, list[Markup]]]:
    """Titles and contents of all sections that have something to say, in order."""
    terms = [tag("div", tag("dt", word), tag("dd", meaning)) for word, meaning in TERMS.items()]
    shown = {exhibition.run.path: _shown(exhibition) for exhibition in exhibitions(report, album)}
    found = [
        *((chapter.run.name, _chapter(chapter)) for chapter in report.chapters),
        ("Compared", list(_comparison(report))),
        *((f"Attacks: {a.run.name}", [*_attack(a), *shown[a.run.path]]) for a in report.attacks),
        *((f"Photos: {run.name}", shown.get(run.path, [])) for run in report.runs),
        ("What the words mean", [tag("dl", *terms, class_="terms")]),
        ("Provenance", [_provenance(run) for run in (*report.runs, *(a.run for a in report.attacks))]),
    ]
    return [section for section in found if section[1]]


def _attack(attack: Chapter[AttackFigures]) -> list[Markup]:
    """Sentences and table of one attack."""
    return [tag("p", " ".join(attack.sentences)), html_table(attack.table)]


def _shown(exhibition: Exhibition) -> list[Markup]:
    """A word about the pictures, then the pictures."""
    words = [tag("p", exhibition.words)] if exhibition.words else []
    layout = "cards pairs" if exhibition.run.kind == "attack" else "cards"
    return [*words, *([tag("div", *exhibition.cards, class_=layout)] if exhibition.cards else [])]


def _chapter(chapter: Chapter[Figures]) -> list[Markup]:
    """Table, cautions and plots of one run."""
    tested = [line for line in chapter.lines if line.certified]
    sized = [line for line in tested if line.sizes]
    masked = [line for line in tested if line.guarantee.proved and line.masks]
    return [
        *map(html_table, chapter.tables),
        *(tag("p", line, class_="caution") for line in chapter.cautions),
        *([_picture(BARS, share_figure, tested)] if tested else []),
        *([_picture(SIZES, size_figure, sized)] if sized else []),
        *([_picture(DISSENT, dissent_figure, chapter.run, masked)] if masked else []),
    ]


def _comparison(report: Report) -> Iterator[Markup]:
    """Runs side by side, certified share against passes, paired tests."""
    if len(report.chapters) > 1:
        yield _folded(full_table("All runs", COLUMNS, report.lines, [FIGURES_NOTE], also=["run"]))
    for group in report.price_groups():
        names = [line.defence if len(report.chapters) == 1 else f"{line.run}: {line.defence}" for line in group]
        yield _picture(price_caption(group), price_figure, group, names)
    if report.contests:
        yield _folded(report.contests_table)


def _provenance(run: Run) -> Markup:
    """Every field of a header."""
    facts = [
        ("sha256 of the file, unpacked, first 16 digits", run.digest),
        ("rows", str(len(run.rows))),
        *_flat(run.header),
    ]
    rows = [tag("tr", tag("td", name), tag("td", value)) for name, value in facts]
    return tag("details", tag("summary", run.name), tag("table", tag("tbody", *rows), class_="facts"))


def _flat(fields: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as joined names and values."""
    if isinstance(fields, dict) and fields:
        for key, value in fields.items():
            yield from _flat(value, f"{where} › {key}" if where else str(key))
    else:
        yield where, fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False)


def _picture(caption: str, draw: Callable[..., Figure], *shown: Any) -> Markup:
    image = tag("img", src=data_uri(svg_plot(draw, *shown), "image/svg+xml"), alt=caption)
    return tag("figure", image, tag("figcaption", caption))


def _folded(table: Table) -> Markup:
    """The table, behind a click where it is long."""
    written, rows = html_table(table), len(table.rows)
    return tag("details", tag("summary", f"{table.title}: {rows} rows"), written) if rows > MANY else written
