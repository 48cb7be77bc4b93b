"""Attacks one certified photo and draws what came of it: attack.jpg and attack-fails.jpg in docs/images.

Run by hand: `python docs/draw_attack.py` (some minutes on two CPU cores; the seed is fixed). The photo is
scikit-image's coffee cup (CC0), the model EfficientNet-Lite0, the patch 32×32. The patch is made against the published
rule; the very same picture is then shown to the other defences. It is an error if one of them does not certify the
clean photo. The record is results/attacks/picture.json; `--caption` prints the captions of both pictures from it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import skimage
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch as Swatch
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from certmask.attacks import AdaptiveAttack, Descent, Job, Surrogate, defence_judge
from certmask.attacks.goals import SPARE_ONE
from certmask.certificate import Decision
from certmask.covers import default_cover, offset_cover, spread_cover
from certmask.data import pixel_digest, read_photo, to_tensor
from certmask.defences import MaskedDefence, examine, explain
from certmask.engine import Engine
from certmask.errors import CertmaskError
from certmask.report.drawing import paint_votes, save_figure
from certmask.report.map import Map, paint_map
from certmask.report.plots import GREEN, ORANGE, PALETTE
from certmask.results.file import provenance
from certmask.rules import JuryDetection, JuryRecovery, Published, Undefended
from certmask.threat import Patch, Size
from certmask.zoo import DEFAULT_MODEL, framing_of, load_classifier

ROOT = Path(__file__).resolve().parent.parent
PICTURE, FAILURE = ROOT / "docs/images/attack.jpg", ROOT / "docs/images/attack-fails.jpg"
RECORD = ROOT / "results/attacks/picture.json"
PHOTO = "coffee.png"
PATCH = Patch(32, 32)
SEED, STEPS, VIEWS = 0, 50, 10
UNDEFENDED, PUBLISHED, DETECTION, RECOVERY, ZOOM = (
    "undefended", "published rule k=6", "jury detection k=4", "jury recovery k=1", "zoom",
)  # fmt: skip


def attacked_defences() -> list[MaskedDefence]:
    """The defences that the picture is shown to."""
    single, fourfold = spread_cover(224, PATCH, 80), spread_cover(224, PATCH, 80, 2)
    return [
        MaskedDefence(single, Undefended(), UNDEFENDED),
        MaskedDefence(offset_cover(224, PATCH, 96, (2, 3)), Published(), PUBLISHED),
        MaskedDefence(fourfold, JuryDetection(), DETECTION),
        MaskedDefence(single, JuryRecovery("all", last_resort="majority"), RECOVERY),
        MaskedDefence(default_cover(224, PATCH), JuryRecovery(), ZOOM),
    ]


def attack_photo() -> tuple[dict[str, Any], Tensor, Tensor, Engine, dict[str, MaskedDefence]]:
    """Certify, attack, and judge the attacked picture with every defence; an error if something was not certified."""
    torch.set_num_threads(2)
    classifier = load_classifier(DEFAULT_MODEL, device="cpu", precision="fp32", batch=8, backend="torch")
    defences = {defence.name: defence for defence in attacked_defences()}
    engine = Engine(classifier, [s.cover for s in defences.values()])
    photo = read_photo(Path(skimage.__file__).parent / "data" / PHOTO)
    clean = to_tensor(framing_of(DEFAULT_MODEL)(photo, classifier.size))
    label = classifier(clean[None]).argmax(dim=1)
    surrogate = Surrogate(classifier, [defences[PUBLISHED].cover])
    attack = AdaptiveAttack(surrogate, defences[PUBLISHED], Descent(steps=STEPS), goals=(SPARE_ONE,), views=VIEWS)
    job = Job(clean[None], label, PATCH)
    attacked = attack(job, defence_judge(engine, defences[PUBLISHED]), seed=SEED)
    picture, (top, left) = attacked.pictures[0], attacked.corners[0].tolist()
    record = {
        "photo": f"scikit-image {PHOTO} (CC0)",
        "photo_sha256": pixel_digest(clean),
        "picture_sha256": pixel_digest(picture),
        "label": int(label),
        "class": classifier.class_names[int(label)],
        "patch": list(PATCH.size),
        "corner": [top, left],
        "attack": {"against": PUBLISHED, "goal": SPARE_ONE.name, "steps": STEPS, "views": VIEWS, "seed": SEED},
        "defences": _judged(engine, clean, picture, (top, left), int(label), defences),
        "model": engine.describe(),
        "versions": provenance(),
    }
    return record, clean, picture, engine, defences


def _judged(
    engine: Engine, clean: Tensor, picture: Tensor, corner: Size, label: int, defences: dict[str, MaskedDefence]
) -> dict[str, dict[str, Any]]:
    """Per defence: its certificate of the clean photo, its answers before and after, and whether the promise held."""
    names = engine.classifier.class_names
    (before,) = examine(engine, clean[None], [label], list(defences.values()))
    (after,) = examine(engine, picture[None], None, list(defences.values()))
    judged = {}
    for (name, defence), then, now in zip(defences.items(), before.value, after.value, strict=True):
        if then.certified is False or not then.right(label):
            raise CertmaskError(f"expected a photo that {name} certifies, got {PHOTO}")
        judged[name] = {
            **defence.describe(),
            "certified": then.certified,
            "passes": now.passes,
            "sentence": defence.certificate(label, bool(then.certified)).sentence,
            "clean_answer": names[then.label],
            "answer": names[now.label],
            "alert": now.alert,
            "broken": defence.guarantee.broken_by(Decision(now.label, now.alert), label),
            **({} if defence.cover.levels else _masks(engine, defence, picture, corner) if then.certified else {}),
        }
    return judged


def _masks(engine: Engine, defence: MaskedDefence, picture: Tensor, corner: Size) -> dict[str, Any]:
    """How many masks hide the patch, and how many vote for each class."""
    (explanation,) = explain(engine, picture[None], defence)
    counts = Counter(label for label, _ in explanation.votes)
    return {
        "jury": sum(mask.covers(corner, PATCH, defence.image) for mask in defence.cover.masks),
        "votes": {engine.classifier.class_names[label]: number for label, number in counts.most_common()},
    }


def draw(
    record: dict[str, Any], clean: Tensor, picture: Tensor, engine: Engine, defences: dict[str, MaskedDefence]
) -> None:
    """Clean, patched, and the votes of two defences about the patched picture, with their answers."""
    figure = Figure(figsize=(11.7, 4.1), layout="constrained")
    panels = figure.subplots(1, 4)
    votes = {name: explain(engine, picture[None], defences[name])[0].votes for name in (PUBLISHED, RECOVERY)}
    counts = Counter(label for part in votes.values() for label, _ in part)
    colour = {record["label"]: PALETTE[0]}
    for label, _ in counts.most_common():
        colour.setdefault(label, PALETTE[min(len(colour), len(PALETTE) - 1)])
    for axes, image in zip(panels, (clean, picture), strict=False):
        axes.imshow(_photo(image))
        axes.set_axis_off()
    for axes, (name, cast) in zip(panels[2:], votes.items(), strict=True):
        paint_votes(axes, _photo(picture), defences[name].cover, cast, colour)
    for axes in panels[1:]:
        _outline(axes, record)
    for axes, words in zip(panels, _words(record), strict=True):
        axes.set_title(words[0], fontsize=11, color=words[1], fontweight="bold")
        axes.text(0.5, -0.03, words[2], transform=axes.transAxes, ha="center", va="top", fontsize=9, linespacing=1.35)
    names = engine.classifier.class_names
    shown = [Swatch(color=colour[label], label=f"votes {names[label]}") for label in colour if counts[label]]
    figure.legend(handles=shown, loc="outside lower center", ncols=len(shown), frameon=False, fontsize=10)
    save_figure(figure, PICTURE)


def draw_failure(
    record: dict[str, Any], clean: Tensor, picture: Tensor, engine: Engine, defences: dict[str, MaskedDefence]
) -> None:
    """Clean, patched, and what zoom makes of the patched picture: how sure each place is of the answer."""
    figure = Figure(figsize=(9.6, 3.95), layout="constrained")
    panels = figure.subplots(1, 3)
    bare, zoom = record["defences"][UNDEFENDED], record["defences"][ZOOM]
    (seen,) = explain(engine, picture[None], defences[ZOOM])
    for axes, image in zip(panels, (clean, picture), strict=False):
        axes.imshow(_photo(image))
    paint_map(panels[2], _photo(picture), Map(defences[ZOOM].cover, seen.places, seen.label))
    size = "×".join(map(str, record["patch"]))
    words = (
        (f"{record['class']}", "black", f"zoom proves: with any {size}\npatch, anywhere"),
        (f"network alone: {bare['answer']}", ORANGE, "a patch made by gradient\ndescent, framed in red"),
        (f"zoom: {zoom['answer']}", GREEN, "as proved"),
    )
    for axes, (title, colour, below) in zip(panels, words, strict=True):
        axes.set(xlim=(0, 224), ylim=(224, 0))
        axes.set_axis_off()
        axes.set_title(title, fontsize=13, color=colour, fontweight="bold")
        axes.text(0.5, -0.03, below, transform=axes.transAxes, ha="center", va="top", fontsize=9.5, linespacing=1.35)
    for axes in panels[1:]:
        _outline(axes, record)
    save_figure(figure, FAILURE)


def _words(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Title, its colour and two lines of text for each panel."""
    bare, published, detection, recovery = (
        record["defences"][name] for name in (UNDEFENDED, PUBLISHED, DETECTION, RECOVERY)
    )
    good, bad, plain = GREEN, ORANGE, "black"
    warned = "raises its alert" if detection["alert"] else f"answers {detection['answer']}"
    return [
        (f"clean: {record['class']}", plain, "passes the published test;\ncertified by both jury rules"),
        (f"patched: {bare['answer']}", bad, "the undefended model's answer;\nthe patch is outlined"),
        (f"published rule: {published['answer']}", bad, f"{_count(published)}:\nwrong, without an alert"),
        (f"jury recovery: {recovery['answer']}", good, f"{_count(recovery)};\njury detection {warned}"),
    ]


