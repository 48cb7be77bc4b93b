"""The OpenVINO backend computes the same function up to its last digits, and the same one every time."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from certmask.classifier import Classifier
from certmask.covers import spread_cover
from certmask.deployed import Defence
from certmask.errors import ClassifierError
from certmask.rules import JuryRecovery
from certmask.threat import Patch
from certmask.zoo import load_classifier, shipped_models


def test_it_agrees_with_torch(network: nn.Module, images: Tensor) -> None:
    torch_ = Classifier(network, 24, precision="fp32", batch=8)
    openvino = Classifier(network, 24, precision="fp32", batch=8, backend="openvino")
    torch.testing.assert_close(openvino(images), torch_(images), atol=1e-4, rtol=1e-3)
    assert openvino.describe()["backend"] == "openvino"


def test_nobody_is_told_of_a_conversion(network: nn.Module) -> None:
    """OpenVINO would tell its makers, and start a copy of this process for every message."""
    Classifier(network, 24, precision="fp32", batch=2, backend="openvino")
    assert "openvino_telemetry" not in sys.modules


@pytest.mark.parametrize("name", shipped_models())
def test_every_shipped_model_is_the_same_network(name: str) -> None:
    """Traced with two black pictures, compared on three others; torch's doubts about the trace are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracerWarning)
        converted = load_classifier(name, precision="fp32", batch=3, backend="openvino")
    own = load_classifier(name, precision="fp32", batch=3)
    pictures = torch.rand(3, 3, *own.size, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(converted.logits(pictures), own.logits(pictures), atol=1e-3, rtol=1e-3)


class Doubtful(nn.Module):
    """A network that the tracer doubts, and that has something of its own to say."""

    def forward(self, images: Tensor) -> Tensor:
        warnings.warn("look at me", UserWarning, stacklevel=1)
        return images.mean(dim=(2, 3)) if images.sum() > -1 else images.amax(dim=(2, 3))


def test_only_the_tracers_doubts_are_silenced_and_only_while_converting() -> None:
    with warnings.catch_warnings(record=True) as traced:
        warnings.simplefilter("always")
        torch.jit.trace(Doubtful(), torch.zeros(2, 3, 8, 8))  # type: ignore[no-untyped-call]
    assert TracerWarning in {warning.category for warning in traced}
    with warnings.catch_warnings(record=True) as converted:
        warnings.simplefilter("always")
        Classifier(Doubtful(), 8, precision="fp32", batch=2, backend="openvino")
        warnings.warn("after", TracerWarning, stacklevel=1)
    assert "look at me" in {str(warning.message) for warning in converted}
    doubts = [str(warning.message) for warning in converted if warning.category is TracerWarning]
    assert doubts == ["after"]


class Branching(nn.Module):
    """Another network for bright pictures, which a trace of black ones does not know."""

    def forward(self, images: Tensor) -> Tensor:
        means = images.mean(dim=(2, 3))
        return 20 * means if images.sum() < 1 else -20 * means


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_network_that_converting_changes_is_refused(precision: str) -> None:
    with pytest.raises(ClassifierError, match="expected a network that OpenVINO computes as torch does, got a prob"):
        Classifier(Branching(), 8, precision=precision, batch=2, backend="openvino")
    Classifier(Branching(), 8, precision="fp32", batch=2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_answer_does_not_depend_on_the_company(precision: str, network: nn.Module, images: Tensor) -> None:
    classifier = Classifier(network, 24, precision=precision, batch=8, backend="openvino")
    together = classifier(images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(3))
    assert torch.equal(classifier(images[order]), together[order])


def test_a_whole_defence_runs_on_it(network: nn.Module, images: Tensor) -> None:
    cover = spread_cover(24, Patch(4, 4), 10, 2)
    shield = Defence(network, cover, JuryRecovery(), precision="fp32", batch=16, backend="openvino")
    plain = Defence(network, cover, JuryRecovery(), precision="fp32", batch=16)
    assert torch.equal(shield(images).labels, plain(images).labels)


@pytest.mark.parametrize(
    "options", [{"precision": "fp16", "backend": "openvino"}, {"backend": "abacus"}], ids=["precision", "backend"]
)
def test_what_it_does_not_do(options: dict[str, str], network: nn.Module) -> None:
    with pytest.raises(ClassifierError, match=r"expected .*got"):
        Classifier(network, 24, **options)  # type: ignore[arg-type]
    with pytest.raises(ClassifierError, match=r"expected .*got"):
        Classifier(lambda b: b.mean(dim=(2, 3)), 24, backend="openvino")
