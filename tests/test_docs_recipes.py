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


def certified(found: dict[str, Any], defence: str, more: float = 0.0) -> dict[str, bool]:
    """And where the least lead exceeds the margin of its run by so much more."""
    own = {name: row["defences"][defence] for name, row in found.items()}
    return {name: bool(one["certified"]) and not (more and one["weakest"]["lead"] <= more) for name, one in own.items()}


def margin_of(path: Path, defence: str = "patchcleanser") -> float:
    header = json.loads(gzip.decompress(path.read_bytes()).decode().splitlines()[0])
    return float(header["defences"][defence]["rule"]["margin"])


def alike(paths: list[Path]) -> list[dict[str, bool]]:
    """Two-mask certificates of two networks, both held to the larger of their margins."""
    most = max(map(margin_of, paths))
    return [certified(rows(path), "patchcleanser", most - margin_of(path)) for path in paths]


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
    before = RECIPES / f"{data}-choose-{first}.jsonl.gz"
    for line in table:
        link = re.search(r"recipes/(\S+)\.json", line[0])
        assert link is not None
        found, card = rows(RECIPES / f"{link[1]}.jsonl.gz"), json.loads((RECIPES / f"{link[1]}.json").read_text())
        assert [int(line[1]), int(line[2])] == [card["recipe"]["epochs"], sum(map(passes, networks(card)))]
        own = [percent([*certified(found, name).values()]) for name in ("jury-detection", "patchcleanser", "zoom")]
        assert line[3:7] == [clean(found), *own]
        if not link[1].endswith(f"choose-{first}"):
            first_one, this_one = alike([before, RECIPES / f"{link[1]}.jsonl.gz"])
            check_change(first_one, this_one, line[7:])


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


def split(before: dict[str, bool], after: dict[str, bool]) -> float:
    """The chance of a change as large as this one."""
    gained, lost = (sum(b[i] and not a[i] for i in after) for a, b in ((before, after), (after, before)))
    return chance(gained, lost)


def test_the_same_epochs_without_a_teacher() -> None:
    """On the photos that all were examined on, which nobody picked: the first ones. All have the same margin."""
    names = ("recipes/cifar10-wide-fifth", "recipes/cifar10-wide-untaught", "models/cifar10-resnet26w3-pairs")
    paths = [ROOT / f"results/{name}.jsonl.gz" for name in names]
    assert {*map(margin_of, paths)} == {0.0}
    before, without, taught = (certified(rows(path), "patchcleanser") for path in paths)
    assert {*without} == {f"test_batch/{number}" for number in range(len(without))}
    before, taught = ({name: own[name] for name in without} for own in (before, taught))
    assert told("untaught photos") == f"{len(without):,}"
    shares = [percent([*own.values()]) for own in (before, without, taught)]
    assert [told(f"untaught{word}") for word in (" before", "", " beside")] == shares
    assert float(told("untaught alone chance")) == pytest.approx(split(before, without), rel=0.06)
    assert float(told("untaught chance")) == pytest.approx(split(without, taught), rel=0.06)


@pytest.mark.parametrize("name", ["greedy-384", "worst-384"])
def test_networks_on_the_enlarged_picture(name: str) -> None:
    """Beside the same recipe on the plain picture, and beside masks on the tokens of the network that is shipped."""
    shipped = ROOT / "results/reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz"
    plain, own = (RECIPES / f"imagenette-kept-reported-{step}.jsonl.gz" for step in ("greedy", name))
    grid = "PatchCleanser 6×6 on a token grid"
    assert margin_of(shipped, grid) == margin_of(plain) == margin_of(own) == 0.0
    cards = [json.loads((RECIPES / f"imagenette-kept-choose-{step}.json").read_text()) for step in ("greedy", name)]
    assert cards[1]["architecture"] == "deit_tiny_enlarged_384"
    assert abs(passes(cards[0]) - passes(cards[1])) <= 3
    recipes = [{"one_cover": False, "taught": 0.0, **card["recipe"]} for card in cards]
    assert (recipes[0] == recipes[1]) == (name == "greedy-384")
    two, zoom = (certified(rows(own), word) for word in ("patchcleanser", "zoom"))
    there, before = certified(rows(shipped), grid), certified(rows(plain), "patchcleanser")
    assert [told("plain two"), told("plain grid")] == [percent([*one.values()]) for one in (before, there)]
    assert [told(f"{name} two"), told(f"{name} zoom")] == [percent([*one.values()]) for one in (two, zoom)]
    assert float(told(f"{name} two chance")) == pytest.approx(split(before, two), rel=0.06)
    assert float(told(f"{name} grid chance")) == pytest.approx(split(there, two), rel=0.06)
    assert float(told(f"{name} zoom chance")) == pytest.approx(split(certified(rows(shipped), "zoom"), zoom), rel=0.06)


@pytest.mark.parametrize("seed", ["", " again"])
def test_the_worst_of_four_pairs_beside_greedy_cutout(seed: str) -> None:
    """As many passes each, from the same start, on photos that neither learnt, held to the same margin."""
    end = seed.replace(" ", "-")
    names = [f"cifar10-on-choose-{name}{end}" for name in ("greedy", "worst")]
    cards = [json.loads((RECIPES / f"{name}.json").read_text()) for name in names]
    paths = [RECIPES / f"{name}.jsonl.gz" for name in names]
    assert passes(cards[0]) == passes(cards[1])
    assert [card["recipe"]["epochs"] for card in cards] == [3, 9]
    assert cards[0]["data"]["start"] == cards[1]["data"]["start"]
    assert cards[0]["recipe"]["seed"] == cards[1]["recipe"]["seed"] == bool(seed)
    proved = alike(paths)
    assert [told(f"greedy{seed}"), told(f"worst{seed}")] == [percent([*own.values()]) for own in proved]
    assert [told(f"greedy{seed} clean"), told(f"worst{seed} clean")] == [clean(rows(path)) for path in paths]
    assert float(told(f"worst{seed} chance")) == pytest.approx(split(*proved), rel=0.06)
    zoomed = [certified(rows(path), "zoom") for path in paths]
    assert float(told(f"worst{seed} zoom chance")) == pytest.approx(split(*zoomed), rel=0.06)


def test_another_patch_than_the_one_that_was_learnt() -> None:
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
    assert float(told("other chance")) == pytest.approx(split(two, zoom), rel=0.06)