def _count(defence: dict[str, Any]) -> str:
    """The largest group of votes in words."""
    name, most = next(iter(defence["votes"].items()))
    return f"{most} of {sum(defence['votes'].values())} masks vote {name}"


def _outline(axes: Axes, record: dict[str, Any]) -> None:
    (top, left), (height, width) = record["corner"], record["patch"]
    axes.add_patch(Rectangle((left - 1, top - 1), width + 1, height + 1, fill=False, edgecolor="red", lw=1.8))


def _photo(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())


def caption(record: dict[str, Any]) -> str:
    """The picture in words, from the record alone; docs/guarantees.md quotes it."""
    published, detection, recovery = (record["defences"][name] for name in (PUBLISHED, DETECTION, RECOVERY))
    (top, left), (height, width) = record["corner"], record["patch"]
    warned = "raises its alert" if detection["alert"] else f"answers *{detection['answer']}*"
    hiding = "one that hides the patch wins" if recovery["jury"] == 1 else f"{recovery['jury']} that hide the patch win"
    return (
        f"The clean picture ({record['class']}) passes the published test and is certified by both jury rules. With a "
        f"{height}×{width} patch at row {top}, column {left}, {_count(published)} and the published rule follows them. "
        f"Under jury recovery {_count(recovery)} as well, but the {hiding} every duel: it answers "
        f"*{recovery['answer']}*. Jury detection {warned}."
    )


