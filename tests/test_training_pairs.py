"""Training on pairs of masks: what is hidden, searched, remembered, averaged and counted, against plain loops."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import certmask
from PIL import Image
from torch import Tensor, nn

from benchmarks.training_jobs import JOBS
from certmask.covers import patchcleanser_cover, zoom_cover
from certmask.data import class_folders, load_dataset
from certmask.errors import CertmaskError
from certmask.training import LessonsInMemory, Recipe, Trainer
from certmask.training.augmentation import random_colours
from certmask.training.pairs import MaskPairs, Recall, deployed_covers
from certmask.training.showing import Lesson, Losses, Showing
from certmask.zoo import build_model, load_checkpoint
from certmask.zoo.card import read_card

ROOT = Path(__file__).parent.parent
HOST = torch.device("cpu")
COVERS = [patchcleanser_cover(32, 5, 6), *zoom_cover(32, 5, (2, 3)).levels]


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_covers_are_those_that_certificates_look_through() -> None:
    """On a transformer's tokens where it has some; PatchCleanser's as published."""
    model = build_model("test_vit", 3, (160, 160))
    recipe = Recipe(cutout="pairs", patch=24, levels=(2, 3))
    found = deployed_covers(recipe, model, (160, 160))
    assert found == [patchcleanser_cover(160, 24, 6), *zoom_cover(160, 24, (2, 3), align=16).levels]
    assert deployed_covers(Recipe(cutout="pairs", patch=24), model, (160, 160)) == found[:1]


def test_pairs_are_of_one_cover_and_all_come() -> None:
    pairs = MaskPairs(COVERS, HOST)
    drawn = pairs.drawn(30_000, chance())
    own = [set(cover.tolist()) for cover in pairs.covers]
    assert all(any(set(pair) <= masks for masks in own) for pair in drawn.tolist())
    assert set(drawn.flatten().tolist()) == set(range(pairs.count))
    counts = Counter(next(n for n, masks in enumerate(own) if pair[0] in masks) for pair in drawn.tolist())
    assert all(abs(counts[n] - 10_000) < 500 for n in range(3))
    fine = Counter(tuple(sorted(pair)) for pair in drawn.tolist() if pair[0] in own[1])
    assert len(fine) == 10  # 4 masks: 6 pairs, and each mask alone


def test_what_a_pair_hides_pixel_by_pixel() -> None:
    pairs, images = MaskPairs(COVERS, HOST), torch.rand(40, 3, 32, 32, generator=chance())
    drawn, fill = pairs.drawn(40, chance(1)), torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)
    footprints = list(dict.fromkeys(mask.footprint((32, 32)) for cover in COVERS for mask in cover.masks))
    expected = images.clone()
    for image, numbers in zip(expected, drawn.tolist(), strict=True):
        for rows, columns in (footprints[number] for number in numbers):
            for top, bottom in rows:
                for left, right in columns:
                    image[:, top:bottom, left:right] = fill[0]
    assert torch.equal(pairs.hidden(images, drawn, fill), expected)


def shown(losses: Losses, **options: Any) -> Showing:
    recipe = Recipe(**{"cutout": "pairs", "patch": 5, "levels": (2, 3), **options})
    return Showing(recipe, nn.Identity(), (32, 32), 50, torch.zeros(1, 3, 1, 1), losses)


def much_hidden(tried: Tensor, _: Tensor) -> Tensor:
    """How much of white pictures is black, as their loss."""
    return 1 - tried.mean(dim=(1, 2, 3))


def white(count: int = 50, mirrored: bool = False) -> Lesson:
    numbers = torch.arange(count)
    return Lesson(torch.ones(count, 3, 32, 32), numbers % 3, numbers, torch.full((count,), mirrored))


@pytest.mark.parametrize("views", [1, 2])
def test_the_worst_of_the_tries_is_taken(views: int) -> None:
    """Judged by how much is hidden: as much as by the best of all tries, which are looked at once each."""
    asked = []

    def losses(tried: Tensor, labels: Tensor) -> Tensor:
        asked.append(len(tried))
        return much_hidden(tried, labels)

    own = shown(losses, tries=4, views=views)
    assert own.pairs is not None
    images, worst = own.occluded(white(), chance(3))
    assert asked == [4 * views * 50]
    tried = own.pairs.drawn(4 * views * 50, chance(3)).view(4, views * 50, 2)
    pictures = torch.ones(views * 50, 3, 32, 32)
    hidden = [much_hidden(own.pairs.hidden(pictures, one, own.fill), pictures) for one in tried]
    assert torch.equal(much_hidden(images, images), torch.stack(hidden).amax(dim=0))
    assert worst is not None
    assert torch.equal(own.pairs.hidden(pictures, worst, own.fill), images)


@pytest.mark.parametrize("views", [1, 2])
def test_tries_of_one_cover_leave_every_cover_its_turn(views: int) -> None:
    """The largest masks hide most: with tries of any cover they are nearly all that is learnt."""
    shares = []
    for one_cover in (False, True):
        own = shown(much_hidden, tries=8, views=views, one_cover=one_cover)
        assert own.pairs is not None
        covers = [set(masks.tolist()) for masks in own.pairs.covers]
        found = torch.cat(
            [pairs for seed in range(20) if (pairs := own.occluded(white(), chance(seed))[1]) is not None]
        )
        assert all(any({*pair} <= masks for masks in covers) for pair in found.tolist())
        turns = Counter(next(n for n, masks in enumerate(covers) if pair[0] in masks) for pair in found.tolist())
        shares.append([turns[n] / len(found) for n in range(3)])
    assert shares[0][1] > 0.85  # 2×2
    assert all(abs(share - 1 / 3) < 0.05 for share in shares[1])


def test_all_tries_of_a_view_are_of_one_cover() -> None:
    pairs = MaskPairs(COVERS, HOST)
    covers = [set(masks.tolist()) for masks in pairs.covers]
    for tries in pairs.drawn(200, chance(), 5).view(5, 200, 2).transpose(0, 1).flatten(1).tolist():
        assert any({*tries} <= masks for masks in covers)
    assert torch.equal(pairs.drawn(200, chance()), pairs.drawn(200, chance(), 1))


def test_tries_are_drawn_from_what_was_hard_and_remembered() -> None:
    """What was hard is tried oftener, and all that was tried is known afterwards, not only the worst of it."""
    own = shown(lambda tried, _: torch.zeros(len(tried)), tries=6, recall=2.0)
    assert own.recall is not None
    found = []
    for seed in range(30):
        own.recall.losses[7, [0, 5]] = 50.0
        found.append(own.occluded(white(), chance(seed))[1])
    hard = torch.stack([((pairs == 0) | (pairs == 5)).all(dim=1) for pairs in found if pairs is not None]).float()
    assert hard[:, 7].mean() > 0.15  # whenever it is the turn of their cover, one of three
    assert hard.mean() < 0.02
    fresh = shown(much_hidden, tries=6, recall=2.0)
    fresh.occluded(white(), chance())
    assert fresh.recall is not None
    assert ((fresh.recall.losses > 0).sum(dim=1) > 2).all()


def test_hard_masks_are_recalled_where_they_were_hard() -> None:
    pairs = MaskPairs(COVERS[:1], HOST)
    recall = Recall(pairs, 3, sharpness=2.0)
    hard = torch.tensor([[0, 7]])
    for _ in range(4):
        recall.remember(torch.tensor([1]), torch.tensor([False]), hard, torch.tensor([3.0]))
    plain, mirrored = torch.zeros(2000, dtype=torch.bool), torch.ones(2000, dtype=torch.bool)
    often = recall.drawn(torch.full((2000,), 1), plain, chance())
    seldom = recall.drawn(torch.full((2000,), 2), plain, chance())
    assert (
        abs((often == 0).any(dim=1).float().mean() - 0.918) < 0.03
    )  # drawn one after the other, by exp(sharpness · loss)
    assert (seldom == 0).any(dim=1).float().mean() < 0.1
    assert (often[:, 0] != often[:, 1]).all()
    turned = recall.drawn(torch.full((2000,), 1), mirrored, chance())
    assert torch.equal(turned, recall.mirror[often])


def test_a_mirrored_picture_is_remembered_on_the_photo_itself() -> None:
    pairs = MaskPairs(COVERS[1:2], HOST)
    recall = Recall(pairs, 1, sharpness=1.0)
    assert recall.mirror.tolist() == [1, 0, 3, 2]
    recall.remember(torch.tensor([0]), torch.tensor([True]), torch.tensor([[0, 3]]), torch.tensor([2.0]))
    assert recall.losses.tolist() == [[0.0, 1.0, 1.0, 0.0]]


def test_colours_stay_colours() -> None:
    images = torch.rand(20, 3, 8, 8, generator=chance())
    changed = random_colours(images, 0.4, chance(1))
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert not torch.equal(changed, images)
    torch.testing.assert_close(random_colours(images, 0.0, chance(1)), images)


class Counting(nn.Module):
    """A small network that counts the images it is asked about, those of a lesson three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        type(self).seen += len(images) * (3 if torch.is_grad_enabled() else 1)
        logits: Tensor = self.layer(images.mean(dim=(2, 3)))
        return logits

    seen = 0


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for label, colour in enumerate(((200, 0, 0), (0, 200, 0), (0, 0, 200))):
        (folder / str(label)).mkdir()
        for number in range(8):
            Image.new("RGB", (32, 32), tuple(min(c + 5 * number, 255) for c in colour)).save(
                folder / str(label) / f"{number}.png"
            )
    return folder


