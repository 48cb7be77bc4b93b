"""One classifier called by several threads at once gives each thread what it would get alone, bit for bit."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certmask.backends import openvino
from certmask.backends.arithmetic import float32_mode
from certmask.backends.outputs import CHECKED_BATCHES
from certmask.classifier import Classifier
from certmask.covers import spread_cover
from certmask.deployed import Defence
from certmask.errors import ClassifierError
from certmask.rules import JuryRecovery
from certmask.threat import Patch

THREADS = 4
Pixels = NDArray[np.float32]


def batches(count: int, size: int = 24, images: int = 8) -> list[Tensor]:
    return list(torch.rand(count, images, 3, size, size, generator=torch.Generator().manual_seed(4)))


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What each of several threads found, all of them started together."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


class OneRequest:
    """OpenVINO's way: whoever calls is given the same piece of memory, here never before another thread has come in.

    Where none can, that is waited for in vain.
    """

    def __init__(self) -> None:
        self.shape = [2, 3, 8, 8]
        self.output = np.zeros((2, 3), dtype=np.float32)
        self.inside, self.most = 0, 0
        self.company = threading.Condition()

    def reshape(self, shape: list[int]) -> None:
        self.shape = shape

    def compile_model(self, graph: OneRequest, *_: object) -> Callable[[Pixels], list[Pixels]]:
        assert graph is self
        return self.infer

    def infer(self, images: Pixels) -> list[Pixels]:
        with self.company:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.output[:] = images.mean(axis=(2, 3))
            self.company.notify_all()
            self.company.wait_for(lambda: self.inside > 1, timeout=0.05)
            self.inside -= 1
        return [self.output]


class Means(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


def test_no_thread_reads_what_another_one_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    request = OneRequest()
    engine = SimpleNamespace(convert_model=lambda *_, **__: request, Core=lambda: request)
    monkeypatch.setattr(openvino, "import_module", lambda _: engine)
    network = openvino.place(Means(), (8, 8), torch.device("cpu"), "fp32")
    pictures = batches(THREADS, size=8, images=2)
    found = at_once(lambda number: network(pictures[number]))
    for images, logits in zip(pictures, found, strict=True):
        torch.testing.assert_close(logits, images.mean(dim=(2, 3)))
    assert request.most == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_a_classifier_answers_many_threads_as_it_answers_one(backend: str, precision: str, network: nn.Module) -> None:
    classifier = Classifier(network, 24, precision=precision, batch=8, backend=backend)
    pictures = batches(THREADS)
    alone = [classifier(images) for images in pictures]
    right = at_once(lambda n: sum(torch.equal(classifier(pictures[n]), alone[n]) for _ in range(100)))
    assert right == [100] * THREADS


def test_batch_sizes_that_threads_bring_are_compiled_in_turn(network: nn.Module) -> None:
    """Several sizes are asked for, for the first time and at the same moment."""
    shared = openvino.place(network, (24, 24), torch.device("cpu"), "fp32")
    pictures = [images[:size] for size, images in zip((1, 2, 3, 1), batches(THREADS), strict=True)]
    found = at_once(lambda n: shared(pictures[n]))
    assert all(torch.equal(logits, shared(images)) for images, logits in zip(pictures, found, strict=True))


def test_two_defences_of_one_classifier_do_not_disturb_each_other(network: nn.Module) -> None:
    """Each takes one call at a time, but both call the same network."""
    classifier = Classifier(network, 24, precision="fp32", batch=16, backend="openvino")
    covers = [spread_cover(24, Patch(4, 4), mask, 2) for mask in (10, 12)] * (THREADS // 2)
    shields = [Defence(classifier, cover, JuryRecovery()) for cover in covers]
    pictures = batches(THREADS, images=3)
    labels = [shield(images).labels for shield, images in zip(shields, pictures, strict=True)]

    def certified(number: int) -> list[bool]:
        return [c.holds for c in shields[number].certify(pictures[number], labels[number]).certificates]

    alone = [certified(number) for number in range(THREADS)]
    assert at_once(lambda number: [certified(number) for _ in range(4)]) == [[found] * 4 for found in alone]


def test_a_converted_network_is_copied_whole(network: nn.Module) -> None:
    """Through a file, too; the copy is the same function."""
    converted = openvino.place(network, (24, 24), torch.device("cpu"), "fp32")
    again = pickle.loads(pickle.dumps(converted))
    (images,) = batches(1)
    assert torch.equal(again(images), converted(images))


class Unknown(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        waves: Tensor = torch.special.bessel_j0(images)
        return waves.mean(dim=(2, 3))


@pytest.mark.parametrize(
    ("model", "size", "reason"),
    [
        (Unknown(), 8, "8×8 images, got No conversion rule found for operations: aten::special_bessel_j0: take the"),
        (nn.Linear(7, 3), 8, "8×8 images, got mat1 and mat2 shapes cannot be multiplied"),
    ],
    ids=["operation", "shape"],
)
def test_what_cannot_be_converted_is_said_in_one_line(model: nn.Module, size: int, reason: str) -> None:
    with pytest.raises(ClassifierError, match="expected a network that OpenVINO can convert for") as error:
        Classifier(model, size, precision="fp32", batch=2, backend="openvino")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_what_fails_in_openvino_is_not_put_down_to_the_images(network: nn.Module) -> None:
    converted = openvino.place(network, (24, 24), torch.device("cpu"), "fp32")
    with pytest.raises(ClassifierError, match=r"expected OpenVINO to compute \[2, 3, 25, 24\] images, got ") as e:
        converted(torch.zeros(2, 3, 25, 24))
    assert "\n" not in str(e.value)


def test_a_network_that_was_found_out_is_never_let_through() -> None:
    """However often it is asked again."""

    class Branching(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            means = images.mean(dim=(2, 3))
            return 20 * means if images.sum() < 1 else -20 * means

    converted = openvino.place(Branching(), (8, 8), torch.device("cpu"), "fp32")
    bright = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(CHECKED_BATCHES + 1):
        with pytest.raises(ClassifierError, match="expected a network that OpenVINO computes as torch does"):
            converted(bright)


def test_a_thread_of_another_precision_waits_until_the_mode_is_free() -> None:
    """torch keeps the float32 mode for the whole process; it can be set without a GPU."""
    cuda, matmul = torch.device("cuda"), torch.backends.cuda.matmul
    before = matmul.allow_tf32
    first_in, second_in, looked = threading.Event(), threading.Event(), threading.Event()

    def first() -> bool:
        with float32_mode(cuda, tf32=False):
            with float32_mode(cuda, tf32=True):
                first_in.set()
            second_in.wait(0.1)
            kept = not matmul.allow_tf32
            looked.set()
        return kept

    def second() -> bool:
        first_in.wait()
        with float32_mode(cuda, tf32=True):
            second_in.set()
            looked.wait()
            return bool(matmul.allow_tf32)

    with ThreadPoolExecutor(2) as pool:
        assert [run.result() for run in [pool.submit(first), pool.submit(second)]] == [True, True]
    assert matmul.allow_tf32 is before
