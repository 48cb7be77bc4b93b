"""The gauntlet does not trust the geometry: it notices a sabotaged engine, and finds nothing in an honest one."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_network
from test_attacks import COVERS, smooth_images
from torch import Tensor
from unsound import BareGate

from certmask.attacks import AdaptiveAttack, Descent, Harm, Job, Surrogate, defence_judge, worst_case
from certmask.attacks.attempts import (
    PICKED,
    PLACES,
    SEARCHED,
    WEAKEST,
    Budget,
    Prospect,
    pick_corner,
    place_for,
    planned,
)
from certmask.attacks.gauntlet import Gauntlet
from certmask.attacks.goals import HIDDEN, TURN, TURN_ALL, WIN_DUELS, Juries, Places, masked_views
from certmask.attacks.target import Target
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.covers import Cover, spread_cover, zoom_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.errors import AttackError, BrokenCertificateError, ResultsError
from certmask.results.columns import attack_figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Rule, Undefended
from certmask.rules.tournament import double_masking
from certmask.threat import Patch
from certmask.votes import Votes
from certmask.zoo import class_aliases, framing_of, load_classifier

ROOT = Path(__file__).resolve().parent.parent
sabotage: Any = importlib.import_module("sabotage")
broken: Any = importlib.import_module("benchmarks.sabotage")
SINGLE = spread_cover(24, Patch(6, 6), 12)
ATTEMPTS = 60
"""Within so many attempts a sabotaged engine is noticed."""


def shortened(marks: Tensor, pixels: int) -> Tensor:
    """Masks along one axis, ``[masks, length]``, each piece without its last pixels."""
    for _ in range(pixels):
        marks = marks & torch.nn.functional.pad(marks[:, 1:], (0, 1))
    return marks


def engine_with(cover: Cover, short: int) -> Engine:
    """An engine that paints masks so many pixels short at the bottom and on the right."""
    engine = Engine(Classifier(tiny_network(seed=1), 24, batch=16, precision="fp32"), [cover])
    masks = engine.forward.masks
    masks.rows, masks.columns = shortened(masks.rows, short), shortened(masks.columns, short)
    return engine


def certified(engine: Engine, defence: MaskedDefence, count: int) -> tuple[Tensor, Tensor]:
    """Images and labels that this defence, sabotaged or not, has certified."""
    images = smooth_images(60)
    labels = engine.classifier(images).argmax(dim=1)
    found = {f.number: f.value[0].certified for f in examine(engine, images, labels.tolist(), [defence])}
    holds = torch.tensor([bool(found[number]) for number in range(len(images))])
    assert holds.sum() >= count
    return images[holds][:count], labels[holds][:count]


def broken_attempts(engine: Engine, defence: MaskedDefence) -> list[str]:
    """The places of those attempts that broke a certificate, as the default budget picks places for images."""
    each, juries = Budget().locations - 1, Juries(defence.cover)
    images, labels = certified(engine, defence, ATTEMPTS // each)
    numbers = [number for number in range(len(images)) for _ in range(each)]
    prospects = [Prospect(str(number), 0) for number in range(len(images))]
    attempts = list(planned(defence.name, prospects, [TURN_ALL], Budget(locations=each + 1)))
    places = [attempt.place for attempt in attempts if not attempt.searched]
    chance = np.random.default_rng(0)
    corners = torch.from_numpy(np.stack([pick_corner(place, juries, chance) for place in places]))
    attack = AdaptiveAttack(Surrogate(engine.classifier, engine=engine), defence, Descent(steps=30), views=8)
    job = Job(images[numbers], labels[numbers], defence.cover.patch, corners)
    judged = zip(places, attack(job, defence_judge(engine, defence)).decisions, job.labels.tolist(), strict=True)
    return [place for place, decision, label in judged if defence.rule.guarantee.broken_by(decision, label)]


@pytest.mark.parametrize(("rule", "short"), [(JuryDetection(), 2), (PatchCleanser(), 1)], ids=str)
def test_masks_painted_short_are_noticed(rule: Rule, short: int) -> None:
    """The same attempts break nothing where masks are painted as they should be."""
    defence = MaskedDefence(SINGLE, rule, "defence")
    assert {"flush", "beyond"} & set(broken_attempts(engine_with(SINGLE, short), defence))
    assert broken_attempts(engine_with(SINGLE, 0), defence) == []


def test_a_dissenter_who_skips_a_duel_is_noticed_in_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Double masking that leaves out the duel of masks 2 and 5 lets 2 win with a patch that only 5 hides."""
    faulty = broken.skipped(double_masking, lambda pairs, _: (np.sort(pairs) == (2, 5)).all(axis=1))
    certain, count = torch.eye(5)[1], len(SINGLE)
    votes = Votes.from_table(SINGLE, certain.expand(count, -1), certain.expand(count, count, -1))
    assert PatchCleanser().certify(votes, 1).holds
    (district,) = (n for n, jury in enumerate(SINGLE.districts.all_juries) if tuple(jury) == (5,))
    assert worst_case(votes, PatchCleanser(), 1, district, plays=1).harm is Harm.UNCHANGED
    monkeypatch.setattr("certmask.rules.patchcleanser.double_masking", faulty)
    assert worst_case(votes, PatchCleanser(), 1, district, plays=1).harm is Harm.WRONG


