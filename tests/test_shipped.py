"""The trained models that come with certmask: they load by name, know their classes, and their cards tell the truth."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from safetensors.torch import load_file

from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.data import CIFAR10, load_dataset
from certmask.errors import ClassifierError, DataError
from certmask.results.columns import COLUMNS, figures, json_record
from certmask.results.run import read_run
from certmask.zoo import class_aliases, load_checkpoint, load_classifier, shipped_models
from certmask.zoo.card import read_card
from certmask.zoo.models import SHIPPED

ROWS = Path(__file__).resolve().parent.parent / "results" / "models"
MEASURED = sorted(ROWS.glob("*.json"))
STEPS = sorted((ROWS.parent / "recipes").glob("*.json"))
DEFENCES = {
    "clean_accuracy": ("undefended", "clean_accuracy"),
    "certified_detection_one_mask": ("jury-detection", "certified_detection"),
    "certified_recovery_two_masks": ("patchcleanser", "certified_recovery"),
    "certified_recovery_zoom": ("zoom", "certified_recovery"),
}
NEWER = ("certified_recovery_zoom",)
"""Not on the cards of the first networks."""

OF_BANDS = {
    "clean_accuracy": ("smoothing", "clean_accuracy"),
    "certified_recovery_smoothing": ("smoothing", "certified_recovery"),
}


@cache
def loaded(name: str) -> Classifier:
    """A shipped model, loaded once."""
    return load_classifier(name, batch=2)


def test_three_models_are_shipped_and_they_are_small() -> None:
    assert shipped_models() == ["deit_tiny-imagenette", "resnet26-cifar10", "resnet26w3-cifar10"]
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 20 * 2**20
    for name in shipped_models():
        tensors = load_file(SHIPPED / f"{name}.safetensors").values()
        assert {str(t.dtype) for t in tensors if t.is_floating_point()} == {"torch.float16"}
        assert name in certmask("models").stdout


@pytest.mark.parametrize("card", [*MEASURED, *STEPS], ids=lambda path: path.stem)
def test_every_card_says_what_its_rows_say(card: Path) -> None:
    """Each figure on the card of a trained model is counted again from the committed rows, image by image."""
    run = read_run(card.with_suffix(".jsonl.gz"))
    metrics = json.loads(card.read_text())["metrics"]
    lines = {line.defence: json_record(COLUMNS, line) for line in figures(run)}
    assert len({row["image"] for row in run.rows}) == metrics["images"] >= 500
    assert run.data == metrics["data"]
    assert run.model["precision"] == metrics["precision"]
    asked = OF_BANDS if card.stem.endswith("-bands") else DEFENCES
    assert {figure for figure in metrics if figure.startswith("certified")} >= {*asked} - {*NEWER, "clean_accuracy"}
    for figure, (defence, column) in ((name, asked[name]) for name in asked if name in metrics):
        assert lines[defence][column] == metrics[figure]
        assert lines[defence]["patch"] == metrics["patch"]


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("deit_tiny-imagenette", "imagenette-deit_tiny-greedy"),
        ("resnet26-cifar10", "cifar10-resnet26w2-greedy"),
        ("resnet26w3-cifar10", "cifar10-resnet26w3-pairs"),
    ],
)
def test_the_shipped_card_is_that_of_the_measured_model(name: str, card: str) -> None:
    """And the weights are the card's: loading compares their sha256."""
    assert (SHIPPED / f"{name}.json").read_text() == (ROWS / f"{card}.json").read_text()
    assert loaded(name).classes == 10


def test_the_network_of_bands_in_the_repository_is_its_cards() -> None:
    """Loading compares the weights' sha256 with the card's."""
    network, card = load_checkpoint(ROWS / "cifar10-told_resnet26w2-bands.safetensors")
    assert card.recipe["band"] == 4
    assert network(torch.rand(1, 3, 32, 32)).shape == (1, 10)


def test_cutout_certifies_more_than_none() -> None:
    """The effect that training is for, on the committed rows of every model trained both ways."""
    pairs = [(path, path.with_name(path.name.replace("-none", "-random"))) for path in MEASURED if "-none" in path.name]
    assert len(pairs) == 4
    for without, with_cutout in pairs:
        none, some = (json.loads(path.read_text())["metrics"] for path in (without, with_cutout))
        assert some["certified_recovery_two_masks"] > none["certified_recovery_two_masks"] + 0.03


def test_the_cifar_model_certifies_the_demo_photos(tmp_path: Path) -> None:
    """20 real photos, through the real command, against any 5×5 patch; 16 masks of 11×11."""
    certmask("certify", "demo-cifar10", "--model", "resnet26-cifar10", "--patch", "5", "--backend", "torch",
             "--mask", "11", "--rule", "undefended", "--rule", "patchcleanser",
             "--out", tmp_path / "run.jsonl")  # fmt: skip
    lines = {line.defence: line for line in figures(read_run(tmp_path / "run.jsonl"))}
    assert lines["undefended"].images == 20
    assert lines["undefended"].clean.value >= 0.85
    assert lines["patchcleanser"].guarantee is Guarantee.RECOVERY
    assert lines["patchcleanser"].certified is not None
    assert lines["patchcleanser"].certified.value >= 0.4


def test_imagenettes_classes_are_known_by_synset_and_by_name() -> None:
    classifier = loaded("deit_tiny-imagenette")
    assert classifier.class_names[0] == "tench"
    assert ("garbage truck", "n03417042") in class_aliases(classifier)
    assert read_card(SHIPPED / "deit_tiny-imagenette.safetensors").crop == 1.0


def test_further_weights_for_a_shipped_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match=r"expected no further weights .*got"):
        load_classifier("resnet26-cifar10", tmp_path / "w.safetensors")


def test_the_cifar_demo_photos_are_labelled() -> None:
    dataset = load_dataset("demo-cifar10", None, 1.0)
    assert len(dataset) == 20
    assert {sample.label for sample in dataset.samples} <= set(range(10))
    assert next(dataset.tensors((32, 32))).shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("model", "data", "got"),
    [
        ("deit_tiny-imagenette", "demo-cifar10", "without 'airplane'"),
        ("resnet26-cifar10", "demo", "one of 10"),
        ("deit_tiny-imagenette", "batches", "without 'airplane'"),
        ("deit_tiny-imagenette", "folders", "expected folders named after"),
    ],
)
def test_photos_of_other_classes_are_refused(model: str, data: str, got: str, tmp_path: Path) -> None:
    """Ten classes are not the same ten classes: a table of wrong labels must not come out."""
    for name in ["test_batch", *(f"data_batch_{n}" for n in range(1, 6))]:
        (tmp_path / "batches").mkdir(exist_ok=True)
        content = {b"data": np.zeros((2, 3072), dtype=np.uint8), b"labels": [0, 1]}
        (tmp_path / "batches" / name).write_bytes(pickle.dumps(content, protocol=2))
    for name in CIFAR10:
        (tmp_path / "folders" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "folders" / name / "a.png")
    source = str(tmp_path / data) if (tmp_path / data).exists() else data
    with pytest.raises(DataError, match=r"expected .*got") as error:
        load_dataset(source, class_aliases(loaded(model)), 1.0)
    assert got in str(error.value)
