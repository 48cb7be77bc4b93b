"""What would make a certificate false or lose somebody's work, each refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import certmask as cm
from certmask.classifier import Classifier
from certmask.data import load_dataset
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.errors import CertmaskError, ClassifierError, CoverError, DataError, ResultsError
from certmask.identity import architecture_digest, weights_digest
from certmask.passes import Passes
from certmask.results.file import ResultsFile
from certmask.rules import JuryDetection, JuryRecovery, Undefended
from certmask.votes import VoteStore

COVER = cm.spread_cover(24, cm.Patch(4, 4), 10, 2)


class ScaledByTheBatch(nn.Module):
    """Divides by the largest value of the whole batch, as dynamic quantization does."""

    def forward(self, images: Tensor) -> Tensor:
        return 30 * images.mean(dim=(2, 3)) / images.abs().amax()


class Random(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.randn(len(images), 3)


@pytest.mark.parametrize("model", [ScaledByTheBatch(), Random()], ids=["coupled", "random"])
def test_a_model_that_looks_at_its_neighbours_is_refused(model: nn.Module) -> None:
    """Whoever patches one picture of a batch would otherwise move the votes of the masks that hide the patch."""
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch"):
        cm.Defence(model, COVER)


def test_an_engine_runs_one_thing_at_a_time(network: nn.Module, images: Tensor) -> None:
    engine = Engine(Classifier(network, 24, batch=8), [COVER])
    first = examine(engine, images, None, [MaskedDefence(COVER, Undefended())])
    next(first)
    with pytest.raises(CertmaskError, match="one run at a time"):
        list(examine(engine, images, None, [MaskedDefence(COVER, Undefended())]))
    first.close()  # type: ignore[attr-defined]
    assert len(list(examine(engine, images, None, [MaskedDefence(COVER, Undefended())]))) == len(images)


def test_a_defence_can_be_called_from_several_threads(network: nn.Module, images: Tensor) -> None:
    shield = cm.Defence(network, COVER, JuryRecovery(), batch=16)
    expected = shield(images).labels
    answers: list[Tensor] = []
    threads = [threading.Thread(target=lambda: answers.append(shield(images).labels)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(torch.equal(answer, expected) for answer in answers)


def test_a_cover_that_the_engine_does_not_know_is_refused(network: nn.Module) -> None:
    engine = Engine(Classifier(network, 24, batch=8), [COVER])
    with pytest.raises(CoverError, match="expected one of the covers"):
        engine.votes(cm.spread_cover(24, cm.Patch(4, 4), 10, 3), VoteStore(1, Passes(4), 5))


@pytest.mark.parametrize(
    "changes",
    [
        {"fold": (0, 1)},
        {"copies": (0,)},
        {"copies": ()},
        {"masks": (), "copies": ()},
        {"grids": ((-1,),)},
        {"image": (0, 9)},
    ],
    ids=str,
)
def test_a_cover_made_by_hand_is_checked(changes: dict[str, object]) -> None:
    """One mask in a corner covers next to nothing, whatever is claimed about it."""
    parts = {
        "tiling": "x", "image": (32, 32), "threat": cm.Patch(4, 4), "mask": (4, 4), "fold": (1, 1),
        "masks": (cm.Mask(0, 0, 4, 4),), "copies": (1,), **changes,
    }  # fmt: skip
    with pytest.raises(CertmaskError, match=r"expected .*got"):
        cm.Cover(**parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["my notes, no newline", "line one\nmy second line", "{}\n", '{"a": 1}\nrest'])
def test_a_file_that_is_not_ours_is_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ResultsError, match=r"expected .*got"):
        ResultsFile(path, {"model": {}})
    assert path.read_text() == content


def test_the_digest_sees_every_buffer() -> None:
    """Also buffers that are not saved, and the architecture itself."""
    one, two = nn.Sequential(nn.Flatten()), nn.Sequential(nn.Flatten())
    one.register_buffer("scale", torch.tensor(1.0), persistent=False)
    two.register_buffer("scale", torch.tensor(2.0), persistent=False)
    assert weights_digest(one) != weights_digest(two)
    assert architecture_digest(nn.Sequential(nn.ReLU())) != architecture_digest(nn.Sequential(nn.Tanh()))


def test_lists_that_cannot_be_told_apart(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("a.jpg,0\na.jpg,1\n")
    (tmp_path / "crane.csv").write_text("a.jpg,crane\n")
    classes = [("n1", "crane"), ("n2", "crane")]
    with pytest.raises(DataError, match=r"got a\.jpg twice"):
        load_dataset(str(tmp_path / "twice.csv"), classes, 1.0)
    with pytest.raises(DataError, match="unambiguous"):
        load_dataset(str(tmp_path / "crane.csv"), classes, 1.0)
    for name in ("n1", "n2-typo"):
        (tmp_path / "folders" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="got 'n2-typo'"):
        load_dataset(str(tmp_path / "folders"), classes, 1.0)


def test_a_schemes_row_does_not_depend_on_the_schemes_beside_it(network: nn.Module, images: Tensor) -> None:
    """Dissent counts the votes that a defence itself asked for."""
    defences = [MaskedDefence(COVER, Undefended()), MaskedDefence(COVER, JuryDetection())]
    engine = Engine(Classifier(network, 24, batch=16), [COVER])
    forth = {f.number: f.value for f in examine(engine, images, None, defences)}
    back = {f.number: f.value[::-1] for f in examine(engine, images, None, defences[::-1])}
    assert forth == back


@pytest.mark.parametrize("margin", [float("inf"), float("nan"), -1.0, "wide", None])
def test_margins_that_are_none(margin: object) -> None:
    with pytest.raises(CertmaskError, match=r"expected a margin .*got"):
        JuryDetection(margin=margin)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"mean": (0.5,)}, {"mean": 0.5}, {"std": (1, 1)}, {"batch": 1.5}, {"batch": "a"}])
def test_options_of_the_wrong_kind(options: dict[str, object], network: nn.Module) -> None:
    with pytest.raises(ClassifierError, match=r"expected .*got"):
        Classifier(network, 24, **options)  # type: ignore[arg-type]
