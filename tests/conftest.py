"""What the tests share: small real networks and photos that anyone may copy."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import hypothesis
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start, too: each worker has one core
os.environ["COLUMNS"] = "160"  # the console takes its width when it is first imported, by whichever test that is

hypothesis.settings.register_profile("patient", deadline=None)  # how busy a machine is says nothing about certmask
hypothesis.settings.load_profile("patient")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
"""Determinism is tested on every device there is."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for the end of something that an earlier test began comes last."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_collection_finish() -> None:
    """All that was imported stays to the end; the garbage collector need not look through it again and again.

    Nor through the rows of results files that are read, of which there are millions.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def tiny_network(classes: int = 5, size: int = 24, seed: int = 0) -> nn.Module:
    """A small convolutional network with fixed random weights."""
    torch.manual_seed(seed)
    features = (size - 3) // 2 + 1
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * features**2, classes)
    ).eval()


@pytest.fixture
def network() -> nn.Module:
    return tiny_network()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(12, 3, 24, 24, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def photos() -> dict[str, Path]:
    """CC0 photos that scikit-image ships."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    return {name: folder / file for name, file in (("cat", "chelsea.png"), ("cup", "coffee.png"))}


@pytest.fixture(scope="session")
def little_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint for what does not depend on who answers: untrained, 32×32, a hundred times quicker than the default.

    It knows CIFAR-10's classes and the two of ``class_folders``.
    """
    from certmask.data import CIFAR10
    from certmask.zoo import Card, build_model, save_model

    torch.manual_seed(0)
    model = build_model("test_vit", 12, (32, 32))
    with torch.no_grad():
        model.get_parameter("head.weight").mul_(40.0)  # sure of itself, so that masks make it change its mind
    card = Card("test_vit", (*CIFAR10, "n02124075", "n07920052"), (32, 32), (0.5,) * 3, (0.25,) * 3, 1.0)
    path = tmp_path_factory.mktemp("little") / "little.safetensors"
    save_model(model, card, path)
    return path


@pytest.fixture
def class_folders(tmp_path: Path, photos: dict[str, Path]) -> Path:
    """Two ImageNet classes with one photo each, named by WordNet id."""
    root = tmp_path / "photos"
    for synset, photo in (("n02124075", photos["cat"]), ("n07920052", photos["cup"])):
        (root / synset).mkdir(parents=True)
        Image.open(photo).convert("RGB").resize((300, 260)).save(root / synset / "photo.jpg")
    return root