def failure_caption(record: dict[str, Any]) -> str:
    """The picture of the attack that fails in words; README.md quotes it."""
    bare, published, zoom = (record["defences"][name] for name in (UNDEFENDED, PUBLISHED, ZOOM))
    size, fooled = "×".join(map(str, record["patch"])), f"*{bare['answer']}*"
    followed = "the same" if published["answer"] == bare["answer"] else f"*{published['answer']}*"
    return (
        f"A {size} patch makes the network alone say {fooled}, and CertMask's published rule says {followed}. Zoom, "
        f"certmask's default, says *{zoom['answer']}*, and had proved of this photo that it would, for every {size} "
        f"patch. Blue: hide this place, and the network says {record['class']}; orange: hide it, and the patch still "
        "fools it."
    )


def main() -> None:
    """Attack and draw; with ``--caption`` only say what the record says."""
    if sys.argv[1:] == ["--caption"]:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        sys.stdout.write(f"{caption(record)}\n{failure_caption(record)}\n")
        return
    record, clean, picture, engine, defences = attack_photo()
    if not record["defences"][PUBLISHED]["broken"]:
        raise CertmaskError("expected an attack that fools the published rule, got one that fails: try another seed")
    RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draw(record, clean, picture, engine, defences)
    draw_failure(record, clean, picture, engine, defences)
    sys.stdout.write(f"{caption(record)}\n{failure_caption(record)}\n")


if __name__ == "__main__":
    main()
