"""Photos of a run by what became of them, and pictures of attacks beside the clean photo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path

from PIL import Image

from certmask.certificate import Guarantee
from certmask.covers import Cover, cover_from
from certmask.data import Framing, Sample, load_dataset, pixel_digest, read_photo, to_array
from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.data.labels import IMAGENET_CLASSES
from certmask.errors import ResultsError
from certmask.report.drawing import jury, thumbnail, with_frame, with_jury
from certmask.report.markup import Markup, tag
from certmask.report.report import Report
from certmask.results.file import Row, picture_folder
from certmask.results.run import Run

CERTIFIED, ALERTED, WRONG, UNPROVED = "certified", "alert raised", "wrong, no alert", "right, not certified"
FATES = (CERTIFIED, ALERTED, WRONG, UNPROVED)
Verdict = tuple[str, str]
"""What a defence said: in a word for the colour, and in words."""


@dataclass(frozen=True)
class Album:
    """Photos by the names that results files call them, the classes' names, how many cards the page may show."""

    photos: Mapping[str, Sample] = field(default_factory=dict)
    names: Sequence[str] = ()
    cards: int = 12

    def class_name(self, label: int) -> str:
        return self.names[label] if label < len(self.names) else f"class {label}"

    def title(self, row: Row) -> str:
        """The true class and the photo's name."""
        return f"{self.class_name(row['label'])} · {row['image']}"


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


def exhibitions(report: Report, album: Album) -> list[tuple[str, list[Markup]]]:
    """Cards of photos, then of attacks, never more than the album allows; attacks, being few, choose first."""
    known = [run for run in report.runs if any(row["image"] in album.photos for row in run.rows)]
    sources: list[tuple[str, Callable[[int], list[Markup]]]] = [
        *((f"Attacked pictures: {a.run.name}", partial(attack_cards, a.run, known, album)) for a in report.attacks),
        *((f"Photos: {run.name}", partial(photo_cards, run, album)) for run in known),
    ]
    found, left = [], album.cards
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


def photo_cards(run: Run, album: Album, count: int) -> list[Markup]:
    """Photos of a run with the jury of the middle drawn on them, and what every defence said."""
    covers = {defence: _cover(run.cover(defence)) for defence in showpieces(run)}
    cards = []
    for row, defence, _ in picked(run, count):
        photo, cover = seen_photo(run, row, album), covers[defence]
        drawn = "masks are on record only as a hash: none is drawn" if run.cover(defence) else ""
        if cover:
            photo, members = with_jury(photo, cover), len(jury(cover))
            masks = "the mask that covers it" if members == 1 else f"its jury of {members} masks"
            drawn = f"drawn: a patch and {masks}"
        said = {s: verdict(run.guarantee(s), row["defences"][s], row["label"], album) for s in run.defences}
        tone, words = said[defence]
        cards.append(_card(album.title(row), {"": photo}, (tone, f"{defence}: {words}"), drawn, said))
    return cards


def _cover(description: Row | None) -> Cover | None:
    """The cover that a header describes; None where it cannot be rebuilt to the last mask."""
    try:
        return cover_from(description) if description else None
    except ResultsError:
        return None


def seen_photo(run: Run, row: Row, album: Album) -> Image.Image:
    """The model's input of one row; an error if the photo is missing or not the one that was certified."""
    name = row["image"]
    if name not in album.photos:
        raise ResultsError(f"expected the photo {name} of {run.name}, got none of that name")
    height, width = run.model["size"]
    photo = Framing.described(run.data)(album.photos[name].photo(), (height, width))
    if pixel_digest(to_array(photo)) != row.get("input_sha256"):
        raise ResultsError(f"expected the photo {name} as {run.name} certified it, got one with other pixels")
    return photo


def verdict(guarantee: Guarantee, outcome: Row, label: int, album: Album) -> Verdict:
    """What a defence said about a clean image."""
    kind, answer = fate(outcome, label), album.class_name(outcome["label"])
    if kind == CERTIFIED:
        if guarantee is Guarantee.PUBLISHED:
            return "unproved", "passes the published test"
        alert = ", alert raised" if outcome["alert"] else ""
        return "proved", f"{guarantee.value} certified{alert}"
    if kind == ALERTED:
        return "alert", "alert" if outcome["label"] == label else f"alert; {answer}"
    if kind == WRONG:
        return "wrong", f"wrong: {answer}"
    return "unproved", "right" if guarantee is Guarantee.NONE else "right, not certified"


