"""Teachers: what they are shown, what is learnt of them, and who may teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from torch import Tensor, nn

from certmask.data import class_folders, load_dataset
from certmask.errors import CertmaskError
from certmask.training import LessonsInMemory, Recipe, Teachers, Trainer
from certmask.training.showing import Lesson
from certmask.zoo import Card, build_model, save_model
from certmask.zoo.card import read_card

CLASSES = ("0", "1", "2")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def teacher(folder: Path, seed: int = 0, side: int = 32, classes: tuple[str, ...] = CLASSES) -> Path:
    """A small network with random weights, as a checkpoint with its card."""
    torch.manual_seed(seed)
    card = Card("test_resnet", classes, (side, side), MEAN, STD, 1.0)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(build_model("test_resnet", len(classes), (side, side)), card, folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    chance = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir()
        for number in range(6):
            pixels = chance.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def lessons(photos: Path) -> LessonsInMemory:
    names = [(name,) for name in class_folders(str(photos))]
    return LessonsInMemory(load_dataset(str(photos), names, 1.0), (32, 32), lambda _: None)


def seen_by(model: nn.Module) -> list[Tensor]:
    """Record what a network is asked about."""
    asked: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0].clone()))
    return asked


def test_a_teacher_sees_the_same_views_in_its_own_colours(tmp_path: Path) -> None:
    own = Teachers([teacher(tmp_path)], CLASSES, "cpu")
    asked = seen_by(own.each[0].model)
    pictures = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    shown = pictures.repeat(2, 1, 1, 1)
    shown[0, :, 3:9, 4:20] = 0.0
    shown[3, :, 10:12] = 1.0
    said = own.answers(shown, pictures)
    mean, std = (torch.tensor(colour).view(3, 1, 1) for colour in (MEAN, STD))
    expected = (pictures.repeat(2, 1, 1, 1) - mean) / std
    expected[0, :, 3:9, 4:20] = 0.0
    expected[3, :, 10:12] = 0.0
    torch.testing.assert_close(asked[0], expected)
    with torch.no_grad():
        torch.testing.assert_close(said, own.each[0].model(expected).softmax(dim=1))
    assert not any(p.requires_grad for p in own.each[0].model.parameters())


def test_a_larger_teacher_sees_no_more_and_whole_pixels_are_hidden(tmp_path: Path) -> None:
    """What is hidden of 32×32 is hidden of 96×96, to the pixel, although enlarging spreads every one of them."""
    own = Teachers([teacher(tmp_path, side=96)], CLASSES, "cpu")
    asked = seen_by(own.each[0].model)
    pictures = 0.3 + 0.4 * torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    shown = pictures.clone()
    shown[:, :, 5:15, 20:31] = 0.5
    own.answers(shown, pictures)
    own.answers(pictures, pictures)
    hidden, bare = asked[0][0], asked[1][0]
    inside = torch.zeros(96, 96, dtype=torch.bool)
    inside[15:45, 60:93] = True
    assert (hidden[:, inside] == 0).all()
    assert torch.equal(hidden[:, ~inside], bare[:, ~inside])
    enlarged = Image.fromarray((pictures[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8))
    by_pillow = np.asarray(enlarged.resize((96, 96), Image.Resampling.BICUBIC)) / 255
    mean, std = (torch.tensor(colour).view(3, 1, 1) for colour in (MEAN, STD))
    assert np.abs((bare * std + mean).permute(1, 2, 0).numpy() - by_pillow).max() < 0.02


def test_several_say_their_mean(tmp_path: Path) -> None:
    paths = [teacher(tmp_path / str(seed), seed) for seed in range(3)]
    pictures = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    said = [Teachers([path], CLASSES, "cpu").answers(pictures, pictures) for path in paths]
    together = Teachers(paths, CLASSES, "cpu").answers(pictures, pictures)
    torch.testing.assert_close(together, torch.stack(said).mean(dim=0))
    assert not torch.allclose(said[0], said[1], atol=1e-3)


def trainer(lessons: LessonsInMemory, folder: Path, teachers: Teachers | None, **options: Any) -> Trainer:
    torch.manual_seed(0)
    recipe = Recipe(**{"epochs": 1, "batch": 6, "rate": 0.05, **options})
    model = build_model("test_resnet", 3, (32, 32))
    origin = {"teachers": teachers.describe()} if teachers else {}
    return Trainer(model, lessons, recipe, folder, mean=MEAN, std=STD, device="cpu", teachers=teachers, origin=origin)


PAIRS: dict[str, Any] = {"cutout": "pairs", "patch": 5, "views": 2, "whole": True}


@pytest.mark.parametrize("agreement", [0.0, 0.25])
def test_targets_are_partly_what_teachers_say(agreement: float, lessons: LessonsInMemory, tmp_path: Path) -> None:
    teachers = Teachers([teacher(tmp_path)], CLASSES, "cpu")
    own = trainer(lessons, tmp_path, teachers, **PAIRS, taught=0.4, agreement=agreement)
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 2])
    lesson = Lesson(images, labels, labels, torch.zeros(2, dtype=torch.bool))
    shown = torch.cat([torch.rand(4, 3, 32, 32), images])
    logits = torch.randn(6, 3)
    targets = own._targets(lesson, shown, logits, labels.repeat(3))
    before = nn.functional.one_hot(labels, 3).float().repeat(3, 1)
    before[:4] = (1 - agreement) * before[:4] + agreement * logits[4:].softmax(dim=1).repeat(2, 1)
    torch.testing.assert_close(targets, 0.6 * before + 0.4 * teachers.answers(shown, images))


def test_a_network_becomes_like_its_teacher(lessons: LessonsInMemory, tmp_path: Path) -> None:
    """Noise cannot be learnt by its labels in a few epochs, but what a teacher says of it can."""
    teachers = Teachers([teacher(tmp_path, seed=5)], CLASSES, "cpu")
    pictures = lessons.pixels.float() / 255
    said = teachers.answers(pictures, pictures)

    def distance(taught: float) -> float:
        own = trainer(lessons, tmp_path / str(taught), teachers if taught else None, taught=taught, epochs=20,
                      cutout="none", flip=False)  # fmt: skip
        own.train(None, lambda _: None)
        with torch.no_grad():
            answers = own._outputs(pictures, own.trained.eval()).softmax(dim=1)
        return float((answers - said).abs().mean())

    assert distance(1.0) < 0.5 * distance(0.0)


def test_who_teaches_is_part_of_what_is_gone_on_with(lessons: LessonsInMemory, tmp_path: Path) -> None:
    first, second = (Teachers([teacher(tmp_path / str(seed), seed)], CLASSES, "cpu") for seed in (1, 2))
    trainer(lessons, tmp_path, first, taught=0.5).train(None, lambda _: None)
    with pytest.raises(CertmaskError, match=r"expected to continue .* got teachers"):
        trainer(lessons, tmp_path, second, taught=0.5).train(None, lambda _: None)


def test_teachers_and_recipe_go_together(lessons: LessonsInMemory, tmp_path: Path) -> None:
    teachers = Teachers([teacher(tmp_path)], CLASSES, "cpu")
    for given, taught in ((teachers, 0.0), (None, 0.5)):
        with pytest.raises(CertmaskError, match=r"expected teachers .* got"):
            trainer(lessons, tmp_path, given, taught=taught)
    with pytest.raises(CertmaskError, match=r"expected a teacher of the classes .* got 0, 1, 3"):
        Teachers([teacher(tmp_path / "other", classes=("0", "1", "3"))], CLASSES, "cpu")
    for wrong in ({"taught": 1.5}, {"taught": -0.1}, {"taught": 0.5, "loss": "provable", "patch": 5}):
        with pytest.raises(CertmaskError, match=r"expected .*got"):
            Recipe(**wrong)


def test_through_the_command_line(photos: Path, tmp_path: Path) -> None:
    """The card names who taught, and how many passes that took."""
    taught_by = [teacher(tmp_path / str(seed), seed, side=64) for seed in (1, 2)]
    network = "--model test_resnet --image 32 --patch 5 --images 3 --batch 6 --cutout pairs --epochs 2 --whole"
    asked: list[str | Path] = ["train", photos, "--validation", photos, *network.split()]
    options: list[str | Path] = [text for path in taught_by for text in ("--teacher", path)]
    certmask(*asked, *options, "--out", tmp_path / "net")
    card = read_card(tmp_path / "net" / "model.safetensors")
    assert card.data["teachers"] == [f"test_resnet, sha256 {read_card(path).sha256[:16]}" for path in taught_by]
    assert card.recipe["taught"] == 0.5
    assert card.metrics["teacher_passes"] == 2 * 18 * 2 * 2
    assert card.metrics["training_passes"] == 2 * 18 * 3 * 2
    nobody: list[str | Path] = ["--teacher", tmp_path / "nobody.safetensors"]
    for wrong, code in ((["--taught", "0.5"], 2), (nobody, 1), ([*options, "--taught", "2"], 2)):
        refused = certmask(*asked, *wrong, "--out", tmp_path / "other", code=code)
        assert "expected" in refused.stderr
        assert "Traceback" not in refused.stderr