@pytest.fixture(scope="module")
def lessons(photos: Path) -> LessonsInMemory:
    names = [(name,) for name in class_folders(str(photos))]
    return LessonsInMemory(load_dataset(str(photos), names, 1.0), (32, 32), lambda _: None)


def trainer(model: nn.Module, lessons: LessonsInMemory, folder: Path, **options: Any) -> Trainer:
    recipe = Recipe(**{"epochs": 1, "batch": 8, "rate": 0.1, **options})
    grey = (0.5, 0.5, 0.5)
    return Trainer(model, lessons, recipe, folder, mean=grey, std=grey, device="cpu")


PAIRS: dict[str, Any] = {"cutout": "pairs", "patch": 5, "levels": (2, 3)}
EVERYTHING: dict[str, Any] = {**PAIRS, "views": 2, "whole": True, "agreement": 0.5, "average": 0.9}


@pytest.mark.parametrize(
    "options",
    [
        {"cutout": "none"}, {"cutout": "random"}, {"cutout": "greedy"}, {"cutout": "greedy", "average": 0.9}, PAIRS,
        {**PAIRS, "tries": 4}, {**PAIRS, "views": 3, "tries": 2}, {**PAIRS, "recall": 1.0}, EVERYTHING,
        {**PAIRS, "tries": 3, "recall": 1.0},
        {**PAIRS, "whole": True, "agreement": 1.0},
    ],
)  # fmt: skip
def test_a_recipe_counts_its_passes(options: dict[str, Any], lessons: LessonsInMemory, tmp_path: Path) -> None:
    """Forward passes of the network in one epoch, those with a backward pass threefold."""
    Counting.seen = 0
    own = trainer(Counting(), lessons, tmp_path, **options)
    own.train(None, lambda _: None)
    assert Counting.seen == own.recipe.passes * len(lessons.labels)