# ------------------------------------------------------------------------------------------------- levels, real photos

ZOOM = zoom_cover(32, Patch(8, 8), (2, 3))
ZOOMED = MaskedDefence(ZOOM, JuryRecovery(thresholds=0.5, claim_thresholds=0.5, margin=1e-4), "zoom")


@pytest.fixture(scope="module")
def small() -> Classifier:
    """In small batches: few passes are asked at once, and every batch is padded."""
    return load_classifier("resnet26-cifar10", device="cpu", precision="fp32", batch=4)


@pytest.fixture(scope="module")
def cifar(small: Classifier) -> Dataset:
    return load_dataset("demo-cifar10", class_aliases(small), framing_of("resnet26-cifar10"))


@pytest.fixture(scope="module")
def zoomed(small: Classifier, cifar: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that certifies some photos with zoom and leaves others."""
    run = tmp_path_factory.mktemp("zoom") / "run.jsonl"
    certify_run(Engine(small, [ZOOM]), cifar, [ZOOMED], run)
    return run


def test_a_gate_that_reads_the_bare_picture_is_noticed_and_zoom_is_not_broken(
    small: Classifier, cifar: Dataset, zoomed: Path
) -> None:
    """On photos that all three answer rightly and both rules certify, though the coarse level alone does not."""
    gate, coarse = MaskedDefence(ZOOM, BareGate(), "gate"), MaskedDefence(ZOOM.levels[0], JuryRecovery(), "coarse")
    bare, engine = MaskedDefence(ZOOM, Undefended(), "undefended"), Engine(small, [ZOOM, ZOOM.levels[0]])
    images, labels = torch.stack(list(cifar.tensors((32, 32)))), torch.tensor([s.label for s in cifar.samples])
    proved = {row["image"] for row in read_run(zoomed).rows if row["defences"]["zoom"]["certified"]}
    numbers = [number for number, sample in enumerate(cifar.samples) if sample.name in proved]
    found = examine(engine, images[numbers], labels[numbers].tolist(), [gate, coarse])
    held = {numbers[one.number]: [bool(outcome.certified) for outcome in one.value] for one in found}
    chosen = [number for number in numbers if held[number] == [True, False]]
    assert len(chosen) >= 4
    lost = {}
    for defence in (ZOOMED, gate, bare):
        attack = AdaptiveAttack(Surrogate(small, engine=engine), defence, Descent(steps=20), views=6)
        attacked = attack(Job(images[chosen], labels[chosen], ZOOM.patch), defence_judge(engine, defence))
        judged = zip(attacked.decisions, labels[chosen].tolist(), strict=True)
        lost[defence.name] = sum(defence.guarantee.broken_by(decision, label) for decision, label in judged)
    assert lost["zoom"] == 0
    assert lost["gate"] >= 1
    assert lost["undefended"] >= len(chosen) / 2


def test_what_is_not_certified_is_attacked_apart(small: Classifier, zoomed: Path, tmp_path: Path) -> None:
    """Every last resort on the same photos, at the same places; no such attempt counts as a broken certificate."""
    target = Target(zoomed, "demo-cifar10", tmp_path / "attack.jsonl", small)
    attempts = target.uncertified(Budget(2, 3, 1, 4, 4)).attack()
    attacked = {row["image"] for row in attempts.rows}
    clean = [(row["defences"]["zoom"], row["label"]) for row in read_run(zoomed).rows if row["image"] in attacked]
    assert [(outcome["label"] == label, outcome["certified"]) for outcome, label in clean] == [(True, False)] * 2
    lines = attack_figures(attempts)
    assert [line.defence for line in lines] == ["zoom, last resort bare", "zoom, last resort majority"]
    assert [(line.attempts, line.images, line.broken, line.certified) for line in lines] == [(6, 2, None, False)] * 2
    assert {(row["certified"], row["broken"]) for row in attempts.rows} == {(False, False)}
    told = [
        sorted((row["image"], row["place"], row["goal"]) for row in attempts.rows if row["defence"] == line.defence)
        for line in lines
    ]
    assert told[0] == told[1]
    assert {row["place"] for row in attempts.rows} >= {SEARCHED, WEAKEST}
    fell = [number for number, row in enumerate(attempts.rows, start=1) if row["fell"]]
    assert fell
    target.check_proofs(attempts)
    again = target.replay(fell[0])
    again.check_proof()
    assert again.sentence.endswith("changed, and never certified")
    assert not again.broken
    with pytest.raises(AttackError, match="answered rightly and not certified, got none"):
        Target(_without_doubt(zoomed, tmp_path), "demo-cifar10", tmp_path / "none.jsonl", small).uncertified(Budget())


def _without_doubt(run: Path, folder: Path) -> Path:
    """The same run with certified photos only."""
    header, *rows = run.read_text().splitlines()
    kept = [row for row in rows if json.loads(row)["defences"]["zoom"]["certified"]]
    (folder / "proved.jsonl").write_text("\n".join([header, *kept]) + "\n")
    return folder / "proved.jsonl"


def test_an_attack_that_is_out_of_time_goes_on_later(small: Classifier, zoomed: Path, tmp_path: Path) -> None:
    """The first group is always made; the rest is left for the next time."""
    gauntlet = Target(zoomed, "demo-cifar10", tmp_path / "attack.jsonl", small).gauntlet(Budget(1, 6, 1, 1, 1))
    assert len(gauntlet.attack(seconds=0).rows) == 4
    assert len(gauntlet.attack().rows) == 6


# ------------------------------------------------------------------------------------- what the gauntlet looks through


def test_masks_that_leak_are_seen_before_the_first_attempt() -> None:
    """Black and white pictures through every mask: one pixel short is enough, and an honest engine passes."""
    defence = MaskedDefence(SINGLE, JuryDetection(), "defence")
    for short in (0, 1):
        engine = engine_with(SINGLE, short)
        gauntlet: Any = SimpleNamespace(defences=[defence], surrogate=Surrogate(engine.classifier, engine=engine))
        if short:
            with pytest.raises(BrokenCertificateError, match="to hide what it covers, got one that shows part"):
                Gauntlet.check_painting(gauntlet)
        else:
            Gauntlet.check_painting(gauntlet)


@pytest.mark.parametrize("cover", COVERS, ids=str)
@pytest.mark.parametrize("short", [0, 1, 3])
def test_a_searched_place_is_one_that_leaks_most(cover: Cover, short: int) -> None:
    """Against every place there is, each looked at through every mask; an honest engine leaks nowhere."""
    engine, juries = engine_with(cover, short), Juries(cover)
    surrogate = Surrogate(engine.classifier, engine=engine)
    corners = np.stack(np.meshgrid(*map(np.arange, cover.patch.positions(cover.image)), indexing="ij"), -1).reshape(
        -1, 2
    )
    covered = juries.members(corners)
    share = surrogate.leaks(cover, corners, covered).sum(axis=1) / covered.sum(axis=1)
    expected = corners[(share == share.max()) & (share > 0)]
    assert np.array_equal(surrogate.leaking_corners(cover), expected)
    assert bool(len(expected)) == bool(short)


@pytest.mark.parametrize("cover", COVERS, ids=str)
@pytest.mark.parametrize("short", [0, 1, 3])
def test_leaks_are_what_the_engine_shows(cover: Cover, short: int) -> None:
    """By painting a patch on noise and comparing, mask by mask and corner by corner."""
    engine, juries, chance = engine_with(cover, short), Juries(cover), np.random.default_rng(0)
    corners = np.stack([pick_corner(place, juries, chance) for place in PICKED for _ in range(4)])
    covered = juries.members(corners)
    leaks = Surrogate(engine.classifier, engine=engine).leaks(cover, corners, covered)
    noise, (height, width) = torch.rand(1, 3, 24, 24), cover.patch.size
    for (top, left), row in zip(corners.tolist(), leaks, strict=True):
        patched = noise.clone()
        patched[:, :, top : top + height, left : left + width] = torch.rand(1, 3, height, width)
        for mask, number in enumerate(engine.forward.masks.index(cover).tolist()):
            sets = torch.tensor([[number]])
            differs = not torch.equal(engine.forward.shown(noise, sets), engine.forward.shown(patched, sets))
            assert row[mask] == (differs and cover.masks[mask].covers((top, left), cover.patch, cover.image))
    assert leaks.any() == (short > 0)


def test_a_leaking_jury_is_looked_through_in_every_draw() -> None:
    juries, corners = Juries(SINGLE), np.array([[0, 0], [6, 6]])
    covered = juries.members(corners)
    leaking = covered & np.array([[True], [False]])
    places = Places(juries, corners, leaking)
    wishes = TURN_ALL.wish(places, np.random.default_rng(0))
    assert (wishes[leaking] == TURN).all()
    assert (wishes[covered & ~leaking] == HIDDEN).all()
    defence, numbers = MaskedDefence(SINGLE, PatchCleanser()), np.arange(len(SINGLE))
    views = masked_views(defence, places, numbers, wishes, [WIN_DUELS] * 2, 6, torch.device("cpu"))
    for seed in range(10):
        pairs, wanted, _ = views.draw(torch.Generator().manual_seed(seed))
        own = torch.from_numpy(leaking[0])[pairs[0]]
        assert own[:3].any(dim=1).all()
        assert (wanted[0] == TURN).all()
        assert (wanted[1] != HIDDEN).all()


# --------------------------------------------------------------------------------------------------------- the places


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_flush_and_beyond_follow_from_rectangles(cover: Cover) -> None:
    """Every edge of a mask has its turn, at the seams of wrapped masks too."""
    juries, chance = Juries(cover), np.random.default_rng(0)
    last = np.array(cover.patch.positions(cover.image)) - 1
    near = {edge for mask in cover.masks for edge, _ in mask.rows(cover.image)}
    far = {edge - cover.patch.height for mask in cover.masks for _, edge in mask.rows(cover.image)}
    found = {place: np.stack([pick_corner(place, juries, chance) for _ in range(800)]) for place in ("flush", "beyond")}
    flush = {row for row in near | far if 0 <= row <= last[0]}
    beyond = {row - 1 for row in near} | {row + 1 for row in far}
    assert set(found["flush"][:, 0].tolist()) >= flush
    assert set(found["beyond"][:, 0].tolist()) >= {row for row in beyond if 0 <= row <= last[0]}
    assert juries.members(found["flush"]).any(axis=1).mean() > 0.5


def test_every_kind_of_place_is_taken_within_two_images() -> None:
    locations = Budget().locations
    taken = [[place_for(image, location, locations) for location in range(locations)] for image in range(4)]
    assert {places[0] for places in taken} == {SEARCHED}
    assert {*taken[0], *taken[1]} == set(PLACES)
    assert taken[0][1:4] == ["flush", "beyond", "weakest"]


def test_the_weakest_place_is_where_the_proof_is() -> None:
    """Every location of every box has its turn, and no other; an image without one is attacked elsewhere."""
    boxes, juries, chance = ((2, 4, 5, 6), (9, 10, 0, 2)), Juries(SINGLE), np.random.default_rng(0)
    corners = {tuple(pick_corner(WEAKEST, juries, chance, boxes).tolist()) for _ in range(60)}
    assert corners == {(2, 5), (3, 5), (9, 0), (9, 1)}
    told, untold = Prospect("a", 1, boxes), Prospect("b", 1)
    places = [[attempt.place for attempt in planned("x", [one], [TURN_ALL], Budget())] for one in (told, untold)]
    assert places[0][3] == WEAKEST
    assert places[1] == [SEARCHED, *(place for place in PLACES[1:6] if place != WEAKEST)]


# ---------------------------------------------------------------------------------------------- the table of sabotage


def test_the_table_of_sabotage_says_how_long_it_took(tmp_path: Path) -> None:
    """The median where all seeds noticed; else how many did, or how many attempts were not enough."""
    found: dict[str, list[tuple[int, int | None]]] = {
        "soon": [(50, 3), (50, 9), (50, 4)],
        "rarely": [(100, None), (100, 60), (80, None)],
        "never": [(100, None), (90, None)],
        "nothing": [(0, None)],
    }
    model = {"name": "net", "precision": "fp32", "device": "a CPU"}
    header = {"certmask_results": 2, "kind": "sabotage", "model": model, "data": {"images": 7}, "defences": {"A": {}},
              "budget": {"steps": 5, "views": 6}}  # fmt: skip
    rows = [
        {"way": "pixels", "fault": fault, "defence": "A", "seed": seed, "certified": attempts, "attempts": attempts,
         "first": first}
        for fault, outcomes in found.items() for seed, (attempts, first) in enumerate(outcomes)
    ]  # fmt: skip
    path = tmp_path / "sabotage.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *rows]))
    assert sabotage.sabotage_table(path).splitlines() == [
        "net, fp32 on a CPU, 7 photos, 3 seeds; attempts of 5 steps with 6 masked views each.",
        "",
        "| fault | looked for in | A |",
        "| --- | --- | ---: |",
        "| soon | pixels | 4 |",
        "| rarely | pixels | 60 (1 of 3 seeds) |",
        "| never | pixels | not in 90 |",
        "| nothing | pixels | – |",
    ]
    path.write_text(json.dumps({**header, "kind": "attack"}) + "\n")
    with pytest.raises(ResultsError, match=r"expected what benchmarks/sabotage\.py has written"):
        sabotage.sabotage_table(path)
