"""The classifier: same answer whatever the company, and clear errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from conftest import DEVICES, tiny_network
from looking import outputs_under, singles_of
from torch import Tensor, nn

from certmask.backends import BACKENDS, PRECISIONS, Backend, backends_help, default_backend, devices
from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover
from certmask.engine import Engine
from certmask.errors import CertmaskError, ClassifierError
from certmask.identity import weights_digest
from certmask.threat import Patch


def test_probabilities_match_the_bare_network(network: nn.Module, images: Tensor) -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    classifier = Classifier(network, 24, mean=mean, std=std, batch=5, precision="fp32")
    normal = (images - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    torch.testing.assert_close(classifier(images), network(normal).softmax(dim=1))
    assert classifier.classes == 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_an_answer_does_not_depend_on_the_company(
    precision: str, device: str, network: nn.Module, images: Tensor
) -> None:
    """Bit for bit: alone, in another order, in the middle of a batch."""
    classifier = Classifier(network, 24, precision=precision, batch=8, device=device)
    together = classifier(images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(3))
    assert torch.equal(classifier(images[order]), together[order])
    assert torch.equal(torch.cat([classifier(image[None]) for image in images]), together)


def test_the_model_always_sees_the_fixed_batch_shape(images: Tensor) -> None:
    seen: list[int] = []

    def model(batch: Tensor) -> Tensor:
        seen.append(len(batch))
        return batch.mean(dim=(2, 3))

    Classifier(model, 24, batch=7)(images)
    assert set(seen) == {7}


def test_the_model_is_copied(images: Tensor) -> None:
    """Training the user's network further does not change what was certified, nor its recorded hash."""
    network = tiny_network()
    classifier = Classifier(network, 24)
    before = classifier(images)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.0)
    network.train()
    assert torch.equal(classifier(images), before)
    assert classifier.weights != weights_digest(network)


def _nan(batch: Tensor) -> Tensor:
    return batch.mean(dim=(2, 3)) * float("nan")


@pytest.mark.parametrize(
    ("model", "images", "got"),
    [
        (_nan, torch.rand(2, 3, 24, 24), "NaN"),
        (lambda b: b.mean(dim=(2, 3)), torch.rand(2, 3, 20, 24), "20"),
        (lambda b: b.mean(dim=(2, 3)), torch.rand(3, 24, 24), "24, 24"),
        (lambda b: b.mean(dim=(2, 3)), torch.rand(2, 3, 24, 24) * 255, "to 25"),
        (lambda b: b.mean(dim=(2, 3)), torch.zeros(2, 3, 24, 24, dtype=torch.uint8), "uint8"),
        (lambda b: b.mean(dim=(2, 3)), torch.full((1, 3, 24, 24), float("nan")), "nan"),
    ],
)
def test_bad_images_and_bad_outputs(model: nn.Module, images: Tensor, got: str) -> None:
    with pytest.raises(ClassifierError, match=r"expected .*got") as error:
        Classifier(model, 24, classes=3)(images)
    assert got in str(error.value)


@pytest.mark.parametrize(
    "model",
    [
        lambda b: b,
        lambda b: b.mean(),
        lambda b: b.mean(dim=(2, 3))[:1],
        lambda b: b.mean(dim=(1, 2, 3))[:, None],
        nn.Sequential(nn.Flatten(), nn.Linear(7, 3)),
    ],
)
def test_models_that_do_not_give_logits(model: nn.Module) -> None:
    with pytest.raises(ClassifierError, match=r"expected .*got"):
        Classifier(model, 24)


