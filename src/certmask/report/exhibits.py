"""Pictures of attacks: what was shown to a defence, beside the clean photo."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from certmask.attacks.pictures import picture_folder
from certmask.certificate import Guarantee
from certmask.report.gallery import Card, class_name
from certmask.report.run_files import RunFile
from certmask.report.thumbnails import Photos, saved_picture, seen_photo, thumbnail, with_frame
from certmask.results.file import Row

WORKED, FAILED = "label changed", "label kept"


def attack_cards(
    attack: RunFile, runs: Sequence[RunFile], photos: Photos, names: Sequence[str], count: int
) -> list[Card]:
    """At most ``count`` attacked pictures that were kept, taking turns over defences."""
    cards: list[Card] = []
    for row in _turns(attack):
        if len(cards) == count:
            break
        picture = saved_picture(picture_folder(attack.path), row)
        if picture is not None:
            cards.append(_card(attack, row, picture, clean_photo(attack, row, runs, photos), names))
    return cards


def _turns(attack: RunFile) -> list[Row]:
    """Attempts whose picture was kept, a new image where there is one, from each defence in turn."""
    queues = []
    for defence in attack.defences:
        kept = [row for row in attack.rows if row["defence"] == defence and row.get("picture")]
        first = {row["image"]: row for row in reversed(kept)}
        queues.append([row for row in kept if first[row["image"]] is row])
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def clean_photo(attack: RunFile, row: Row, runs: Sequence[RunFile], photos: Photos) -> Image.Image | None:
    """The certified photo that was attacked; None where its run or its photo is not at hand."""
    certified = attack.header.get("certified", {}).get("digest")
    for run in runs:
        if run.digest == certified and row["image"] in photos:
            found = [clean for clean in run.rows if clean["image"] == row["image"]]
            return seen_photo(run, found[0], photos) if found else None
    return None


def _card(attack: RunFile, row: Row, picture: Image.Image, clean: Image.Image | None, names: Sequence[str]) -> Card:
    cover = attack.defences[row["defence"]]["cover"]
    corner = row.get("corner")
    framed = with_frame(picture, (corner[0], corner[1]), tuple(cover["patch"])) if corner else picture
    pictures = [(thumbnail(clean), "clean")] if clean else []
    pictures.append((thumbnail(framed), "attacked"))
    changed = row["answer"] != row["label"]
    alert = ", with an alert" if row["alert"] else ""
    said = f"answers {class_name(row['answer'], names)}{alert}"
    kind = "wrong" if changed and not row["alert"] else "alert" if row["alert"] else "unproved"
    promise = attack.guarantee(row["defence"])
    what = {Guarantee.NONE: "no certificate", Guarantee.PUBLISHED: "passed the published test"}
    drawn = what.get(promise, f"was certified ({promise.value})")
    title = f"{class_name(row['label'], names)} · {row['image']}"
    heading = f"{row['defence']}: {WORKED if changed else FAILED}"
    return Card(heading, kind, tuple(pictures), title, ((row["defence"], kind, said),), drawn)
