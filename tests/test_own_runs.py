"""Models of the user's own reach results file, table, report and attack from Python, as the command line's do."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import certmask, outcomes
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import certmask as cm
from certmask.data import load_dataset, to_tensor
from certmask.zoo import class_aliases, framing_of

COVER = cm.spread_cover(24, 4, 14, 2)
NAMES = [f"picture {letter}" for letter in "abcdef"]


class ColourNet(nn.Module):
    """Names the colour that a picture has most of."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(60 * images.mean(dim=(2, 3)))}


@pytest.fixture
def coloured() -> tuple[Tensor, Tensor]:
    """Two pictures of each colour, one sure and one in doubt."""
    strength = torch.tensor([0.9, 0.32, 0.9, 0.32, 0.9, 0.32]).view(-1, 1, 1)
    images = torch.full((6, 3, 24, 24), 0.3)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    images[torch.arange(6), labels] = strength.expand(-1, 24, 24)
    return images, labels


def test_a_proof_is_saved_as_the_command_line_saves_it(coloured: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    shield = cm.Defence(ColourNet(), COVER, batch=16, name="colours")
    proof = shield.certify(*coloured, names=NAMES)
    run = proof.save(tmp_path / "own.jsonl")
    assert [row["image"] for row in run.rows] == NAMES
    assert run.model == shield.engine.describe()
    (found,) = cm.figures(run)
    assert proof.certified_recovery is not None
    assert found.certified is not None
    assert found.certified.count == round(6 * proof.certified_recovery) > 0
    assert found.clean.count == round(6 * proof.clean_accuracy)
    assert "jury-recovery" in certmask("table", tmp_path / "own.jsonl").stdout
    certmask("report", tmp_path / "own.jsonl", "--out", tmp_path / "page.html", cwd=tmp_path)
    assert "colours" in (tmp_path / "page.html").read_text()


def test_a_saved_proof_is_continued_and_never_mixed(coloured: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    images, labels = coloured
    shield = cm.Defence(ColourNet(), COVER, batch=16)
    path = tmp_path / "own.jsonl"
    proof = shield.certify(images, labels)
    proof.save(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    assert [row["image"] for row in proof.save(path).rows] == [row["image"] for row in proof.rows]
    assert path.read_text().splitlines(keepends=True) == lines
    with pytest.raises(cm.CertmaskError, match=r"expected the same pictures .*, got another 00000"):
        shield.certify(0.9 * images, labels).save(path)
    with pytest.raises(cm.CertmaskError, match="got another data"):
        shield.certify(images[:3], labels[:3]).save(path)
    with pytest.raises(cm.CertmaskError, match="got another defences"):
        cm.Defence(shield.classifier, COVER, "jury-detection").certify(images, labels).save(path)


class Pairs(Dataset[Any]):
    """A torch Dataset of photos, as torchvision's are."""

    def __init__(self, photos: list[Any], labels: list[int]) -> None:
        self.photos, self.labels = photos, labels

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, number: int) -> Any:
        return self.photos[number], self.labels[number]


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tensors": lambda images, labels: (images, labels),
    "arrays": lambda images, labels: (images.numpy(), labels.tolist()),
    "torch Dataset": TensorDataset,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_certify_takes_what_users_have(
    form: Callable[[Tensor, Tensor], Any], coloured: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    rules: list[cm.Rule | str] = ["undefended", cm.PatchCleanser(margin=0.01)]
    run = cm.certify(ColourNet(), form(*coloured), rules, patch=3, out=path, batch=16)
    assert list(run.defences) == ["undefended", "patchcleanser"]
    assert (run.path, len(run.rows), run.image("patchcleanser")) == (path, 6, (24, 24))
    assert run.defences["patchcleanser"]["rule"]["margin"] == 0.01
    assert all(row["defences"]["undefended"]["label"] == row["label"] for row in run.rows)
    assert "undefended" in str(run)
    assert "patchcleanser" in str(run)
    assert repr(run) == f"Evaluation({path}: 6 images, undefended, patchcleanser)"
    assert cm.certify(ColourNet(), form(*coloured), rules, patch=3, out=path, batch=16).rows == run.rows


def test_certify_writes_what_the_command_writes(little_model: Path, tmp_path: Path) -> None:
    """By name and as an object, row for row; without a file's name the run lies in a folder of its own."""
    certmask("certify", "demo-cifar10", "--model", little_model, "--patch", "5", "--images", "3", "--rule",
             "jury-detection", "--rule", "undefended", "--out", tmp_path / "command.jsonl")  # fmt: skip
    options: dict[str, Any] = {"rules": ["jury-detection", "undefended"], "patch": 5, "images": 3}
    cm.certify(str(little_model), "demo-cifar10", out=tmp_path / "named.jsonl", **options)
    classifier = cm.load_classifier(str(little_model))
    own = cm.certify(classifier, "demo-cifar10", framing=framing_of(str(little_model)), **options)
    assert outcomes(own.path) == outcomes(tmp_path / "named.jsonl") == outcomes(tmp_path / "command.jsonl")
    headers = [json.loads(path.read_text().splitlines()[0]) for path in (own.path, tmp_path / "command.jsonl")]
    assert headers[0] == headers[1]


def test_certify_frames_the_photos_of_a_torch_dataset(little_model: Path) -> None:
    classifier = cm.load_classifier(str(little_model))
    photos = load_dataset("demo-cifar10", class_aliases(classifier), 1.0).spread(2)
    pairs = Pairs([sample.photo() for sample in photos.samples], [sample.label for sample in photos.samples])
    run = cm.certify(classifier, pairs, "undefended", framing=1.0)
    tensors = torch.stack([to_tensor(photo) for photo in pairs.photos])
    again = cm.certify(classifier, (tensors, pairs.labels), "undefended")
    assert [row["input_sha256"] for row in run.rows] == [row["input_sha256"] for row in again.rows]


@pytest.mark.parametrize("handed", ["network", "classifier", "function"])
def test_what_was_certified_from_python_is_attacked_from_python(
    handed: str, coloured: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    network = ColourNet()
    model: Any = network if handed != "function" else lambda images: network(images)
    classifier = cm.Classifier(model, 24, batch=16, precision="fp32", mean=(0.2, 0.2, 0.2))
    shield = cm.Defence(classifier, COVER)
    run = shield.certify(*coloured, names=NAMES).save(tmp_path / "own.jsonl")
    again = classifier if handed == "classifier" else ColourNet() if handed == "network" else model
    target = cm.Target(str(run.path), (*coloured, NAMES), str(tmp_path / "attack.jsonl"), again)  # type: ignore[arg-type]
    if handed == "function":
        with pytest.raises(cm.CertmaskError, match="expected a torch network for gradients"):
            target.gauntlet(cm.Budget(1, 1, 1, 1, 1))
        return
    attempts = target.gauntlet(cm.Budget(images=1, locations=2, steps=2, views=2)).attack()
    assert [row["broken"] for row in attempts.rows] == [False] * len(attempts.rows)
    assert target.replay_command(1) == "Target.replay(1)"
    certmask("table", tmp_path / "attack.jsonl")


def test_other_pictures_or_weights_are_not_attacked(coloured: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    images, labels = coloured
    run = cm.Defence(ColourNet(), COVER, batch=16).certify(images, labels).save(tmp_path / "own.jsonl")
    other = ColourNet()
    nn.init.ones_(other.head.weight)
    for data, model, got in (
        ((images, labels), other, "weights_sha256"),
        ((0.9 * images, labels), ColourNet(), "pixels"),
    ):
        with pytest.raises(cm.CertmaskError, match=got):
            cm.Target(run.path, data, tmp_path / "attack.jsonl", model).gauntlet(cm.Budget(1, 1, 1, 1, 1))


def test_the_page_about_python_says_what_happens() -> None:
    """Every call on the page has names and options that exist."""
    page = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    names = set(re.findall(r"\bcm\.(\w+)", page))
    assert {"certify", "Defence", "Target", "Budget", "BlackBox"} <= names
    assert all(hasattr(cm, name) for name in names)
    taken = {*inspect.signature(cm.certify).parameters, *inspect.signature(cm.Classifier).parameters}
    calls = re.findall(r"cm\.certify\((.*?)\)\n", code, re.DOTALL)
    assert len(calls) == 2
    assert all(set(re.findall(r"(\w+)=", call)) <= taken for call in calls)
