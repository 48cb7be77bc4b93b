"""The OpenVINO backend computes the same function up to its last digits, and the same one every time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from certmask.classifier import Classifier
from certmask.covers import spread_cover
from certmask.defence import Defence
from certmask.errors import ClassifierError
from certmask.geometry import Patch
from certmask.rules import JuryRecovery


def test_it_agrees_with_torch(network: nn.Module, images: Tensor) -> None:
    torch_ = Classifier(network, 24, precision="fp32", batch=8)
    openvino = Classifier(network, 24, precision="fp32", batch=8, backend="openvino")
    torch.testing.assert_close(openvino(images), torch_(images), atol=1e-4, rtol=1e-3)
    assert openvino.describe()["backend"] == "openvino"


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
