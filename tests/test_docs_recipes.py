"""Figures about recipes in docs/models.md, counted again from the rows, not by the code that wrote them."""

from __future__ import annotations

import gzip
import json
import re
from math import comb
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "results" / "recipes"
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def rows(path: Path) -> dict[str, Any]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return {row["image"]: row for row in map(json.loads, lines) if "image" in row}


def block(kind: str) -> list[list[str]]:
    text = re.search(rf"<!-- figures: {kind} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert text is not None
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text[1].strip().splitlines()[2:]]


def percent(found: list[bool]) -> str:
    return f"{1000 * sum(found) / len(found) / 10 + 1e-9:.1f}"


def certified(found: dict[str, Any], defence: str) -> dict[str, bool]:
    return {name: bool(row["defences"][defence]["certified"]) for name, row in found.items()}


def clean(found: dict[str, Any]) -> str:
    return percent([row["defences"]["undefended"]["label"] == row["label"] for row in found.values()])


def chance(gained: int, lost: int) -> float:
    """Both tails of a fair coin."""
    tosses, fewer = gained + lost, min(gained, lost)
    tail: float = sum(comb(tosses, n) for n in range(fewer + 1)) / 2.0**tosses
    return min(1.0, 2 * tail)


@pytest.mark.parametrize(
    ("data", "first"),
    [("imagenette", "greedy"), ("cifar10", "pairs"), ("cifar10-on", "greedy"), ("imagenette-kept", "greedy")],
)
def test_every_step(data: str, first: str) -> None:
    table = block(f"recipe-steps results/recipes/{data}")
    assert len(table) == len(list(RECIPES.glob(f"{data}-choose-*.json")))
    before = certified(rows(RECIPES / f"{data}-choose-{first}.jsonl.gz"), "patchcleanser")
    for line in table:
        link = re.search(r"recipes/(\S+)\.json", line[0])
        assert link is not None
        found, card = rows(RECIPES / f"{link[1]}.jsonl.gz"), json.loads((RECIPES / f"{link[1]}.json").read_text())
        assert [int(line[1]), int(line[2])] == [card["recipe"]["epochs"], sum(map(passes, networks(card)))]
        own = [percent([*certified(found, name).values()]) for name in ("jury-detection", "patchcleanser", "zoom")]
        assert line[3:7] == [clean(found), *own]
        if not link[1].endswith(f"choose-{first}"):
            check_change(before, certified(found, "patchcleanser"), line[7:])


