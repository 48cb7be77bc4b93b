"""Training on a small generated data set: learns, survives a kill, writes a card that loads, and helps certificates."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import signal
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from processes import perform, started

from certmask.data import class_folders, load_dataset
from certmask.errors import CertmaskError, ClassifierError, DataError
from certmask.results.file import read_results
from certmask.training import LessonsInMemory, LessonStream, Recipe, Trainer, paper_rate, read_lessons
from certmask.training.augmentation import blank_square, greedy_cutout, random_cutout, random_shift, random_window
from certmask.zoo import Card, build_model, load_checkpoint, load_classifier
from certmask.zoo.card import card_digest, read_card, save_model
from certmask.zoo.checkpoint import read_state_dict

CLASSES = ("blue", "green", "red")
RATE = ("--rate", "0.05")


def picture(label: int, chance: np.random.Generator) -> Image.Image:
    """Three small discs in the class's colour somewhere on noise: one of them is enough to tell the class."""
    pixels = chance.integers(0, 160, (32, 32, 3))
    y, x = np.mgrid[:32, :32]
    for _ in range(3):
        disc = (y - chance.integers(4, 28)) ** 2 + (x - chance.integers(4, 28)) ** 2 < 16
        pixels[disc] = chance.integers(0, 120, 3)
        pixels[disc, 2 - label] = chance.integers(170, 256)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 training and 60 validation pictures in class folders."""
    root, chance = tmp_path_factory.mktemp("discs"), np.random.default_rng(0)
    for split, count in (("train", 40), ("validation", 20)):
        for label, name in enumerate(CLASSES):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                picture(label, chance).save(root / split / name / f"{number:02}.png")
    return root


def command(discs: Path, out: Path, *more: str, model: str = "test_resnet", epochs: int = 1) -> list[str]:
    return ["train", str(discs / "train"), "--validation", str(discs / "validation"), "--model", model,
            "--image", "32", "--batch", "10", "--epochs", str(epochs), "--patch", "4", "--out", str(out),
            *more]  # fmt: skip


@pytest.fixture(scope="module")
def learned(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network that was trained for four epochs; only to be read."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    certmask(*command(discs, folder, *RATE, "--images", "12", epochs=4))
    return folder


@pytest.fixture(scope="module")
def begun(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network that was trained for one epoch and measured on three photos."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    certmask(*command(discs, folder, "--images", "3"))
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    shutil.copytree(begun, tmp_path / "run")
    return tmp_path / "run"


def test_it_learns_and_the_card_tells_how(discs: Path, learned: Path, tmp_path: Path) -> None:
    """Above chance on held-out photos; the card's figures come again from the saved checkpoint, image for image."""
    card = read_card(learned / "model.safetensors")
    assert min(card.metrics["clean_accuracy"], card.metrics["validation_accuracy"]) > 0.6
    assert card.classes == CLASSES
    assert (card.recipe["cutout"], card.recipe["epochs"], card.metrics["images"]) == ("random", 4, 12)
    assert Image.open(learned / "curves.png").size[0] > 600
    rules = ("--rule", "undefended", "--rule", "patchcleanser", "--rule", "jury-detection")
    certmask("certify", discs / "validation", "--model", learned / "model.safetensors", "--patch", "4",
             "--tiling", "patchcleanser", *rules, "--margin", "0", "--backend", "torch", "--images", "12",
             "--out", tmp_path / "again.jsonl")  # fmt: skip
    (run,) = json.loads(certmask("table", tmp_path / "again.jsonl", "--json").stdout)
    figures = {line["defence"]: line for line in run["lines"]}
    assert figures["undefended"]["clean_accuracy"] == card.metrics["clean_accuracy"]
    assert figures["patchcleanser"]["certified_recovery"] == card.metrics["certified_recovery_two_masks"]
    assert figures["jury-detection"]["certified_detection"] == card.metrics["certified_detection_one_mask"]
    assert str(learned / "model.safetensors") in certmask("models", learned.parent).stdout