@pytest.mark.parametrize(
    ("machine", "mkldnn", "avx512_bf16", "amx", "expected"),
    [
        ("x86_64", True, False, False, "fp32"),  # AVX-512 alone: torch would emulate bf16
        ("x86_64", True, True, False, "bf16"),
        ("AMD64", True, False, True, "bf16"),
        ("x86_64", False, True, True, "fp32"),
        ("aarch64", True, False, False, "bf16"),
        ("aarch64", False, False, False, "fp32"),
    ],
)
def test_a_cpu_that_emulates_bf16_computes_in_fp32(
    machine: str, mkldnn: bool, avx512_bf16: bool, amx: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: mkldnn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert devices.best_precision("cpu") == expected


def test_a_torch_without_mkldnn_computes_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Apple's processors, where its operators are not even there."""
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    assert devices.best_precision("cpu") == "fp32"
    assert devices.best_precision("mps") == "fp32"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_a_gpu_that_emulates_bf16_computes_in_fp32(
    capability: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of several GPUs is the current one."""
    capabilities = {torch.device("cuda:0"): (6, 0), torch.device("cuda:1"): capability}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    assert devices.best_precision("cuda:1") == expected


@pytest.mark.parametrize("options", [{"precision": "int4"}, {"batch": 0}, {"std": (0, 1, 1)}, {"class_names": ["a"]}])
def test_bad_options(options: dict[str, object], network: nn.Module) -> None:
    with pytest.raises(CertmaskError, match=r"expected .*got"):
        Classifier(network, 24, **options)  # type: ignore[arg-type]


def test_logits_that_change_shape_later(images: Tensor) -> None:
    shapes = iter([3] * 8 + [4])
    with pytest.raises(ClassifierError, match="expected logits of shape"):
        Classifier(lambda b: torch.zeros(len(b), next(shapes)), 24)(images)


@pytest.mark.parametrize("device", ["cuda:77", "toaster"])
def test_a_device_that_is_not_there_is_told(device: str, network: nn.Module) -> None:
    with pytest.raises(CertmaskError, match=f"expected a device that is there, got '{device}'"):
        Classifier(network, 24, device=device)


def test_auto_takes_the_gpu_where_there_is_one(network: nn.Module) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert Classifier(network, 24, device="auto", batch=2).device.type == expected


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_backend_refuses_what_its_row_does_not_say(backend: Backend, network: nn.Module) -> None:
    for precision in PRECISIONS:
        if precision not in backend.precisions:
            with pytest.raises(ClassifierError, match=f"expected precision .* with {backend.title}, got '{precision}'"):
                Classifier(network, 24, precision=precision, backend=backend.name)
    if not backend.plain_callables:
        with pytest.raises(ClassifierError, match=f"expected an nn.Module on the .* for {backend.title}, got function"):
            Classifier(lambda batch: batch.mean(dim=(2, 3)), 24, backend=backend.name)


def test_auto_takes_the_last_installed_backend_that_serves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certmask.backends.backend.find_spec", lambda name: name)
    assert (default_backend("cpu"), default_backend("cuda:1")) == ("openvino", "torch")
    monkeypatch.setattr("certmask.backends.backend.find_spec", lambda name: name == "torch")
    assert default_backend("cpu") == "torch"
    monkeypatch.setattr("certmask.backends.backend.find_spec", lambda name: name != "openvino")
    assert default_backend("cpu") == "torch"
    assert backends_help() == "onnxruntime (for ONNX files), torch, openvino (faster on CPUs), or auto."


@pytest.mark.parametrize("device", DEVICES)
def test_an_outer_autocast_changes_nothing(device: str, images: Tensor) -> None:
    """A caller's mixed precision is not the certified function: the same numbers, bit for bit, inside and outside."""
    cover = patchcleanser_cover(24, Patch(4, 4), 3)

    def said() -> list[Tensor]:
        classifier = Classifier(tiny_network(), 24, batch=4, precision="fp32", device=device)
        under_masks = outputs_under(Engine(classifier, [cover]), cover, images[:2], [singles_of(cover)] * 2)
        return [classifier(images), *under_masks]

    outside = said()
    with torch.autocast(device, torch.bfloat16):
        inside = said()
    assert all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True))
