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
from certmask.engine.margin import measured_margin
from certmask.errors import CertmaskError, ChangedModelError, ClassifierError, ResultsError
from certmask.results.file import ResultsFile, read_results
from certmask.results.run import read_run
from certmask.rules import JuryRecovery, PatchCleanser, Undefended
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
    """Every picture of a batch is answered alike, and so is every batch but the last that a classifier tries."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, batch: Tensor) -> Tensor:
        self.asked += 1
        return (30 if self.asked <= 8 else 31) * batch.mean(dim=(2, 3))


def test_state_that_only_time_shows_is_refused() -> None:
    """One batch counts the classes, seven try company, and the first of these is asked again."""
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


class Changing(nn.Module):
    """The same as a network whose weights can be hashed."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.network, self.patience = tiny_network(), patience

    def forward(self, batch: Tensor) -> Tensor:
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


class FarOff(nn.Module):
    """Looks at the mean of its batch; one class is so far off, or so impossible, that it dwarfs every change."""

    def __init__(self, far: float) -> None:
        super().__init__()
        self.far = far

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        return torch.cat([30 * means + means.mean(dim=0), torch.full((len(batch), 1), self.far)], dim=1)


@pytest.mark.parametrize("far", [-1e9, -torch.inf, -1e4])
def test_a_class_that_is_far_off_hides_no_company(far: float) -> None:
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch"):
        Classifier(FarOff(far), 24, precision="fp32", batch=8)


def test_a_model_without_numbers_about_fixed_pictures_is_refused() -> None:
    """Nothing could be compared."""
    with pytest.raises(ClassifierError, match="expected finite logits"):
        Classifier(lambda batch: 30 * batch.mean(dim=(2, 3)) * torch.nan, 24)