def attack_cards(attack: Run, runs: Sequence[Run], album: Album, count: int) -> list[Markup]:
    """At most ``count`` attacked pictures that were kept, taking turns over defences."""
    pictures = ((row, saved_picture(attack, row)) for row in _turns(attack))
    kept = islice(((row, picture) for row, picture in pictures if picture), count)
    return [_attack_card(attack, row, picture, _clean_photo(attack, row, runs, album), album) for row, picture in kept]


def _turns(attack: Run) -> list[Row]:
    """Attempts whose picture was kept, one per image, from each defence in turn."""
    queues: dict[str, dict[str, Row]] = {defence: {} for defence in attack.defences}
    for row in attack.rows:
        if isinstance(row.get("picture"), str):
            queues[row["defence"]].setdefault(row["image"], row)
    return [row for turn in zip_longest(*(queue.values() for queue in queues.values())) for row in turn if row]


def saved_picture(attack: Run, row: Row) -> Image.Image | None:
    """The picture of an attempt, None where it is not at hand; an error if it is not the one that was judged."""
    folder, name = picture_folder(attack.path), row["picture"]
    if Path(name).name != name:
        raise ResultsError(f"expected a picture inside {folder.name}, got {name!r}")
    if not (folder / name).is_file():
        return None
    picture = read_photo(folder / name)
    if pixel_digest(to_array(picture)) != row.get("picture_sha256"):
        raise ResultsError(f"expected the picture {name} as it was judged, got one with other pixels")
    return picture


def _clean_photo(attack: Run, row: Row, runs: Sequence[Run], album: Album) -> Image.Image | None:
    """The certified photo that was attacked; None where its run or its photo is not at hand."""
    certified, name = attack.header.get("certified", {}).get("digest"), row["image"]
    found = ((run, clean) for run in runs if run.digest == certified for clean in run.rows if clean["image"] == name)
    run, clean = next(found, (None, None))
    return seen_photo(run, clean, album) if run and clean and name in album.photos else None


def _attack_card(attack: Run, row: Row, picture: Image.Image, clean: Image.Image | None, album: Album) -> Markup:
    defence, corner, changed, alert = row["defence"], row.get("corner"), row["answer"] != row["label"], row["alert"]
    framed = with_frame(picture, (corner[0], corner[1]), attack.threat(defence).boxes[0]) if corner else picture
    pictures = {"clean": clean, "attacked": framed} if clean else {"attacked": framed}
    said = f"answers {album.class_name(row['answer'])}{', with an alert' if alert else ''}"
    tone = "alert" if alert else "wrong" if changed else "unproved"
    promise = attack.guarantee(defence)
    what = {Guarantee.NONE: "no certificate", Guarantee.PUBLISHED: "passed the published test"}
    about = what.get(promise, f"was certified ({promise.value})")
    heading = f"{defence}: label {'changed' if changed else 'kept'}"
    return _card(album.title(row), pictures, (tone, heading), about, {defence: (tone, said)})


def _card(
    title: str, pictures: Mapping[str, Image.Image], shown: Verdict, about: str, verdicts: Mapping[str, Verdict]
) -> Markup:
    """One exhibit: pictures by their captions, what they show, and what each defence said."""
    figures = []
    for caption, picture in pictures.items():
        image = tag("img", src=thumbnail(picture), alt=f"{title} {caption}".strip())
        figures.append(tag("figure", image, *([tag("figcaption", caption)] if caption else [])))
    (tone, heading), note = shown, tag("div", about, class_="note")
    said = [tag("div", tag("dt", who), tag("dd", words, class_=kind)) for who, (kind, words) in verdicts.items()]
    text = tag("div", tag("div", heading, class_=tone), tag("b", title), note, tag("dl", *said), class_="text")
    return tag("div", tag("div", *figures, class_="pictures"), text, class_="card")