def test_cutout_raises_what_can_be_certified(discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random and greedy Cutout against none, same seed: more held-out photos certified with two masks, here of 3×3."""
    monkeypatch.setattr("certmask.training.course.MASKS_PER_AXIS", 3)
    found = {}
    for cutout in ("none", "random", "greedy"):
        certmask(*command(discs, tmp_path / cutout, "--cutout", cutout, *RATE, epochs=5))
        found[cutout] = read_card(tmp_path / cutout / "model.safetensors").metrics["certified_recovery_two_masks"]
    assert min(found["random"], found["greedy"]) > found["none"], found


def test_killed_and_resumed_it_ends_with_the_same_weights(discs: Path, learned: Path, tmp_path: Path) -> None:
    again = command(discs, tmp_path / "cut", *RATE, "--images", "12", epochs=4)
    for _ in range(2):
        before = _stamp(tmp_path / "cut" / "last.pt")
        run = started(perform, again, tmp_path / "said")
        while run.is_alive() and _stamp(tmp_path / "cut" / "last.pt") == before:
            time.sleep(0.02)
        run.kill()
        run.join()
        assert run.exitcode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    certmask(*again)
    whole, cut = (read_state_dict(folder / "model.safetensors") for folder in (learned, tmp_path / "cut"))
    for name in whole:
        torch.testing.assert_close(cut[name], whole[name], atol=1e-4, rtol=1e-3)


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def test_another_recipe_does_not_continue_a_run(discs: Path, run: Path) -> None:
    assert "epochs" in certmask(*command(discs, run, epochs=2), code=1).stderr


def test_other_photos_or_another_start_do_not_continue_a_run(discs: Path, run: Path) -> None:
    """Else the card would describe photos that the weights have never seen."""
    other = command(discs, run)
    other[1] = str(discs / "validation")
    assert "train" in certmask(*other, code=1).stderr
    weights = certmask(*command(discs, run, "--weights", str(run / "model.safetensors")), code=1)
    assert "start local weights" in weights.stderr
    assert "crop" in certmask(*command(discs, run, "--crop", "0.5"), code=1).stderr


def test_options_that_contradict_each_other(discs: Path, begun: Path, tmp_path: Path) -> None:
    start = str(begun / "model.safetensors")
    fresh, again = (command(discs, tmp_path / "x", model=model, epochs=4) for model in ("resnet10t", start))
    for arguments, got in (
        ([*fresh, "--weights", start, "--pretrained"], "both"),
        ([*again, "--weights", start], "brings its own"),
        ([*again, "--pretrained"], "brings its own"),
        ([*again, "--image", "64"], "(64, 64)"),
        ([*fresh, "--rate", "0"], "got 4, 10, 0.0"),
        ([*fresh, "--crop", "0"], "crop"),
    ):
        assert got in certmask(*arguments, code=2).stderr
    unknown = [*(w.replace("resnet10t", "resnet26w2_cifar") for w in fresh), "--pretrained"]
    assert "no weights to download" in certmask(*unknown, code=1, lines=2).stderr


def test_bad_training_input(discs: Path, tmp_path: Path) -> None:
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(tmp_path / "one" / "only" / "a.png")
    (tmp_path / "hollow" / "red").mkdir(parents=True)
    (tmp_path / "hollow" / "blue").mkdir(parents=True)
    for arguments, got in (
        (["train", str(tmp_path / "one"), "--validation", str(tmp_path / "one")], "got 1"),
        (["train", str(tmp_path / "hollow"), "--validation", "x"], "got none"),
        (["train", str(tmp_path / "none"), "--validation", "x"], "none"),
    ):
        full = (
            arguments if "--model" in arguments else [*arguments, "--model", "resnet10t", "--out", str(tmp_path / "o")]
        )
        assert got in certmask(*full, code=1).stderr
    for wrong, got in (("--cutout", "fancy"), "'fancy'"), (("--patch", "40"), "40×40"), (("--rate", "-1"), "-1"):
        assert got in certmask(*command(discs, tmp_path / "x", *wrong), code=2).stderr


def test_a_card_that_does_not_fit_is_refused_by_field(discs: Path, run: Path, tmp_path: Path) -> None:
    checkpoint = run / "model.safetensors"
    text = checkpoint.with_suffix(".json").read_text()
    for change, names in (
        (("test_resnet", "resnet18"), "architecture resnet18"),
        (('"blue",', '"blue", "grey",'), "4 classes"),
        (('"crop"', '"crap"'), "cr"),
        (('"sha256": "', '"sha256": "0'), "sha256"),
        (('"certmask_card": 2', '"certmask_card": 3'), "format"),
    ):
        card = json.loads(text.replace(*change, 1))
        checkpoint.with_suffix(".json").write_text(json.dumps({**card, "digest": card_digest(card)}))
        with pytest.raises(ClassifierError, match=r"expected .*got") as error:
            load_classifier(str(checkpoint))
        assert names in str(error.value)
    checkpoint.with_suffix(".json").write_text(text.replace("{", "[", 1))
    with pytest.raises(ClassifierError, match="expected a model card"):
        load_classifier(str(checkpoint))
    checkpoint.with_suffix(".json").write_text(text)
    assert load_classifier(str(checkpoint)).class_names == CLASSES
    done = certmask("certify", discs, "--model", checkpoint, code=1)
    assert "3 classes" in done.stderr
    with pytest.raises(ClassifierError, match="got nothing"):
        load_checkpoint(tmp_path / "none.safetensors")


def test_half_precision_checkpoints(tmp_path: Path) -> None:
    model, card = load_checkpoint_of(tmp_path)
    save_model(model, card, tmp_path / "half.safetensors", half=True)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * (tmp_path / "m.safetensors").stat().st_size
    load_classifier(str(tmp_path / "half.safetensors"))


def load_checkpoint_of(folder: Path) -> tuple[torch.nn.Module, Card]:
    model = build_model("resnet10t", 3, (32, 32))
    card = Card("resnet10t", CLASSES, (32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), 1.0)
    save_model(model, card, folder / "m.safetensors")
    return load_checkpoint(folder / "m.safetensors")


def test_cut_blanks_exactly_the_square() -> None:
    images = torch.ones(3, 3, 10, 12)
    top, left = torch.tensor([0, -2, 8]), torch.tensor([0, 5, 11])
    out = blank_square(images, top, left, 4, torch.zeros(1, 3, 1, 1))
    for number in range(3):
        expected = torch.ones(10, 12)
        expected[max(0, top[number]) : top[number] + 4, max(0, left[number]) : left[number] + 4] = 0
        assert torch.equal(out[number, 0], expected)


def test_greedy_cutout_finds_the_worst_places() -> None:
    """With the loss "how much light is left", greedy squares cover the two brightest corners."""
    images = torch.zeros(1, 3, 12, 12)
    images[..., :4, :4], images[..., 8:, 8:] = 1.0, 0.9
    recipe = Recipe(greedy_shares=(4 / 12,))
    out = greedy_cutout(images, lambda x: -x.sum(dim=(1, 2, 3)), recipe, torch.zeros(1, 3, 1, 1), torch.Generator())
    assert out.sum() == 0


def test_random_cutout_is_seeded_and_scaled() -> None:
    recipe, fill = Recipe(), torch.zeros(1, 3, 1, 1)
    first, second = (
        random_cutout(torch.ones(64, 3, 28, 28), recipe, fill, torch.Generator().manual_seed(7)) for _ in range(2)
    )
    assert torch.equal(first, second)
    hidden = 1 - first[:, 0].mean(dim=(1, 2))
    assert 0 < hidden.min() <= hidden.max() <= 2 * (16 / 28) ** 2


def test_the_papers_recipe_is_the_default() -> None:
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch, recipe.momentum, recipe.decay_every, recipe.squares) == (10, 64, 0.9, 5, 2)
    assert round(recipe.square_share * 224) == 128
    assert [paper_rate(n) for n in ("vit_base_patch16_224", "resmlp_24_224", "resnetv2_50")] == [0.001, 0.001, 0.01]


def test_class_folders_inside_a_tar(discs: Path, tmp_path: Path) -> None:
    """Same photos, same labels, same order as from the folder; a class folder may lie below another one."""
    with tarfile.open(tmp_path / "discs.tar", "w") as archive:
        archive.add(discs / "validation", "data/val")
    plain = load_dataset(str(discs / "validation"), None, 1.0)
    packed = load_dataset(f"{tmp_path / 'discs.tar'}:data/val", None, 1.0)
    assert [(s.name, s.label) for s in packed.samples] == [(s.name, s.label) for s in plain.samples]
    for a, b in zip(packed.tensors((32, 32), 2), plain.tensors((32, 32), 1), strict=True):
        assert torch.equal(a, b)
    assert class_folders(f"{tmp_path / 'discs.tar'}:data/val") == list(CLASSES)
    (tmp_path / "cut.tar").write_bytes((tmp_path / "discs.tar").read_bytes()[:700])
    for name in ("cut.tar", "discs.tar:nowhere"):
        with pytest.raises(DataError, match=r"expected .*got"):
            load_dataset(str(tmp_path / name), None, 1.0)


def test_cifar10_as_its_authors_ship_it(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (6, 3072), dtype=np.uint8)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        content = {b"data": pixels, b"labels": [3, 1, 4, 1, 5, 9]}
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol=2))
    test, train = load_dataset(str(tmp_path), None, 0.9), load_dataset(f"{tmp_path}:train", None, 0.9)
    assert (len(test), len(train), test.framing.crop) == (6, 30, 1.0)
    assert [s.label for s in test.samples] == [3, 1, 4, 1, 5, 9]
    image = next(test.tensors((32, 32)))
    assert torch.equal((image * 255).round().to(torch.uint8).flatten(), torch.from_numpy(pixels[0]))
    assert next(test.tensors((224, 224))).shape == (3, 224, 224)
    assert class_folders(str(tmp_path))[0] == "airplane"


@pytest.mark.parametrize(
    "content", [b"", b"junk", pickle.dumps({b"data": 1}), pickle.dumps(io.BytesIO), b"cos\nsystem\n."]
)
def test_bad_cifar10_batches_run_no_code(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=r"expected a CIFAR-10 batch .*got"):
        load_dataset(str(tmp_path), None, 1.0)


def test_bad_photos_are_skipped_only_on_request(discs: Path, tmp_path: Path) -> None:
    (tmp_path / "set" / "red").mkdir(parents=True)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "set" / "red" / "good.png")
    (tmp_path / "set" / "red" / "bad.png").write_text("no picture")
    dataset, bad = load_dataset(str(tmp_path / "set"), None, 1.0).readable()
    assert [s.name for s in dataset.samples] == ["red/good.png"]
    assert "bad.png" in bad[0]


def test_photos_that_do_not_fit_are_streamed_and_train_the_same_weights(discs: Path, tmp_path: Path) -> None:
    dataset = load_dataset(str(discs / "train"), None, 1.0)
    need = len(dataset) * 3 * 32 * 32
    found = {}
    for kind, memory in ((LessonsInMemory, need), (LessonStream, need - 1)):
        photos = read_lessons(dataset, (32, 32), lambda _: None, memory)
        assert isinstance(photos, kind)
        torch.manual_seed(0)
        model = build_model("resnet10t", 3, (32, 32))
        recipe = Recipe(epochs=2, batch=16, zoom=0.7, shift=3, schedule="cosine", warm_up=0.5, smoothing=0.1)
        trainer = Trainer(
            model, photos, recipe, tmp_path / kind.__name__, mean=(0.5,) * 3, std=(0.25,) * 3, device="cpu"
        )
        trainer.train(photos, lambda _: None)
        found[kind] = model.state_dict()
    for name, tensor in found[LessonsInMemory].items():
        torch.testing.assert_close(found[LessonStream][name], tensor)


def test_rates_of_both_schedules() -> None:
    steps = Recipe(rate=1.0, epochs=12)
    assert [round(steps.rate_at(e), 6) for e in (0, 4.99, 5, 9.9, 10, 11)] == [1, 1, 0.1, 0.1, 0.01, 0.01]
    cosine = Recipe(rate=1.0, epochs=12, schedule="cosine", warm_up=2)
    assert 0 < cosine.rate_at(0) < 0.01
    assert [round(cosine.rate_at(e), 2) for e in (1, 2, 7, 12)] == [0.5, 1, 0.5, 0]
    rates = [cosine.rate_at(e / 10) for e in range(20, 121)]
    assert rates == sorted(rates, reverse=True)


def test_a_random_window_lies_inside_the_picture() -> None:
    """On a picture whose values are its coordinates, its corners lie inside and span the drawn share."""
    y, x = torch.meshgrid(torch.linspace(0, 1, 64), torch.linspace(0, 1, 64), indexing="ij")
    images = torch.stack([y, x, y]).expand(200, 3, 64, 64)
    out = random_window(images, 0.5, torch.Generator().manual_seed(0))
    height = out[:, 0, -1, 0] - out[:, 0, 0, 0]
    width = out[:, 1, 0, -1] - out[:, 1, 0, 0]
    torch.testing.assert_close(height, width, atol=0.03, rtol=0)
    assert 0.48 < height.min() < 0.55
    assert 0.93 < height.max() <= 1
    assert out.min() >= 0
    assert out.max() <= 1
    assert torch.equal(out, random_window(images, 0.5, torch.Generator().manual_seed(0)))


def test_a_random_shift_moves_whole_pixels() -> None:
    images = torch.rand(50, 3, 9, 12, generator=torch.Generator().manual_seed(1))
    moved = random_shift(images, 2, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="reflect")
    places = set()
    for image, frame in zip(moved, padded, strict=True):
        found = [(y, x) for y in range(5) for x in range(5) if torch.equal(image, frame[:, y : y + 9, x : x + 12])]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 15


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_spares_norms_and_biases(optimizer: str, discs: Path, tmp_path: Path) -> None:
    model = build_model("resnet10t", 3, (32, 32))
    photos = read_lessons(load_dataset(str(discs / "validation"), None, 1.0), (32, 32), lambda _: None)
    recipe = Recipe(optimizer=optimizer, weight_decay=0.1)
    trainer = Trainer(model, photos, recipe, tmp_path, mean=(0.5,) * 3, std=(0.25,) * 3, device="cpu")
    for group in trainer.optimizer.param_groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] > 0}


def test_figures_can_be_measured_again_on_other_photos(discs: Path, run: Path) -> None:
    """The same command on a finished folder trains nothing and measures anew, here the weights rounded to fp16."""
    certmask(*command(discs, run, "--images", "7", "--precision", "fp32", "--half"))
    card = read_card(run / "model.safetensors")
    header, rows = read_results(run / "figures.jsonl")
    assert (card.metrics["images"], len(rows), card.metrics["precision"]) == (7, 7, "fp32")
    assert {row["image"].split("/")[0] for row in rows} == set(CLASSES)
    assert header["model"]["weights_sha256"] == load_classifier(str(run / "model.safetensors")).weights


def test_photos_smaller_than_the_mask(discs: Path, begun: Path, tmp_path: Path) -> None:
    """8×8 pictures become 32×32 inputs like any others; a patch larger than the input is refused."""
    for source in (discs / "validation").glob("*/0*.png"):
        (tmp_path / "tiny" / source.parent.name).mkdir(parents=True, exist_ok=True)
        Image.open(source).resize((8, 8)).save(tmp_path / "tiny" / source.parent.name / source.name)
    model = begun / "model.safetensors"
    levels = ("--levels", "2,4", "--thresholds", "0.5", "--claim-thresholds", "0.5")
    options = ("--model", model, *levels, "--backend", "torch", "--out", tmp_path / "t.jsonl")
    certmask("certify", tmp_path / "tiny", *options, "--patch", "4")
    assert len(read_results(tmp_path / "t.jsonl")[1]) == 30
    assert "got" in certmask("certify", tmp_path / "tiny", *options, "--patch", "33", code=2).stderr


def test_recipes_that_make_no_sense() -> None:
    for options in (
        {"cutout": "x"}, {"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"optimizer": "x"}, {"schedule": "x"},
        {"zoom": 0.0}, {"zoom": 1.1}, {"shift": -1}, {"smoothing": 1.0}, {"warm_up": 11.0},
    ):  # fmt: skip
        with pytest.raises(CertmaskError, match=r"expected .*got"):
            Recipe(**options)