@pytest.mark.parametrize("flip", [lambda logits: -logits, lambda logits: logits + 1])
def test_every_batch_has_a_canary(flip: Callable[[Tensor], Tensor], images: Tensor) -> None:
    """Also one that pictures fill; and one whose two classes change places is noticed as well as any other."""
    changed = False

    def model(batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))[:, :2]
        logits = 20 * torch.stack([means[:, 0] - means[:, 1], means[:, 1] - means[:, 0]], dim=1)
        return flip(logits) if changed else logits

    shield = cm.Defence(model, COVER, PatchCleanser(), batch=len(COVER) // 2)
    before = shield(images)
    changed = True
    if torch.equal(flip(torch.eye(2)).softmax(dim=1), torch.eye(2).softmax(dim=1)):
        assert torch.equal(shield(images).labels, before.labels)  # the same function after all
        return
    with pytest.raises(ChangedModelError):
        shield(images)


def test_an_interrupted_run_is_looked_back_at(images: Tensor, tmp_path: Path) -> None:
    """Ctrl-C after the model has changed, before a canary could say so: the file is void, and no vote is kept."""
    (tmp_path / "photos").mkdir()
    dataset, model = Photos(tmp_path / "photos", images).dataset, Changing(10**9)
    classifier: Any = Classifier(model, 24, batch=16, precision="fp32")
    engine = Engine(classifier, [COVER])

    def interrupting(what: str, count: int) -> None:
        if (what, count) == ("images", 1):
            classifier.model.patience = 0
            raise KeyboardInterrupt

    defences = [MaskedDefence(COVER, Undefended(), "undefended")]
    with pytest.raises(KeyboardInterrupt):
        certify_run(engine, dataset, defences, tmp_path / "run.jsonl", votes=tmp_path / "votes", progress=interrupting)
    with pytest.raises(ResultsError, match="which is void"):
        read_results(tmp_path / "run.jsonl")
    assert not list((tmp_path / "votes").iterdir())


def test_a_mark_that_finds_no_room_is_made_in_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    with ResultsFile(path, {"kind": "certify"}) as results:
        monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        results.void("it changed")
    assert not path.exists()
    assert (tmp_path / "run.jsonl.void").exists()


def test_votes_of_a_void_run_are_not_kept(images: Tensor, tmp_path: Path) -> None:
    dataset = Photos(tmp_path, images).dataset

    def work(patience: int, out: str) -> int:
        classifier: Any = Classifier(Changing(patience), 24, batch=16, precision="fp32")
        defences = [MaskedDefence(COVER, Undefended(), "undefended")]
        certify_run(Engine(classifier, [COVER]), dataset, defences, tmp_path / out, votes=tmp_path / "votes")
        return patience - int(classifier.model.patience)

    times = work(10**9, "sound.jsonl")
    for path in (tmp_path / "votes").iterdir():
        path.unlink()
    with pytest.raises(ChangedModelError):
        work(times, "void.jsonl")
    assert not list((tmp_path / "votes").iterdir())


def test_a_model_that_changes_when_memory_runs_out_is_noticed(images: Tensor) -> None:
    """The shape of batches changes then, but not the function, beyond rounding."""

    class Cramped(Forgetful):
        def __call__(self, batch: Tensor) -> Tensor:
            if len(batch) > 8 and self.patience <= 1:
                raise torch.OutOfMemoryError("no memory")
            return super().__call__(batch)

    engine = Engine(Classifier(Cramped(40), 24, batch=16), [COVER])
    with pytest.raises(ChangedModelError), pytest.warns(UserWarning, match="too little memory"):
        list(examine(engine, images, [0] * len(images), [MaskedDefence(COVER, JuryRecovery())]))


def test_engines_of_one_classifier_have_batches_of_their_own(network: nn.Module, images: Tensor) -> None:
    """Where memory runs out in one of them, the other goes on in the shape that it began with."""
    classifier = Classifier(network, 24, batch=16, precision="fp32")
    one, other = Engine(classifier, [COVER]), Engine(classifier, [COVER])
    with pytest.warns(UserWarning, match="too little memory"):
        one.forward.halve()
    findings = list(examine(other, images, None, [MaskedDefence(COVER, JuryRecovery())]))
    assert (one.batch, other.batch, {finding.batch for finding in findings}) == (8, 16, {16})


def test_a_margin_is_not_measured_in_the_middle_of_a_run(network: nn.Module, images: Tensor) -> None:
    """It would put other images in the place of those that are being certified."""
    engine = Engine(Classifier(network, 24, batch=16, precision="fp32"), [COVER])
    running = examine(engine, images, None, [MaskedDefence(COVER, Undefended())])
    next(running)
    with pytest.raises(CertmaskError, match="one run at a time"):
        measured_margin(engine, list(images[:2]))


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("after", [lambda _: 0.0, lambda _: torch.nan, lambda logits: -logits])
def test_a_canary_in_every_shape(batch: int, after: Callable[[Tensor], Any], images: Tensor) -> None:
    """Unsure at once, without numbers, or of the contrary opinion; also where batches of one have no place for it."""
    model, changed = tiny_network(), False
    shield = cm.Defence(
        lambda pictures: 0 * model(pictures) + after(model(pictures)) if changed else model(pictures),
        COVER,
        PatchCleanser(),
        batch=batch,
    )
    shield(images[:1])
    changed = True
    with pytest.raises(ChangedModelError):
        shield(images[:1])


def test_an_explanation_is_looked_back_at(images: Tensor) -> None:
    """It comes with certificates, too."""
    shield = cm.Defence(Changing(10**9), COVER, batch=16, precision="fp32")
    shield.explain(images[:2])
    classifier: Any = shield.classifier
    classifier.model.patience = 0
    with pytest.raises(ChangedModelError):
        shield.explain(images[:2])


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
    """Takes strangers into account, in pictures with a certain colour in a corner, which the fixed ones have not."""

    def forward(self, batch: Tensor) -> Tensor:
        means = batch.mean(dim=(2, 3))
        odd = (batch[:, 0, 0, 0] * 255).round() == 77
        return 30 * means + odd[:, None] * means.flip(0)


def test_a_run_tries_its_own_photos(images: Tensor, tmp_path: Path) -> None:
    """What the fixed pictures do not bring out, masked views of some photos may."""
    marked = images.clone()
    marked[:, 0, 0, 0] = 77.2 / 255
    dataset = Photos(tmp_path, marked).dataset
    classifier = Classifier(FlinchesAtPhotos(), 24, precision="fp32", batch=16)
    with pytest.raises(ClassifierError, match="among strangers"):
        certify_run(
            Engine(classifier, [COVER]), dataset, [MaskedDefence(COVER, JuryRecovery())], tmp_path / "run.jsonl"
        )
    assert not (tmp_path / "run.jsonl").exists()
    with pytest.raises(ClassifierError, match="among strangers"):
        cm.Defence(classifier, COVER).certify(marked, [0] * len(marked))
