"""The measured margin, and what happens when memory runs out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from certmask.certification import photo_margin
from certmask.classifier import Classifier
from certmask.covers import spread_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.engine.margin import measured_margin
from certmask.errors import ClassifierError, DataError
from certmask.rules import JuryRecovery
from certmask.threat import Patch

COVER = spread_cover(24, Patch(4, 4), 10, 2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_deterministic_network_needs_no_margin(precision: str, network: nn.Module, images: Tensor) -> None:
    engine = Engine(Classifier(network, 24, precision=precision, batch=16), [COVER])
    assert measured_margin(engine, list(images)) == pytest.approx((0, 0, 0), abs=1e-6)


def test_an_answer_that_depends_on_the_batch_shape_is_measured(images: Tensor) -> None:
    """A model whose logits shift with the batch size: the margin is twice the change of a number that a rule reads."""

    def fickle(batch: Tensor) -> Tensor:
        shift = 1.0 if len(batch) == 16 else 0.0
        return torch.tensor([[shift, 0.0]]).expand(len(batch), 2)

    engine = Engine(Classifier(fickle, 24, batch=16), [COVER])
    before, after = torch.tensor([0.0, 0.0]).softmax(dim=0), torch.tensor([1.0, 0.0]).softmax(dim=0)
    margin = measured_margin(engine, list(images))
    assert margin.probability == pytest.approx(2 * (after - before).abs().max().item())
    assert margin.logarithm == pytest.approx(2 * (after.log() - before.log()).abs().max().item())


@pytest.mark.parametrize(("rounding", "measured"), [(5e-5, True), (2e-4, False)])
def test_an_answer_that_rounds_otherwise_in_another_place(rounding: float, measured: bool, images: Tensor) -> None:
    """Little of it is measured, so that a margin absorbs it; more is no rounding, and refused."""

    def places(batch: Tensor) -> Tensor:
        return torch.stack([1 + rounding * torch.arange(len(batch)) / len(batch), torch.zeros(len(batch))], dim=1)

    if measured:
        assert measured_margin(Engine(Classifier(places, 24, batch=16), [COVER]), list(images)).probability > 1e-6
    else:
        with pytest.raises(ClassifierError, match="does not depend on the rest of its batch"):
            Classifier(places, 24, batch=16)


class Cramped:
    """A model that runs out of memory above a certain batch size, from the second call on."""

    def __init__(self, room: int, patience: int) -> None:
        self.room, self.calls, self.patience, self.sizes = room, 0, patience, []  # type: ignore[var-annotated]

    def __call__(self, batch: Tensor) -> Tensor:
        self.calls += 1
        if len(batch) > self.room and self.calls > self.patience:
            raise torch.OutOfMemoryError("no memory")
        self.sizes.append(len(batch))
        return 30 * batch.mean(dim=(2, 3))


@pytest.mark.parametrize("patience", [0, 2, 5])
def test_out_of_memory_halves_the_batch_and_goes_on(patience: int, images: Tensor) -> None:
    """At the start or in the middle of a run: the same outcomes, with smaller batches."""
    whole = Engine(Classifier(Cramped(64, 0), 24, batch=16), [COVER])
    expected = {f.number: f.value for f in examine(whole, images, [0] * 12, [MaskedDefence(COVER, JuryRecovery())])}
    model = Cramped(4, patience)
    engine = Engine(Classifier(model, 24, batch=16), [COVER])
    found = {f.number: f.value for f in examine(engine, images, [0] * 12, [MaskedDefence(COVER, JuryRecovery())])}
    assert found == expected
    assert engine.batch == 4
    assert set(model.sizes[patience:]) == {4}


def test_no_memory_for_one_image_is_an_error(images: Tensor) -> None:
    with pytest.raises(ClassifierError, match="expected memory for one image"):
        Classifier(Cramped(0, 0), 24)
    engine = Engine(Classifier(Cramped(0, 10), 24, batch=4), [COVER])
    with pytest.raises(ClassifierError, match="expected memory for one image"):
        list(examine(engine, images, None, [MaskedDefence(COVER, JuryRecovery())]))


def test_a_margin_is_measured_or_refused(network: nn.Module, tmp_path: Path) -> None:
    """Photos that cannot be read are passed over; without any there is no margin, not one of 0."""
    classifier = Classifier(network, 24, batch=4, precision="fp32")
    (tmp_path / "0").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "0" / name).write_bytes(b"no picture")
    dataset = load_dataset(str(tmp_path), None, 1.0)
    with pytest.raises(DataError, match=r"expected a readable image in .*b\.png"):
        photo_margin(Engine(classifier, [COVER]), dataset)
    Image.new("RGB", (24, 24)).save(tmp_path / "0" / "b.png")
    assert photo_margin(Engine(classifier, [COVER]), dataset) == pytest.approx((0, 0, 0), abs=1e-6)
