"""Any network that gives logits can be defended: in fp32 where it must be, and else it is told what to change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conftest import tiny_network
from torch import Tensor, nn

from certmask.attacks import Surrogate
from certmask.classifier import Classifier
from certmask.errors import ClassifierError


class FixedScale(nn.Module):
    """Multiplies by a constant that is no buffer, so that it stays in fp32 wherever the network goes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((3,), 20.0)
        self.head = nn.Linear(3, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.mean(dim=(2, 3)) * self.scale)
        return logits


class Returns(nn.Module):
    """The tiny network; what it returns is arranged otherwise."""

    def __init__(self, arrange: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network, self.arrange = tiny_network(), arrange

    def forward(self, images: Tensor) -> Any:
        return self.arrange(self.network(images))


@dataclass
class Output:
    """As Hugging Face's models answer."""

    logits: Tensor
    loss: Tensor | None = None


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware on which ``auto`` takes bf16."""
    monkeypatch.setattr("certmask.classifier.best_precision", lambda device: "bf16")


def quantized() -> nn.Module:
    """With scales that were fixed beforehand, so that no picture looks at its neighbours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao.quantization import DeQuantStub, QuantStub, convert, get_default_qconfig, prepare

        network = nn.Sequential(QuantStub(), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), DeQuantStub()).eval()
        network.qconfig = get_default_qconfig("x86")  # type: ignore[no-untyped-call]
        prepared = prepare(network)  # type: ignore[no-untyped-call]
        prepared(torch.rand(4, 3, 24, 24, generator=torch.Generator().manual_seed(0)))
        converted: nn.Module = convert(prepared)  # type: ignore[no-untyped-call]
        return converted


@pytest.mark.parametrize("make", [FixedScale, quantized], ids=["constants", "quantized"])
def test_auto_falls_back_to_fp32_with_a_word_about_it(
    make: Callable[[], nn.Module], bf16: None, images: Tensor
) -> None:
    network = make()
    with pytest.warns(UserWarning, match="runs in fp32, because it fails in bf16: .*(Float|dtype)") as told:
        classifier = Classifier(network, 24, batch=4)
    assert [str(warning.message).count("\n") for warning in told if "fp32" in str(warning.message)] == [0]
    assert classifier.precision == classifier.describe()["precision"] == "fp32"
    torch.testing.assert_close(classifier(images), network(images).softmax(dim=1), atol=1e-4, rtol=0)


def test_an_explicit_bf16_is_told_what_to_do() -> None:
    with pytest.raises(ClassifierError, match=r"expected a model that computes in bf16, got .*take precision='fp32'"):
        Classifier(FixedScale(), 24, batch=4, precision="bf16")


def test_what_fails_in_fp32_too_is_not_blamed_on_bf16(bf16: None) -> None:
    warnings.simplefilter("error")
    with pytest.raises(ClassifierError, match="expected a model that takes 20×20 images"):
        Classifier(tiny_network(), 20, batch=4)


@pytest.mark.parametrize(
    "scripted",
    [
        lambda network: torch.jit.script(network),
        lambda network: torch.jit.trace(network, torch.rand(4, 3, 24, 24)),  # type: ignore[no-untyped-call]
        lambda network: torch.jit.freeze(torch.jit.script(network)),
    ],
    ids=["script", "trace", "frozen"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
def test_script_modules_run_in_fp32(scripted: Callable[[nn.Module], nn.Module], bf16: None, images: Tensor) -> None:
    network = tiny_network()
    classifier = Classifier(scripted(network), 24, batch=4)
    assert classifier.precision == "fp32"
    torch.testing.assert_close(classifier(images), network(images).softmax(dim=1))


LOGITS: dict[str, Callable[[Tensor], Any]] = {
    "object": Output,
    "dict": lambda logits: {"loss": None, "logits": logits},
    "tuple": lambda logits: (logits, torch.tensor(0.5), None),
    "list": lambda logits: [logits],
}


@pytest.mark.parametrize("backend", ["torch", "openvino"])
@pytest.mark.parametrize("arrange", LOGITS.values(), ids=LOGITS)
def test_logits_are_found_in_what_a_model_returns(
    arrange: Callable[[Tensor], Any], backend: str, images: Tensor
) -> None:
    plain = Classifier(tiny_network(), 24, batch=4, precision="fp32")
    found = Classifier(Returns(arrange), 24, batch=4, precision="fp32", backend=backend)
    torch.testing.assert_close(found(images), plain(images), atol=1e-5, rtol=0)


def test_gradients_come_from_the_same_logits(images: Tensor) -> None:
    surrogate = Surrogate(Classifier(Returns(Output), 24, batch=4, precision="fp32"))
    assert surrogate(images, torch.full((len(images), 1, 2), -1)).shape == (len(images), 1, 5)


@pytest.mark.parametrize(
    ("arrange", "got"),
    [
        (lambda logits: (logits, logits), r"a tuple of \[4, 5\], \[4, 5\]"),
        (lambda logits: (torch.tensor(0.5), logits), r"a tuple of \[\], \[4, 5\]"),
        (lambda logits: {"out": logits}, "a dict of out"),
        (lambda logits: (), "a tuple of nothing"),
        (lambda logits: logits.numpy(), "a ndarray"),
        (lambda logits: None, "a NoneType"),
    ],
)
def test_what_could_be_meant_in_two_ways_is_refused(arrange: Callable[[Tensor], Any], got: str) -> None:
    with pytest.raises(ClassifierError, match=f"expected logits .*, got {got}: wrap it") as error:
        Classifier(Returns(arrange), 24, batch=4, precision="fp32")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arrange", [lambda logits: logits[:, 0], lambda logits: logits[:, :1]], ids=["n", "n, 1"])
def test_a_single_logit_is_told_how_to_become_two(arrange: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ClassifierError, match=r"at least two classes, got one number per image .* torch\.stack"):
        Classifier(Returns(arrange), 24, batch=4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("channels", [1, 4])
def test_another_number_of_channels_is_told(channels: int) -> None:
    network = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    traced = torch.jit.trace(network, torch.rand(2, channels, 24, 24))  # type: ignore[no-untyped-call]
    for model in (network, traced):
        with pytest.raises(ClassifierError, match=f"images with 3 channels, got one that takes {channels}: wrap it"):
            Classifier(model, 24, batch=2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_that_ends_in_softmax_is_warned_of_once(precision: str, images: Tensor) -> None:
    network = nn.Sequential(tiny_network(), nn.Softmax(dim=1))
    with pytest.warns(UserWarning, match="gives probabilities where logits are expected") as told:
        classifier = Classifier(network, 24, batch=4, precision=precision)
    assert len(told) == 1
    warnings.simplefilter("error")
    classifier(images)
    Classifier(tiny_network(), 24, batch=4, precision=precision)


def test_classes_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ClassifierError, match="expected logits of 7 classes, got 5"):
        Classifier(tiny_network(), 24, classes=7)
