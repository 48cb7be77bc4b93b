"""Photos of a run by what became of them, and pictures of attacks beside the clean photo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

from PIL import Image

from certmask.certificate import Guarantee, class_name
from certmask.covers import Cover, cover_from
from certmask.data import Framing, Sample, load_dataset, pixel_digest, read_photo, to_array
from certmask.data.imagenet import imagenet_names, imagenet_synsets
from certmask.data.labels import IMAGENET_CLASSES
from certmask.errors import ResultsError
from certmask.report.drawing import RED, jury, patches_in, thumbnail, with_frames, with_jury
from certmask.report.markup import Markup, tag
from certmask.report.plots import BLUE
from certmask.report.reasons import attack_outcome, kept_pictures, level_masks, shortfall, weak_point
from certmask.report.report import Report
from certmask.results.file import Row, picture_folder
from certmask.results.run import Run
from certmask.threat import Size

CERTIFIED, ALERTED, WRONG, UNPROVED = "certified", "alert raised", "wrong, no alert", "right, not certified"
FATES = (CERTIFIED, ALERTED, WRONG, UNPROVED)
DRAWN = (
    "show the patch (black) at a place drawn from their name, and its jury: the masks (coloured) that hide it there."
)
FRAMED = (
    "Frames show where a proof is weakest (blue) or where it failed (red): all that a patch at that place may cover. "
    "Two frames are a pair of places, judged by votes that hide both."
)
UNKNOWN = (
    "For the others it is said why, as far as the results file knows; at which place they failed is not on record."
)
Verdict = tuple[str, str]
"""What a defence said: in a word for the colour, and in words."""


@dataclass(frozen=True)
class Album:
    """Photos by the names that results files call them, the classes' names, how many cards the page may show."""

    photos: Mapping[str, Sample] = field(default_factory=dict)
    names: Sequence[str] = ()
    cards: int = 12

    def class_name(self, label: int) -> str:
        return class_name(label, self.names)

    def title(self, row: Row) -> str:
        """The true class and the photo's name."""
        return f"{self.class_name(row['label'])} · {row['image']}"


def read_album(report: Report, source: str | None, cards: int) -> Album:
    """The photos at a source by name, if one is given; an error if no run knows any of them."""
    classes = {run.model.get("classes") for run in (*report.runs, *(attack.run for attack in report.attacks))}
    names = imagenet_names() if classes == {IMAGENET_CLASSES} else []
    if source is None:
        return Album({}, names, cards)
    aliases: Sequence[Sequence[str]] | None = None
    if names:
        aliases = list(zip(imagenet_synsets(), names, strict=True))
    elif Path(source).is_file() and ".tar" not in source:
        aliases = [()] * max((c for c in classes if isinstance(c, int)), default=0)
    samples = {sample.name: sample for sample in load_dataset(source, aliases, 1.0).samples}
    if not any(row["image"] in samples for run in report.runs for row in run.rows):
        raise ResultsError(f"expected photos of these runs, got none of their names in {source}")
    return Album(samples, names, cards)


@dataclass(frozen=True)
class Exhibition:
    """Cards with a word about them; ``run`` is the results file that they come from."""

    run: Run
    words: str
    cards: Sequence[Markup]