def test_targets_agree_with_the_answer_about_the_whole_picture(lessons: LessonsInMemory, tmp_path: Path) -> None:
    own = trainer(Counting(), lessons, tmp_path, **PAIRS, views=2, whole=True, agreement=0.25)
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 2])
    lesson = Lesson(images, labels, labels, torch.zeros(2, dtype=torch.bool))
    logits = torch.randn(6, 3, generator=chance())
    targets = own._agreed(lesson, logits, labels.repeat(3))
    hard = nn.functional.one_hot(labels, 3).float()
    assert torch.equal(targets[4:], hard)
    for view in (targets[:2], targets[2:4]):
        torch.testing.assert_close(view, 0.75 * hard + 0.25 * logits[4:].softmax(dim=1))


def test_the_average_of_the_weights_is_kept(lessons: LessonsInMemory, tmp_path: Path) -> None:
    """Three steps, averaged by hand; it answers in the end, and differs from the weights that were learnt last."""
    torch.manual_seed(0)
    own, seen = trainer(Counting(), lessons, tmp_path, cutout="none", average=0.75), []
    step = own.optimizer.step

    def watched(*_: Any) -> None:
        step()
        seen.append(own.model.state_dict()["layer.weight"].clone())

    own.optimizer.step = watched  # type: ignore[method-assign,assignment]
    own.train(None, lambda _: None)
    expected = seen[0]
    for weight in seen[1:]:
        expected = 0.75 * expected + 0.25 * weight
    assert len(seen) == 3
    torch.testing.assert_close(own.trained.state_dict()["layer.weight"], expected)
    assert not torch.allclose(own.model.state_dict()["layer.weight"], expected)


