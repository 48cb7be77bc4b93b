"""The report as one HTML page that needs nothing beside itself: no network, no script, no font."""

from __future__ import annotations

from certmask.report.markup import Markup, joined, tag
from certmask.report.report import Report
from certmask.report.sections import Album, sections
from certmask.report.style import CSS
from certmask.report.words import LIMITS, attacked, setting

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
FOOTER = "Made by certmask from results files alone."


def page(report: Report, album: Album) -> str:
    """The whole page; the same input gives the same bytes."""
    title = "What was proved" if report.chapters else "What was attacked"
    body, links = [], []
    for number, section in enumerate(sections(report, album), start=1):
        body.append(tag("section", tag("h2", section.title), *section.parts, id=f"section-{number}"))
        links.append(tag("a", section.title, href=f"#section-{number}"))
    main = tag("main", tag("h1", title), *_opening(report), tag("nav", *links), *body, tag("footer", FOOTER))
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
    several = len(report.chapters) + len(report.assaults) > 1
    for chapter in report.chapters:
        name = tag("b", f"{chapter.run.name}. ") if several else Markup("")
        parts.append(tag("p", name, setting(chapter.run, chapter.lines), class_="lede"))
        parts.append(tag("ul", *(tag("li", sentence) for sentence in chapter.sentences)))
    for assault in report.assaults:
        words = joined(tag("b", f"{assault.run.name}, attacks. "), " ".join(attacked(assault.lines)))
        parts.append(tag("p", words, class_="lede"))
    return [*parts, tag("p", LIMITS, class_="note")]