def exhibitions(report: Report, album: Album) -> list[Exhibition]:
    """Cards of attacks, then of photos, never more than the album allows; attacks, being few, choose first."""
    known = [run for run in report.runs if any(row["image"] in album.photos for row in run.rows)]
    sources: list[Callable[[int], Exhibition]] = [
        *(partial(attack_exhibition, attack.run, known, album) for attack in report.attacks),
        *(partial(photo_exhibition, run, album) for run in known),
    ]
    found: list[Exhibition] = []
    left = album.cards
    for place, exhibition_of in enumerate(sources):
        found.append(exhibition_of(left // (len(sources) - place)))
        left -= len(found[-1].cards)
    return found


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


def photo_exhibition(run: Run, album: Album, count: int) -> Exhibition:
    """Photos of a run, what every defence said and, where one did not certify, why."""
    cards = []
    picks = picked(run, count)
    for row, defence, _ in picks:
        photo, outcome = seen_photo(run, row, album), row["defences"][defence]
        proved, about = bool(outcome.get("certified")), shortfall(run, row, defence, album.class_name)
        if outcome.get("weakest"):
            photo = _with_weakest(photo, outcome["weakest"], _box(run, defence, row), proved)
            about = weak_point(outcome["weakest"], proved, level_masks(run.cover(defence, row))) if proved else about
        elif proved:
            photo, about = _with_patch(photo, _cover(run.cover(defence, row)), row["image"])
        said = {s: verdict(run.guarantee(s), row["defences"][s], row["label"], album) for s in run.defences}
        tone, words = said[defence]
        cards.append(_card(album.title(row), {"": photo}, (tone, f"{defence}: {words}"), about, said))
    return Exhibition(run, _photo_words(run, picks), cards)


def _photo_words(run: Run, picks: Sequence[tuple[Row, str, str]]) -> str:
    """What the cards of a run show; a test that proves nothing is not called a certificate."""
    framed = [bool(row["defences"][defence].get("weakest")) for row, defence, _ in picks]
    words = [FRAMED] if any(framed) else []
    kinds = {run.guarantee(defence) for (_, defence, _), known in zip(picks, framed, strict=True) if not known}
    if any(kind.proved for kind in kinds):
        words.append(f"Certified photos {DRAWN} The proof holds for every other place, too. {UNKNOWN}")
    elif Guarantee.PUBLISHED in kinds:
        words.append(f"Photos that pass the published test {DRAWN} {UNKNOWN}")
    return " ".join(words)


def _with_weakest(photo: Image.Image, weakest: Row, patch: Size, proved: bool) -> Image.Image:
    """A photo with frames where its proof is weakest, or where it failed."""
    sizes = weakest.get("sizes", [patch] * len(weakest["places"]))
    frames = [patches_in(place, size) for place, size in zip(weakest["places"], sizes, strict=True)]
    return with_frames(photo, frames, BLUE if proved else RED)


def _box(run: Run, defence: str, row: Row) -> Size:
    """The size of the patch that a photo meets, or of the first of many shapes."""
    return run.met(defence, row).boxes_on(run.image(defence))[0]


def _with_patch(photo: Image.Image, cover: Cover | None, name: str) -> tuple[Image.Image, str]:
    """A certified photo with a patch at the place that its name draws, and its jury; nothing without masks to draw."""
    if cover is None:
        return photo, "no masks are on record that could be drawn"
    place = drawn_place(name, cover)
    members, (rows, columns) = len(jury(cover, place)), cover.patch.positions(cover.image)
    masks = "the mask that hides it" if members == 1 else f"its jury of {members} masks"
    return with_jury(photo, cover, place), f"drawn: one of the patch's {rows * columns:,} places and {masks}"


def drawn_place(name: str, cover: Cover) -> Size:
    """A place of the patch, drawn from a photo's name: differing over photos, the same for one."""
    rows, columns = cover.patch.positions(cover.image)
    number = int.from_bytes(sha256(name.encode()).digest()[:8], "big") % (rows * columns)
    return divmod(number, columns)


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
    lacks = {Guarantee.NONE: "right", Guarantee.PUBLISHED: "right, fails its test"}
    return "unproved", lacks.get(guarantee, "right, not certified")


def attack_exhibition(attack: Run, runs: Sequence[Run], album: Album, count: int) -> Exhibition:
    """At most ``count`` attacked pictures that were kept, taking turns over defences; what is not shown is told."""
    kept = [row for row in attack.rows if isinstance(row.get("picture"), str)]
    there = [row for row in kept if picture_path(attack, row).is_file()]
    shown = _turns(there)[:count]
    cards = [_attack_card(attack, row, _clean_photo(attack, row, runs, album), album) for row in shown]
    missing, folder = len(kept) - len(there), picture_folder(attack.path).name
    words = kept_pictures(len(attack.rows), len(kept), missing, len(cards), folder)
    return Exhibition(attack, words, cards)


def _turns(attempts: Sequence[Row]) -> list[Row]:
    """One attempt per image and defence, from each defence in turn."""
    queues: dict[str, dict[str, Row]] = {}
    for row in attempts:
        queues.setdefault(row["defence"], {}).setdefault(row["image"], row)
    return [row for turn in zip_longest(*(queue.values() for queue in queues.values())) for row in turn if row]


def picture_path(attack: Run, row: Row) -> Path:
    """Where the picture of an attempt should lie; an error if its name leads out of its folder."""
    folder, name = picture_folder(attack.path), str(row["picture"])
    if Path(name).name != name:
        raise ResultsError(f"expected a picture inside {folder.name}, got {name!r}")
    return folder / name


def saved_picture(attack: Run, row: Row) -> Image.Image:
    """The picture of an attempt; an error if it is not the one that was judged."""
    picture = read_photo(picture_path(attack, row))
    if pixel_digest(to_array(picture)) != row.get("picture_sha256"):
        raise ResultsError(f"expected the picture {row['picture']} as it was judged, got one with other pixels")
    return picture


def _clean_photo(attack: Run, row: Row, runs: Sequence[Run], album: Album) -> Image.Image | None:
    """The certified photo that was attacked; None where its run or its photo is not at hand."""
    certified, name = attack.header.get("certified", {}).get("digest"), row["image"]
    found = ((run, clean) for run in runs if run.digest == certified for clean in run.rows if clean["image"] == name)
    run, clean = next(found, (None, None))
    return seen_photo(run, clean, album) if run and clean and name in album.photos else None


def _attack_card(attack: Run, row: Row, clean: Image.Image | None, album: Album) -> Markup:
    picture, defence = saved_picture(attack, row), row["defence"]
    frames = [patches_in((top, top + 1, left, left + 1), size) for (top, left), size in attack.patches(row)]
    framed = with_frames(picture, frames, joined=False) if frames else picture
    pictures = {"clean": clean, "attacked": framed} if clean else {"attacked": framed}
    said = f"answers {album.class_name(row['answer'])}{', with an alert' if row['alert'] else ''}"
    tone = "wrong" if row["broken"] else "alert" if row["alert"] else "unproved"
    heading, about = attack_outcome(attack.guarantee(defence), row["broken"])
    return _card(album.title(row), pictures, (tone, f"{defence}: {heading}"), about, {defence: (tone, said)})


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
