"""Models that are not functions of one picture: each lets an attacker reach the votes that hide his patch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_network
from torch import Tensor, nn

import certmask as cm
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.company import ROUNDING, company_change, probes
from certmask.covers import spread_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.errors import ChangedModelError, ClassifierError, ResultsError
from certmask.results.run import read_run
from certmask.rules import JuryRecovery, Undefended
from certmask.threat import Patch

COVER = spread_cover(24, Patch(4, 4), 10, 2)


class RunningMean(nn.Module):
    """Looks at earlier rows only: the first row of a batch is as it would be alone."""

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        return 30 * means.cumsum(dim=0) / torch.arange(1, len(batch) + 1)[:, None]


class Recurrent(nn.Module):
    """A GRU that was not told that the batch comes first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.head = nn.GRU(3, 8), nn.Linear(8, 3)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(self.gru(batch.mean(dim=(2, 3))[:, None])[0][:, 0])  # type: ignore[no-any-return]


class Neighbour(nn.Module):
    """Looks at the row before it, the first row at the last one."""

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        return 30 * means + 0.01 * means.roll(1, dims=0)


class DynamicScale(nn.Module):
    """Rounds activations to 127 steps of the largest in the batch, as dynamic quantization does."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.network(batch)
        step = logits.abs().max() / 127
        return (logits / step).round() * step


class Saturated(nn.Module):
    """Statistics of the batch behind logits so large that every probability is 0 or 1."""

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        return 1e4 * torch.arange(3) + (means - means.mean(dim=0)) / (means.std(dim=0) + 1e-3)


class SaturatedDropout(nn.Module):
    """Dropout that evaluation mode does not reach, behind such logits."""

    def forward(self, batch: Tensor) -> Tensor:
        return 1e4 * torch.arange(3) + 10 * nn.functional.dropout(batch.mean(dim=(2, 3)), 0.5, training=True)


class Accumulating(nn.Module):
    """Remembers a running mean of all that it was ever asked."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Tensor = torch.zeros(3)

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        self.memory = 0.99 * self.memory + 0.01 * means.mean(dim=0)
        return means - self.memory


class LastPlace(nn.Module):
    """Only the last row of a batch comes out otherwise."""

    def forward(self, batch: Tensor) -> Tensor:
        logits = 30 * batch.mean(dim=(2, 3))
        return torch.cat([logits[:-1], 1.01 * logits[-1:]])


COUPLED = [
    RunningMean, Recurrent, Neighbour, DynamicScale, Saturated, SaturatedDropout, Accumulating, LastPlace,
]  # fmt: skip


@pytest.mark.parametrize("model", COUPLED, ids=lambda model: model.__name__)
def test_a_model_that_is_no_function_of_one_picture_is_refused(model: type[nn.Module]) -> None:
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch, on chance or on earlier"):
        Classifier(model(), 24, precision="fp32", batch=8)