@pytest.mark.parametrize("more", [{**PAIRS, "recall": 1.0, "average": 0.9, "tries": 2}, EVERYTHING])
def test_resumed_with_all_that_is_remembered(more: dict[str, Any], lessons: LessonsInMemory, tmp_path: Path) -> None:
    """Two epochs at once, or one after the other by another trainer: the same weights, average and recall."""
    torch.manual_seed(0)
    start = Counting().state_dict()

    def fresh(folder: Path) -> Trainer:
        model = Counting()
        model.load_state_dict(start)
        return trainer(model, lessons, folder, **more, epochs=2)

    whole = fresh(tmp_path / "whole")
    whole.train(None, lambda _: None)

    class Stopped(Exception): ...

    def stop(_: dict[str, float]) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        fresh(tmp_path / "cut").train(None, stop)
    again = fresh(tmp_path / "cut")
    again.train(None, lambda _: None)
    for one, other in zip(whole.trained.state_dict().values(), again.trained.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    if whole.showing.recall is not None:
        assert again.showing.recall is not None
        assert torch.equal(whole.showing.recall.losses, again.showing.recall.losses)
        assert whole.showing.recall.losses.max() > 0


def test_through_the_command_line(photos: Path, tmp_path: Path) -> None:
    """The card tells the recipe, its passes, and what zoom certifies; the saved network is the average."""
    said = certmask("train", photos, "--validation", photos, "--model", "test_resnet", "--image", "32", "--batch", "8",
                    "--epochs", "2", "--patch", "5", "--images", "3", "--cutout", "pairs", "--levels", "2,3",
                    "--tries", "2", "--whole", "--average", "0.5", "--colour", "0.2", "--rate", "0.05",
                    "--out", tmp_path / "net")  # fmt: skip
    assert "certified recovery (zoom)" in said.stdout
    card = read_card(tmp_path / "net" / "model.safetensors")
    assert card.recipe["levels"] == [2, 3]
    assert (card.recipe["cutout"], card.recipe["patch"], card.recipe["tries"]) == ("pairs", [5, 5], 2)
    assert card.metrics["training_passes"] == 2 * 24 * (2 + 3 * 2)
    state = torch.load(tmp_path / "net" / "last.pt", weights_only=True)
    model, _ = load_checkpoint(tmp_path / "net" / "model.safetensors")
    kept = {key.removeprefix("module."): tensor for key, tensor in state["average"].items()}
    assert all(torch.equal(tensor, kept[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "options",
    [
        {"cutout": "pairs"}, {"patch": 5}, {**PAIRS, "loss": "provable"}, {**PAIRS, "views": 0}, {**PAIRS, "tries": 0},
        {**PAIRS, "recall": -1.0}, {**PAIRS, "agreement": 0.5},
        {**PAIRS, "whole": True, "agreement": 1.5}, {**PAIRS, "fill": "blue"}, {"average": 1.0}, {"colour": -0.1},
        {"tries": 2}, {"views": 2}, {"whole": True}, {"recall": 1.0}, {"levels": (2, 3)}, {"fill": "random"},
        {**PAIRS, "band": 3}, {**PAIRS, "one_cover": True}, {"one_cover": True},
        {**PAIRS, "tries": 2, "one_cover": True, "recall": 1.0},
    ],
)  # fmt: skip
def test_recipes_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(CertmaskError, match=r"expected .*got"):
        Recipe(**options)


@pytest.mark.parametrize(
    "wrong",
    ["--tries 2", "--cutout pairs --tries 0", "--cutout pairs --levels x", "--cutout pairs --fill blue", "--average 1",
     "--cutout pairs --patch 40", "--cutout pairs --one-cover"],
)  # fmt: skip
def test_wrong_options(wrong: str, photos: Path, tmp_path: Path) -> None:
    refused = certmask("train", photos, "--validation", photos, "--model", "test_resnet", "--image", "32",
                       "--out", tmp_path / "net", *wrong.split(), code=2)  # fmt: skip
    assert "Traceback" not in refused.stderr


NAMES = {
    "cifar10-resnet26w3-pairs": "cifar-wide-taught", "cifar10-wide-third": "cifar-wide",
    "cifar10-wide-fourth": "cifar-wide-on", "cifar10-wide-fifth": "cifar-wide-turns",
    "cifar10-wide-first": "cifar-wide-first", "cifar10-wide-second": "cifar-wide-second",
    "cifar10-deit_tiny-pairs": "cifar-deit-taught", "cifar10-deit-second": "cifar-deit-pairs",
    "cifar10-deit-fourth": "cifar-deit-long", "cifar10-on-first": "choose-cifar-random-first",
    "cifar10-deit-third": "cifar-deit-on", "imagenette-kept-choose-greedy-rerun": "choose-kept-greedy",
    "cifar10-deit-first": "cifar-deit-first", "imagenette-worst-long": "worst-long",
    "imagenette-resnet50_v1-pairs": "row-resnet50", "imagenette-resnetv2_50-pairs": "row-resnetv2",
    "imagenette-resnet50_v1-worst": "row-resnet50-worst", "imagenette-resnetv2_50-worst": "row-resnetv2-worst",
    "imagenette-resmlp_24-pairs": "row-resmlp",
    "imagenette-resnetv2_50-paper": "paper-resnetv2", "cifar10-resnetv2_50-pairs": "row-cifar-resnetv2",
}  # fmt: skip
CARDS = {
    path.stem: read_card(path)
    for folder, names in (("recipes", "*"), ("models", "*-pairs"), ("models", "*-paper"), ("models", "*-worst"))
    for path in sorted((ROOT / "results" / folder).glob(f"{names}.json"))
}
SOUPS = {name for name, card in CARDS.items() if card.data["start"].startswith("mean of ")}


GROUPS = {"imagenette": "", "imagenette-kept": "kept-", "cifar10": "cifar-", "cifar10-on": "cifar-on-"}


def job_of(card: str) -> str:
    """A card's name has the group of its step before ``choose``, that of a job behind it."""
    group, _, step = card.partition("-choose-")
    return NAMES.get(card) or f"choose-{GROUPS[group]}{step}"


@pytest.mark.parametrize("name", sorted(CARDS.keys() - SOUPS))
def test_every_recipe_that_was_run_is_one_that_can_be_run(name: str) -> None:
    """Cards from before tries could be of one cover, or there were teachers, say nothing of it."""
    declared = asdict(Recipe(**JOBS[job_of(name)].recipe))
    assert {"one_cover": False, "taught": 0.0, **CARDS[name].recipe} == json.loads(json.dumps(declared))


@pytest.mark.parametrize("name", sorted(SOUPS))
def test_what_a_soup_is_made_of_is_known(name: str) -> None:
    """Every network of the mean has its card, and the soup cost what all of them did."""
    parts = CARDS[name].data["start"].removeprefix("mean of ").split(", ")
    members = [card for card in CARDS.values() if card.sha256[:16] in parts]
    assert len(members) == len(parts) > 1
    for cost in ("training_passes", "teacher_passes"):
        assert CARDS[name].metrics.get(cost, 0) == sum(own.metrics.get(cost, 0) for own in members)


def test_every_teacher_has_its_card() -> None:
    """And teaches the same classes; what it was asked is what the recipe says."""
    taught = {name: card for name, card in CARDS.items() if card.recipe.get("taught")}
    assert len(taught) > 1
    for card in taught.values():
        known = {f"{own.architecture}, sha256 {own.sha256[:16]}": own for own in CARDS.values()}
        teachers = [known[name] for name in card.data["teachers"]]
        assert {own.classes for own in teachers} == {card.classes}
        asked = card.recipe["epochs"] * (card.recipe["views"] + card.recipe["whole"]) * card.data["train"]["images"]
        assert card.metrics["teacher_passes"] == asked * len(teachers)
