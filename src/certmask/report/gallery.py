"""Photos of a run by what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from certmask.certificate import Guarantee
from certmask.covers import Cover
from certmask.defences import defence_from
from certmask.errors import ResultsError
from certmask.report.run_files import RunFile
from certmask.report.thumbnails import Photos, jury, seen_photo, thumbnail, with_jury
from certmask.results.file import Row

CERTIFIED, ALERTED, WRONG, UNPROVED = "certified", "alert raised", "wrong, no alert", "right, not certified"
FATES = (CERTIFIED, ALERTED, WRONG, UNPROVED)


@dataclass(frozen=True)
class Card:
    """One exhibit: what it shows (and in which colour), captioned pictures, title, verdicts, what is drawn."""

    heading: str
    tone: str
    pictures: tuple[tuple[str, str], ...]
    title: str
    verdicts: tuple[tuple[str, str, str], ...]
    drawn: str = ""


def fate(outcome: Row, label: int) -> str:
    """What became of one image under one defence."""
    if outcome.get("certified"):
        return CERTIFIED
    if outcome["alert"]:
        return ALERTED
    return UNPROVED if outcome["label"] == label else WRONG


def showpieces(run: RunFile) -> list[str]:
    """The defences whose cases are shown: of each proved guarantee the one that certifies most, else the published."""
    best: list[str] = []
    for kind in (Guarantee.RECOVERY, Guarantee.DETECTION, Guarantee.PUBLISHED):
        rivals = [defence for defence in run.defences if run.guarantee(defence) is kind]
        if rivals and (kind is not Guarantee.PUBLISHED or not best):
            best.append(max(rivals, key=lambda s: sum(row["defences"][s]["certified"] for row in run.rows)))
    return best or list(run.defences)[:1]


def picked(run: RunFile, count: int) -> list[tuple[Row, str, str]]:
    """At most ``count`` rows, each once, taking turns over fates and defences; with the defence and the fate shown."""
    rows = sorted(run.rows, key=lambda row: str(row["image"]))
    queues = [
        [(row, defence, kind) for row in rows if fate(row["defences"][defence], row["label"]) == kind]
        for kind in FATES
        for defence in showpieces(run)
    ]
    taken: dict[str, tuple[Row, str, str]] = {}
    while len(taken) < count and any(queues):
        for queue in queues:
            while queue and queue[0][0]["image"] in taken:
                queue.pop(0)
            if queue and len(taken) < count:
                pick = queue.pop(0)
                taken[pick[0]["image"]] = pick
    return sorted(taken.values(), key=lambda pick: FATES.index(pick[2]))


def photo_cards(run: RunFile, photos: Photos, names: Sequence[str], count: int) -> list[Card]:
    """Photos of a run with the jury of the middle drawn on them, and what every defence said."""
    covers: dict[str, Cover | None] = {}
    cards = []
    for row, defence, _ in picked(run, count):
        photo = seen_photo(run, row, photos)
        if defence not in covers:
            covers[defence] = _cover(run.defences[defence])
        cover = covers[defence]
        picture = photo if cover is None else with_jury(photo, cover)
        said = {s: verdict(run.guarantee(s), row["defences"][s], row["label"], names) for s in run.defences}
        tone, words = said[defence]
        title = f"{class_name(row['label'], names)} · {row['image']}"
        verdicts = tuple((s, *found) for s, found in said.items())
        cards.append(Card(f"{defence}: {words}", tone, ((thumbnail(picture), ""),), title, verdicts, _drawn(cover)))
    return cards


def _cover(description: Row) -> Cover | None:
    """The cover that a header describes; None where it cannot be rebuilt to the last mask."""
    try:
        return defence_from(description).cover
    except ResultsError:
        return None


def _drawn(cover: Cover | None) -> str:
    if cover is None:
        return "masks are on record only as a hash: none is drawn"
    members = len(jury(cover))
    return f"drawn: a patch and {'the mask that covers it' if members == 1 else f'its jury of {members} masks'}"


def verdict(guarantee: Guarantee, outcome: Row, label: int, names: Sequence[str]) -> tuple[str, str]:
    """What a defence said about a clean image: in a word for the colour, and in words."""
    kind = fate(outcome, label)
    if kind == CERTIFIED:
        if guarantee is Guarantee.PUBLISHED:
            return "unproved", "passes the published test"
        alert = ", alert raised" if outcome["alert"] else ""
        return "proved", f"{guarantee.value} certified{alert}"
    if kind == ALERTED:
        return "alert", "alert" if outcome["label"] == label else f"alert; {class_name(outcome['label'], names)}"
    if kind == WRONG:
        return "wrong", f"wrong: {class_name(outcome['label'], names)}"
    return "unproved", "right" if guarantee is Guarantee.NONE else "right, not certified"


def class_name(label: int, names: Sequence[str]) -> str:
    return names[label] if label < len(names) else f"class {label}"