class Ageing(nn.Module):
    """Every picture of a batch is answered alike, and so is every batch of the first six."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, batch: Tensor) -> Tensor:
        self.asked += 1
        return (30 if self.asked <= 7 else 31) * batch.mean(dim=(2, 3))


def test_state_that_only_time_shows_is_refused() -> None:
    """One batch counts the classes, six try company, and the first of these is asked again."""
    with pytest.raises(ClassifierError, match="on chance or on earlier"):
        Classifier(Ageing(), 24, precision="fp32", batch=8)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [1, 2, 7, 32])
def test_a_network_is_not_suspected(batch: int, precision: str, network: nn.Module) -> None:
    """Bit for bit, in every place, whatever the neighbours."""
    assert Classifier(network, 24, precision=precision, batch=batch).company <= ROUNDING[precision] / 10


def test_every_picture_stands_in_every_place() -> None:
    seen: set[tuple[int, float]] = set()

    def logits(batch: Tensor) -> Tensor:
        seen.update((place, float(value)) for place, value in enumerate(batch.mean(dim=(1, 2, 3)).tolist()))
        return batch.mean(dim=(2, 3))

    assert company_change(logits, probes((24, 24)), 16) == 0
    assert len(seen) == 3 * 16


def test_the_fixed_pictures_are_the_same_everywhere() -> None:
    """Whole 255ths, which no machine rounds otherwise."""
    pictures = probes((24, 20))
    assert pictures.shape == (3, 3, 24, 20)
    assert torch.equal(pictures, (pictures * 255).round() / 255)
    assert len({picture.mean().item() for picture in pictures}) == 3


class Forgetful:
    """A good function of one picture until it has been asked often enough; then another one."""

    def __init__(self, patience: int) -> None:
        self.network, self.patience = tiny_network(), patience

    def __call__(self, batch: Tensor) -> Tensor:
        self.patience -= 1
        logits: Tensor = self.network(batch)
        return logits if self.patience > 0 else -logits


def calls(work: Callable[[Any], object]) -> int:
    """How often the model is asked when nothing goes wrong."""
    model = Forgetful(10**9)
    work(model)
    return 10**9 - model.patience


def test_a_canary_notices_state_in_the_middle_of_a_run(images: Tensor) -> None:
    """What is left of a batch holds a fixed picture; no finding comes out of a batch in which its answer changed."""

    def work(model: Forgetful) -> list[object]:
        engine = Engine(Classifier(model, 24, batch=16), [COVER])
        return [f.value for f in examine(engine, images, [0] * len(images), [MaskedDefence(COVER, JuryRecovery())])]

    with pytest.raises(ChangedModelError, match="a fixed picture in every batch"):
        work(Forgetful(calls(work) - 1))


def test_a_callable_that_changes_after_certifying_is_noticed(images: Tensor) -> None:
    """Weights of a plain callable cannot be hashed; its answer about the canary can be compared."""
    network = tiny_network()
    shield = cm.Defence(lambda batch: network(batch), COVER, JuryRecovery(), batch=16)
    shield.certify(images, [0] * len(images))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(-1.0)
    with pytest.raises(ChangedModelError):
        shield(images)
    with pytest.raises(ChangedModelError):
        shield.certify(images, [0] * len(images))


class Photos:
    """Four photos in a folder."""

    def __init__(self, folder: Path, images: Tensor) -> None:
        from PIL import Image

        (folder / "0").mkdir()
        for number, image in enumerate(images[:4]):
            pixels = (image * 255).byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(folder / "0" / f"{number}.png")
        self.dataset = load_dataset(str(folder), None, 1.0)


def test_a_model_that_answers_otherwise_after_a_run_makes_it_void(images: Tensor, tmp_path: Path) -> None:
    """Its rows stay in the file, and no reader takes them for results."""
    (tmp_path / "photos").mkdir()
    dataset = Photos(tmp_path / "photos", images).dataset

    def work(model: Any, out: str = "sound.jsonl") -> None:
        engine = Engine(Classifier(model, 24, batch=16), [COVER])
        certify_run(engine, dataset, [MaskedDefence(COVER, Undefended(), "undefended")], tmp_path / out)

    times = calls(work)
    with pytest.raises(ChangedModelError, match="void"):
        work(Forgetful(times), "void.jsonl")
    lines = (tmp_path / "void.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 4 + 1
    assert set(json.loads(lines[-1])) == {"void"}
    with pytest.raises(ResultsError, match="which is void"):
        read_run(tmp_path / "void.jsonl")
    with pytest.raises(ResultsError, match="which is void"):
        work(Forgetful(10**9), "void.jsonl")
    assert len(read_run(tmp_path / "sound.jsonl").rows) == 4


class FlinchesAtPhotos(nn.Module):
    """Takes neighbours into account only in pictures that are not too plain, which the fixed ones are."""

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        odd = (batch[:, 0, 0, 0] * 255).round() == 77
        return 30 * means + odd[:, None] * means.flip(0)


def test_a_run_tries_its_own_photos(images: Tensor, tmp_path: Path) -> None:
    """What the fixed pictures do not bring out, some of the photos may."""
    marked = images.clone()
    marked[:, 0, 0, 0] = 77.2 / 255
    dataset = Photos(tmp_path, marked).dataset
    engine = Engine(Classifier(FlinchesAtPhotos(), 24, precision="fp32", batch=16), [COVER])
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch"):
        certify_run(engine, dataset, [MaskedDefence(COVER, JuryRecovery())], tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl").exists()
