"""Photos of a run by what became of them, and pictures of attacks beside the clean photo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from PIL import Image

from certmask.certificate import Guarantee
from certmask.covers import Cover, cover_from
from certmask.data import load_dataset
from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.data.labels import IMAGENET_CLASSES
from certmask.errors import ResultsError
from certmask.report.report import Report
from certmask.report.thumbnails import Photos, jury, saved_picture, seen_photo, thumbnail, with_frame, with_jury
from certmask.results.file import Row
from certmask.results.run import Run

CERTIFIED, ALERTED, WRONG, UNPROVED = "certified", "alert raised", "wrong, no alert", "right, not certified"
FATES = (CERTIFIED, ALERTED, WRONG, UNPROVED)


@dataclass(frozen=True)
class Album:
    """Photos for the gallery, the classes' names, and how many cards the page may show."""

    photos: Photos = field(default_factory=dict)
    names: Sequence[str] = ()
    cards: int = 12


@dataclass(frozen=True)
class Card:
    """One exhibit: what it shows (and in which colour), captioned pictures, title, verdicts, what is drawn."""

    heading: str
    tone: str
    pictures: tuple[tuple[str, str], ...]
    title: str
    verdicts: tuple[tuple[str, str, str], ...]
    drawn: str = ""


def read_album(report: Report, source: str | None, cards: int) -> Album:
    """The photos at a source by name; an error if no run knows any of them."""
    if source is None:
        return Album(cards=cards)
    classes = {run.model.get("classes") for run in report.runs}
    names = imagenet_names() if classes == {IMAGENET_CLASSES} else []
    aliases: Sequence[Sequence[str]] | None = None
    if names:
        aliases = list(zip(imagenet_synsets(), names, strict=True))
    elif Path(source).is_file() and ".tar" not in source:
        aliases = [()] * max((c for c in classes if isinstance(c, int)), default=0)
    samples = {sample.name: sample for sample in load_dataset(source, aliases, 1.0).samples}
    if not any(row["image"] in samples for run in report.runs for row in run.rows):
        raise ResultsError(f"expected photos of these runs, got none of their names in {source}")
    return Album(samples, names, cards)


def exhibitions(report: Report, album: Album) -> list[tuple[str, list[Card]]]:
    """Cards of photos, then of attacks, never more than the album allows; attacks, being few, choose first."""
    known = [run for run in report.runs if any(row["image"] in album.photos for row in run.rows)]
    sources: list[tuple[str, Callable[[int], list[Card]]]] = [
        *((f"Attacked pictures: {a.run.name}", partial(attack_cards, a.run, report.runs, album))
          for a in report.attacks),
        *((f"Photos: {run.name}", partial(photo_cards, run, album)) for run in known),
    ]  # fmt: skip
    left = album.cards
    found = []
    for place, (title, cards_of) in enumerate(sources):
        cards = cards_of(left // (len(sources) - place))
        left -= len(cards)
        found.append((title, cards))
    return [*found[len(report.attacks) :], *found[: len(report.attacks)]]


def fate(outcome: Row, label: int) -> str:
    """What became of one image under one defence."""
    if outcome.get("certified"):
        return CERTIFIED
    if outcome["alert"]:
        return ALERTED
    return UNPROVED if outcome["label"] == label else WRONG


def showpieces(run: Run) -> list[str]:
    """The defences whose cases are shown: of each proved guarantee the one that certifies most, else the published."""
    best: list[str] = []
    for kind in (Guarantee.RECOVERY, Guarantee.DETECTION, Guarantee.PUBLISHED):
        rivals = [defence for defence in run.defences if run.guarantee(defence) is kind]
        if rivals and (kind is not Guarantee.PUBLISHED or not best):
            best.append(max(rivals, key=lambda s: sum(row["defences"][s]["certified"] for row in run.rows)))
    return best or list(run.defences)[:1]


def picked(run: Run, count: int) -> list[tuple[Row, str, str]]:
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


def photo_cards(run: Run, album: Album, count: int) -> list[Card]:
    """Photos of a run with the jury of the middle drawn on them, and what every defence said."""
    shown = picked(run, count)
    covers = {defence: _cover(run.cover(defence)) for defence in dict.fromkeys(defence for _, defence, _ in shown)}
    cards = []
    for row, defence, _ in shown:
        photo, cover = seen_photo(run, row, album.photos), covers[defence]
        picture = photo if cover is None else with_jury(photo, cover)
        said = {s: verdict(run.guarantee(s), row["defences"][s], row["label"], album.names) for s in run.defences}
        tone, words = said[defence]
        drawn = _drawn(cover, masked=run.cover(defence) is not None)
        verdicts = tuple((s, *found) for s, found in said.items())
        cards.append(
            Card(f"{defence}: {words}", tone, ((thumbnail(picture), ""),), _title(row, album), verdicts, drawn)
        )
    return cards


def _cover(description: Row | None) -> Cover | None:
    """The cover that a header describes; None where it cannot be rebuilt to the last mask."""
    try:
        return cover_from(description) if description else None
    except ResultsError:
        return None


def _drawn(cover: Cover | None, *, masked: bool) -> str:
    if cover is None:
        return "masks are on record only as a hash: none is drawn" if masked else ""
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


def _title(row: Row, album: Album) -> str:
    return f"{class_name(row['label'], album.names)} · {row['image']}"


def attack_cards(attack: Run, runs: Sequence[Run], album: Album, count: int) -> list[Card]:
    """At most ``count`` attacked pictures that were kept, taking turns over defences."""
    cards: list[Card] = []
    for row in _turns(attack):
        if len(cards) == count:
            break
        picture = saved_picture(attack, row)
        if picture is not None:
            cards.append(_attack_card(attack, row, picture, _clean_photo(attack, row, runs, album.photos), album))
    return cards


def _turns(attack: Run) -> list[Row]:
    """Attempts whose picture was kept, a new image where there is one, from each defence in turn."""
    queues = []
    for defence in attack.defences:
        kept = [row for row in attack.rows if row["defence"] == defence and row.get("picture")]
        first = {row["image"]: row for row in reversed(kept)}
        queues.append([row for row in kept if first[row["image"]] is row])
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _clean_photo(attack: Run, row: Row, runs: Sequence[Run], photos: Photos) -> Image.Image | None:
    """The certified photo that was attacked; None where its run or its photo is not at hand."""
    certified = attack.header.get("certified", {}).get("digest")
    for run in runs:
        if run.digest == certified and row["image"] in photos:
            found = [clean for clean in run.rows if clean["image"] == row["image"]]
            return seen_photo(run, found[0], photos) if found else None
    return None


def _attack_card(attack: Run, row: Row, picture: Image.Image, clean: Image.Image | None, album: Album) -> Card:
    defence, corner, changed = row["defence"], row.get("corner"), row["answer"] != row["label"]
    framed = with_frame(picture, (corner[0], corner[1]), attack.threat(defence).boxes[0]) if corner else picture
    pictures = [(thumbnail(clean), "clean")] if clean else []
    pictures.append((thumbnail(framed), "attacked"))
    said = f"answers {class_name(row['answer'], album.names)}{', with an alert' if row['alert'] else ''}"
    tone = "wrong" if changed and not row["alert"] else "alert" if row["alert"] else "unproved"
    promise = attack.guarantee(defence)
    what = {Guarantee.NONE: "no certificate", Guarantee.PUBLISHED: "passed the published test"}
    drawn = what.get(promise, f"was certified ({promise.value})")
    heading = f"{defence}: label {'changed' if changed else 'kept'}"
    return Card(heading, tone, tuple(pictures), _title(row, album), ((defence, tone, said),), drawn)