def networks(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Whose weights the mean is of; the network itself, if it was trained."""
    start: str = card["data"]["start"]
    if not start.startswith("mean of "):
        return [card]
    every = [json.loads(path.read_text()) for path in RECIPES.glob("*.json")]
    return [one for one in every if one["sha256"][:16] in start.removeprefix("mean of ").split(", ")]


def passes(card: dict[str, Any]) -> int:
    """For every photo: squares or pairs that are tried, views that are learnt, answers asked of itself or teachers."""
    recipe = card["recipe"]
    views, shown = recipe["views"], recipe["views"] + recipe["whole"]
    tried = {"greedy": 2 * 9}.get(recipe["cutout"], views * recipe["tries"] if recipe["tries"] > 1 else 0)
    asked = 1 if recipe["agreement"] and recipe["average"] else 0
    return int(recipe["epochs"] * (tried + 3 * shown + asked + shown * len(card["data"].get("teachers", []))))


def check_change(before: dict[str, bool], after: dict[str, bool], told: list[str]) -> None:
    assert before.keys() == after.keys()
    gained = sum(after[name] and not before[name] for name in after)
    lost = sum(before[name] and not after[name] for name in after)
    assert told[:2] == [str(gained), str(lost)]
    assert float(told[2]) == pytest.approx(chance(gained, lost), rel=0.06)


def test_networks_on_the_photos_of_figures() -> None:
    """And none of these photos is among those for choosing."""
    shipped, *others = block("recipes-reported results/recipes")
    there = rows(ROOT / "results/reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz")
    before = certified(there, "PatchCleanser 6×6")
    zoomed = percent([*certified(there, "zoom").values()])
    assert shipped[1:5] == ["210", clean(there), percent([*before.values()]), zoomed]
    paths = sorted(RECIPES.glob("imagenette-reported-*.jsonl.gz"))
    assert len(paths) == len(others) == 3
    chosen_on = {*rows(RECIPES / "imagenette-choose-greedy.jsonl.gz")}
    for path, line in zip(paths, others, strict=True):
        found = rows(path)
        assert not chosen_on & {*found}
        own = certified(found, "patchcleanser")
        assert line[2:5] == [clean(found), percent([*own.values()]), percent([*certified(found, "zoom").values()])]
        check_change(before, own, line[5:])


SHIPPED = {"patchcleanser": "PatchCleanser 6×6", "patchcleanser, token grid": "PatchCleanser 6×6 on a token grid"}


def test_networks_that_kept_their_last_layer() -> None:
    """With masks on tokens and with mirror views, on photos that nothing was chosen on."""
    shipped, *others = block("recipes-views results/recipes/imagenette-kept")
    there = rows(ROOT / "results/reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz")
    before = certified(there, "PatchCleanser 6×6")
    paths = sorted(RECIPES.glob("imagenette-kept-reported-*.jsonl.gz"))
    assert len(paths) == len(others) == 9
    chosen_on = {*rows(RECIPES / "imagenette-kept-choose-greedy.jsonl.gz")}
    for path, line in ((None, shipped), *zip(paths, others, strict=True)):
        found, names = (rows(path), {}) if path else (there, SHIPPED)
        assert not chosen_on & {*found}
        assert line[1] == ("plain and mirror" if path and "mirror" in path.name else "plain")
        quiet = percent([row["defences"]["zoom"]["label"] == row["label"] for row in found.values()])
        kinds = [names.get(name, name) for name in ("patchcleanser", "patchcleanser, token grid", "zoom")]
        asked = next(iter(found.values()))["defences"]
        assert ("patchcleanser, token grid" in asked) == (path is not None and "384" not in path.name)
        own = [percent([*certified(found, name).values()]) if name in asked else "–" for name in kinds]
        assert line[2:7] == [clean(found), quiet, *own]
        if path:
            check_change(before, certified(found, "patchcleanser"), line[7:])


def told(name: str) -> str:
    found = re.findall(rf"<!--=recipes {name}-->(.*?)<!--=-->", PAGE)
    assert len(found) == 1
    return str(found[0])


def test_figures_in_sentences() -> None:
    for name, network in (("wide", "recipes/cifar10-wide-fourth"), ("deit", "recipes/cifar10-deit-third")):
        mirrored = certified(rows(RECIPES / f"cifar10-{name}-mirror.jsonl.gz"), "patchcleanser")
        plain = certified(rows(ROOT / "results" / f"{network}.jsonl.gz"), "patchcleanser")
        assert told(f"{name} mirror") == percent([*mirrored.values()])
        assert told(f"{name} plain") == percent([plain[image] for image in mirrored])
    there = rows(ROOT / "results/reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz")
    soup = rows(RECIPES / "imagenette-kept-reported-soup.jsonl.gz")
    assert (told("clean shipped"), told("clean soup")) == (clean(there), clean(soup))
    right = [
        {i: row["defences"]["undefended"]["label"] == row["label"] for i, row in run.items()} for run in (there, soup)
    ]
    gained, lost = (sum(a[i] and not b[i] for i in a) for a, b in (right[::-1], right))
    assert float(told("clean chance")) == pytest.approx(chance(gained, lost), rel=0.06)
    best = certified(rows(RECIPES / "imagenette-kept-reported-soup-mirror.jsonl.gz"), "patchcleanser, token grid")
    assert told("best") == percent([*best.values()])


def test_what_the_teacher_is_worth() -> None:
    """The same network before and after, on all test photos, and never the photos that it learnt."""
    before, after = (
        rows(ROOT / "results" / f"{name}.jsonl.gz")
        for name in ("recipes/cifar10-wide-fifth", "models/cifar10-resnet26w3-pairs")
    )
    assert len(before) == len(after) == 10_000
    assert {name.split("/")[0] for name in after} == {"test_batch"}
    for name, defence in (("two", "patchcleanser"), ("zoom", "zoom")):
        own = [certified(found, defence) for found in (before, after)]
        assert [told(f"taught {name} before"), told(f"taught {name}")] == [percent([*o.values()]) for o in own]
    two = [certified(found, "patchcleanser") for found in (before, after)]
    check_change(two[0], two[1], [told(f"taught two {word}") for word in ("gained", "lost", "chance")])


def test_the_same_epochs_without_a_teacher() -> None:
    """On the photos that both were examined on, which nobody picked: the first ones."""
    without = certified(rows(RECIPES / "cifar10-wide-untaught.jsonl.gz"), "patchcleanser")
    taught = certified(rows(ROOT / "results/models/cifar10-resnet26w3-pairs.jsonl.gz"), "patchcleanser")
    assert {*without} == {f"test_batch/{number}" for number in range(len(without))}
    both = {name: taught[name] for name in without}
    shares = [f"{len(without):,}", percent([*without.values()]), percent([*both.values()])]
    assert [told("untaught photos"), told("untaught"), told("untaught beside")] == shares
    check_change(without, both, [told(f"untaught {word}") for word in ("gained", "lost", "chance")])


@pytest.mark.parametrize("name", ["greedy-384", "worst-384"])
def test_networks_on_the_enlarged_picture(name: str) -> None:
    """Beside the network that comes with certmask, which had as many passes in training."""
    there = rows(ROOT / "results/reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz")
    found = rows(RECIPES / f"imagenette-kept-reported-{name}.jsonl.gz")
    card = json.loads((RECIPES / f"imagenette-kept-choose-{name}.json").read_text())
    assert card["architecture"].endswith("_enlarged_384")
    assert passes(card) in (207, 210)
    for word, beside in (("patchcleanser", "PatchCleanser 6×6"), ("zoom", "zoom")):
        before, after = certified(there, beside), certified(found, word)
        assert told(f"{name} {word}") == percent([*after.values()])
        gained = sum(after[image] > before[image] for image in after)
        lost = sum(after[image] < before[image] for image in after)
        assert float(told(f"{name} {word} chance")) == pytest.approx(chance(gained, lost), rel=0.06)


@pytest.mark.parametrize("seed", ["", " again"])
def test_the_worst_of_four_pairs_beside_greedy_cutout(seed: str) -> None:
    """As many passes each, from the same start, on photos that neither learnt."""
    end = seed.replace(" ", "-")
    names = [f"cifar10-on-choose-{name}{end}" for name in ("greedy", "worst")]
    cards = [json.loads((RECIPES / f"{name}.json").read_text()) for name in names]
    greedy, worst = (rows(RECIPES / f"{name}.jsonl.gz") for name in names)
    assert passes(cards[0]) == passes(cards[1])
    assert cards[0]["data"]["start"] == cards[1]["data"]["start"]
    assert cards[0]["recipe"]["seed"] == cards[1]["recipe"]["seed"] == bool(seed)
    proved = [certified(found, "patchcleanser") for found in (greedy, worst)]
    assert [told(f"greedy{seed}"), told(f"worst{seed}")] == [percent([*own.values()]) for own in proved]
    assert [told(f"greedy{seed} clean"), told(f"worst{seed} clean")] == [clean(greedy), clean(worst)]
    gained = sum(proved[1][image] > proved[0][image] for image in worst)
    lost = sum(proved[1][image] < proved[0][image] for image in worst)
    assert float(told(f"worst{seed} chance")) == pytest.approx(chance(gained, lost), rel=0.06)


def test_masks_that_were_not_learnt() -> None:
    """Other photos than those of the card, against a smaller patch than the one that was learnt."""
    path = RECIPES / "cifar10-deit-at-32.jsonl.gz"
    card = json.loads((ROOT / "results/models/cifar10-deit_tiny-pairs.json").read_text())
    header, learnt = (
        json.loads(gzip.decompress(run.read_bytes()).decode().splitlines()[0])
        for run in (path, ROOT / "results/models/cifar10-deit_tiny-pairs.jsonl.gz")
    )
    assert header["model"]["weights_sha256"] == learnt["model"]["weights_sha256"]
    assert (header["defences"]["PatchCleanser 6×6"]["threat"]["height"], card["recipe"]["patch"]) == (32, 35)
    found, reported = rows(path), rows(ROOT / "results/models/cifar10-deit_tiny-pairs.jsonl.gz")
    assert not {row["input_sha256"] for row in found.values()} & {row["input_sha256"] for row in reported.values()}
    assert len(found) == 300
    two = certified(found, "PatchCleanser 6×6")
    zoom = certified(found, "zoom 2-3-6-12, 0.95,0.5,0.2 / 0.9,0.2,0.1")
    assert [told("other two"), told("other zoom")] == [percent([*own.values()]) for own in (two, zoom)]
    gained, lost = sum(zoom[i] > two[i] for i in two), sum(zoom[i] < two[i] for i in two)
    assert float(told("other chance")) == pytest.approx(chance(gained, lost), rel=0.06)
