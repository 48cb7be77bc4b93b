"""Training for smoothing (bands) and for PatchGuard (the provable loss): what is hidden, lost, measured, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from torch import Tensor, nn

from certmask.covers import band_cover
from certmask.data import pictures
from certmask.errors import CertmaskError, UsageError
from certmask.evidence import Field, RobustMasking, hypotheses, receptive_field, touched
from certmask.training import LessonsInMemory, Recipe, Trainer
from certmask.training.augmentation import random_band
from certmask.training.loss import Provable
from certmask.zoo.card import read_card

SIDE, CLASSES, PHOTOS = 12, 3, 48
BAND, PATCH = 4, 3


class Told(nn.Module):
    """A small network that is told what is hidden, and remembers what it was shown."""

    told = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, CLASSES, 1))
        self.shown: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shown.append(images.detach().clone())
        seen: Tensor = self.layers(images)
        return seen.mean(dim=(2, 3))


class Local(nn.Module):
    """A small network with local logits: cells of 3×3 pixels, every 2. They begin above 0, else nothing is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, CLASSES, 1))
        nn.init.constant_(self.get_parameter("layers.2.bias"), 2.0)

    def local(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.local(images).mean(dim=(2, 3))


@pytest.fixture(scope="module")
def lessons() -> LessonsInMemory:
    """Noise in which one colour is brighter everywhere: the class."""
    chance = torch.Generator().manual_seed(0)
    labels = [number % CLASSES for number in range(PHOTOS)]
    images = torch.rand(PHOTOS, 3, SIDE, SIDE, generator=chance) * 0.6
    images[torch.arange(PHOTOS), labels] += 0.4
    return LessonsInMemory(pictures(images, labels), (SIDE, SIDE), lambda _: None)


def trainer_of(kind: Callable[[], nn.Module], lessons: LessonsInMemory, folder: Path, **options: Any) -> Trainer:
    torch.manual_seed(0)
    recipe = Recipe(batch=8, rate=0.03, optimizer="adamw", flip=False, **options)
    return Trainer(kind(), lessons, recipe, folder, mean=(0.0,) * 3, std=(1.0,) * 3, device="cpu")


BANDS: dict[str, Any] = {"cutout": "bands", "band": BAND}
PROVABLE: dict[str, Any] = {"cutout": "none", "loss": "provable", "patch": PATCH}
KINDS = [(Told, BANDS, "validation_band_accuracy"), (Local, PROVABLE, "validation_masked_accuracy")]


@pytest.mark.parametrize("width", [1, 4, 11])
def test_each_picture_shows_one_band_of_the_cover(width: int) -> None:
    """What is left of each is what one mask of smoothing's cover leaves; all of them are drawn, and many per batch."""
    images = torch.rand(400, 3, 5, SIDE, generator=torch.Generator().manual_seed(1))
    shown = random_band(images, width, torch.full((1, 3, 1, 1), -1.0), torch.Generator().manual_seed(0))
    columns = [{(left + step) % SIDE for step in range(width)} for left in range(SIDE)]
    masks = band_cover((5, SIDE), 1, width).masks
    for left, mask in enumerate(masks):
        hidden = {x for begin, end in mask.columns((5, SIDE)) for x in range(begin, end)}
        assert set(range(SIDE)) - hidden == columns[left]
    found = []
    for before, after in zip(images, shown, strict=True):
        open_columns = {x for x in range(SIDE) if torch.equal(before[:, :, x], after[:, :, x])}
        hidden = {x for x in range(SIDE) if bool((after[:, :, x] == -1).all())}
        assert (open_columns & hidden, open_columns | hidden) == (set(), set(range(SIDE)))
        found.append(columns.index(open_columns))
    assert set(found) == set(range(SIDE))
    again = random_band(images, width, torch.full((1, 3, 1, 1), -1.0), torch.Generator().manual_seed(0))
    assert torch.equal(shown, again)


def test_a_network_that_is_told_sees_what_is_hidden_and_only_that(lessons: LessonsInMemory, tmp_path: Path) -> None:
    """In training and on held-out photos: −1 in all channels of all columns but a band."""
    trainer = trainer_of(Told, lessons, tmp_path, epochs=1, **BANDS)
    trainer.train(lessons, lambda _: None)
    shown = torch.cat(trainer.model.shown)
    hidden = (shown == -1).all(dim=1)
    assert len(shown) == 2 * PHOTOS
    assert torch.equal(hidden[:, None].expand_as(shown), shown < 0)
    assert torch.equal(hidden.all(dim=1), hidden.any(dim=1))
    assert set(hidden[:, 0].sum(dim=1).tolist()) == {SIDE - BAND}


def test_other_networks_get_the_mean_colour(lessons: LessonsInMemory, tmp_path: Path) -> None:
    """It is what becomes 0 by subtraction of the mean."""
    model = Told()
    model.told = False
    recipe = Recipe(epochs=1, batch=8, **BANDS)
    trainer = Trainer(model, lessons, recipe, tmp_path, mean=(0.3, 0.4, 2.0), std=(0.5,) * 3, device="cpu")
    trainer.train(None, lambda _: None)
    hidden = (torch.cat(model.shown) == 0).all(dim=1)
    assert set(hidden[:, 0].sum(dim=1).tolist()) == {SIDE - BAND}


def test_held_out_bands_are_the_same_after_every_epoch(lessons: LessonsInMemory, tmp_path: Path) -> None:
    trainer = trainer_of(Told, lessons, tmp_path, **BANDS)
    first, second = (trainer.accuracy(lessons) for _ in range(2))
    assert first == second
    assert torch.equal(*trainer.model.shown)


@pytest.mark.parametrize("patch", [1, 3, (2, 5)])
def test_the_provable_loss_is_the_reference(patch: Any) -> None:
    """In plain Python: windows as large as what a patch touches, of the positive logits of the true class alone."""
    torch.manual_seed(0)
    model = Local()
    loss = Provable(model, (SIDE, SIDE), patch)
    maps, labels = torch.randn(4, CLASSES, 5, 5), torch.tensor([0, 2, 1, 1])
    height, width = (max(int(sets.sum(axis=1).max()) for sets in (axis,)) for axis in touched(patch, fields()))
    logits, scores = loss.logits(maps, labels), loss.scores(maps)
    for number, label in enumerate(labels.tolist()):
        for c in range(CLASSES):
            cells = [[max(float(maps[number, c, y, x]), 0.0) for x in range(5)] for y in range(5)]
            total = sum(map(sum, cells))
            strongest = max(
                sum(cells[y][x] for y in range(top, top + height) for x in range(left, left + width))
                for top in range(6 - height)
                for left in range(6 - width)
            )
            lost = strongest if c == label else 0.0
            assert float(logits[number, c]) == pytest.approx((total - lost) / 25, abs=1e-6)
            assert float(scores[number, c]) == pytest.approx(total - strongest, abs=1e-5)


def fields() -> tuple[Field, Field]:
    return receptive_field(Local().layers.eval(), (SIDE, SIDE))


def test_held_out_answers_are_those_of_robust_masking() -> None:
    maps = torch.randn(200, CLASSES, 5, 5, generator=torch.Generator().manual_seed(0))
    rule = RobustMasking(PATCH)
    answers = rule.answers(rule.evidence(maps.permute(0, 2, 3, 1), fields()))
    scores = Provable(Local(), (SIDE, SIDE), PATCH).scores(maps)
    assert np.array_equal(scores.argmax(dim=1).numpy(), answers)
    assert not np.array_equal(maps.mean(dim=(2, 3)).argmax(dim=1).numpy(), answers)


def test_windows_hold_whatever_the_patch_touches() -> None:
    loss, sets = Provable(Local(), (SIDE, SIDE), PATCH), hypotheses(PATCH, fields())
    assert torch.equal(loss.rows.bool(), torch.from_numpy(sets.window_rows))
    assert torch.equal(loss.columns.bool(), torch.from_numpy(sets.window_columns))
    assert loss.rows.sum(dim=1).max() < fields()[0].cells


@pytest.mark.parametrize(("kind", "options", "accuracy"), KINDS)
def test_it_learns_and_a_resumed_run_ends_with_the_same_weights(
    kind: Callable[[], nn.Module], options: dict[str, Any], accuracy: str, lessons: LessonsInMemory, tmp_path: Path
) -> None:
    whole = trainer_of(kind, lessons, tmp_path / "whole", epochs=6, **options)
    history = whole.train(lessons, lambda _: None)
    assert history[-1][accuracy] > 0.8
    assert "validation_accuracy" not in history[-1]

    def stop(entry: dict[str, float]) -> None:
        if entry["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer_of(kind, lessons, tmp_path / "cut", epochs=6, **options).train(lessons, stop)
    cut = trainer_of(kind, lessons, tmp_path / "cut", epochs=6, **options)
    assert cut.train(lessons, lambda _: None) == history
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(cut.model.state_dict()[name], tensor)


def test_another_band_or_patch_does_not_continue_a_run(lessons: LessonsInMemory, tmp_path: Path) -> None:
    for kind, options, other in ((Told, BANDS, {"band": 5}), (Local, PROVABLE, {"patch": 2})):
        folder = tmp_path / kind.__name__
        trainer_of(kind, lessons, folder, epochs=1, **options).train(lessons, lambda _: None)
        with pytest.raises(CertmaskError, match=next(iter(other))):
            trainer_of(kind, lessons, folder, epochs=1, **{**options, **other}).train(lessons, lambda _: None)


def test_recipes_that_contradict_themselves() -> None:
    for options, got in (
        ({"cutout": "bands"}, "got None for bands"),
        ({"band": 4}, "got 4 for random"),
        ({"cutout": "bands", "band": 0}, "0"),
        ({"cutout": "bands", "band": 2.5}, "2.5"),
        ({"loss": "provable"}, "got None for the provable loss"),
        ({"patch": 4}, "got 4 for the plain loss"),
        ({"loss": "provable", "patch": 0}, "0"),
        ({"loss": "provable", "patch": 3, "cutout": "bands", "band": 4}, "on the cutout bands"),
        ({"loss": "x"}, "'x'"),
    ):
        with pytest.raises(CertmaskError, match=r"expected .*got") as error:
            Recipe(**options)
        assert got in str(error.value)


def test_networks_that_a_recipe_does_not_fit(lessons: LessonsInMemory, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"local logits.*got Told"):
        trainer_of(Told, lessons, tmp_path, **PROVABLE)
    with pytest.raises(UsageError, match="narrower than the input, 12 px, got 12"):
        trainer_of(Told, lessons, tmp_path, cutout="bands", band=12)


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of two colours, 16 photos of each."""
    root, chance = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for label, name in enumerate(("blue", "red")):
        (root / name).mkdir()
        for number in range(16):
            pixels = chance.integers(0, 150, (32, 32, 3), dtype=np.uint8)
            pixels[..., 2 - 2 * label] += 100
            Image.fromarray(pixels).save(root / name / f"{number:02}.png")
    return root


def command(colours: Path, out: Path, model: str, *more: str) -> list[str]:
    return ["train", str(colours), "--validation", str(colours), "--model", model, "--out", str(out), "--epochs", "1",
            "--batch", "4", "--image", "32", "--patch", "5", "--images", "4", *more]  # fmt: skip


def test_bands_from_the_command_line(colours: Path, tmp_path: Path) -> None:
    """The card has what smoothing over the trained bands proves, and `certify` finds the same again."""
    out = tmp_path / "run"
    bands = ("--cutout", "bands", "--band", "4", "--optimizer", "adamw", "--rate", "0.003", "--epochs", "4")
    done = certmask(*command(colours, out, "told_resnet26w2_cifar", *bands))
    card = read_card(out / "model.safetensors")
    assert (card.recipe["band"], card.metrics["mask"], card.metrics["images"]) == (4, [32, 28], 4)
    assert card.metrics["clean_accuracy"] > 0.5
    assert 0 <= card.metrics["validation_band_accuracy"] <= 1
    assert "validation_accuracy" not in card.metrics
    for words in ("validation band", "certified recovery (smoothing)"):
        assert words in done.stdout
    assert "patch (smoothing)" in certmask("models", tmp_path).stdout
    certmask("certify", colours, "--model", out / "model.safetensors", "--patch", "5", "--rule", "smoothing",
             "--tiling", "bands", "--band", "4", "--margin", "0", "--backend", "torch", "--images", "4",
             "--out", tmp_path / "again.jsonl")  # fmt: skip
    (run,) = json.loads(certmask("table", tmp_path / "again.jsonl", "--json").stdout)
    (line,) = run["lines"]
    assert line["clean_accuracy"] == card.metrics["clean_accuracy"]
    assert line["certified_recovery"] == card.metrics["certified_recovery_smoothing"]


def test_the_provable_loss_from_the_command_line(
    colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patch is that of the figures."""
    monkeypatch.setattr("certmask.training.course.MASKS_PER_AXIS", 2)
    provable = ("--cutout", "none", "--loss", "provable", "--images", "1")
    done = certmask(*command(colours, tmp_path, "bagnet17_half", *provable))
    card = read_card(tmp_path / "model.safetensors")
    assert (card.recipe["loss"], card.recipe["patch"]) == ("provable", [5, 5])
    assert 0 <= card.metrics["validation_masked_accuracy"] <= 1
    assert "validation masked" in done.stdout
    shown = certmask("models", tmp_path).stdout
    assert "patch (PatchGuard) " in shown
    assert ", (Clipped BagNet) " in shown


def test_options_that_contradict_each_other(colours: Path, tmp_path: Path) -> None:
    for model, more, got in (
        ("test_resnet", ("--cutout", "bands"), "got None for bands"),
        ("test_resnet", ("--band", "4"), "got 4 for random"),
        ("test_resnet", ("--cutout", "bands", "--band", "32"), "32 px, got 32"),
        ("test_resnet", ("--loss", "provable"), "local logits"),
        ("test_resnet", ("--loss", "fancy"), "'fancy'"),
        ("bagnet17_half", ("--loss", "provable", "--cutout", "bands", "--band", "4"), "on the cutout bands"),
    ):
        assert got in certmask(*command(colours, tmp_path / "x", model, *more), code=2).stderr
