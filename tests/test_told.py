"""Networks that are told what is hidden: what they get there, and that nothing else looks like it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_network
from looking import outputs_under, singles_of
from torch import Tensor, nn

from certmask.attacks.descent import Surrogate
from certmask.classifier import Classifier
from certmask.covers import Cover, band_cover, spread_cover
from certmask.deployed.defence import Defence
from certmask.engine import Engine
from certmask.errors import ClassifierError
from certmask.images import HIDDEN
from certmask.threat import Patch
from certmask.training.recipe import Recipe
from certmask.training.trainer import Trainer
from certmask.views import VIEWS
from certmask.votes import as_votes
from certmask.zoo import build_model
from certmask.zoo.told import SixChannels

COVERS = [spread_cover((24, 24), Patch(4, 4), 8), band_cover(24, 4, band=3)]
PLACES = [(0, 0), (7, 11), (23, 23)]


def six_channels(classes: int = 5) -> nn.Module:
    """A small network of six channels with fixed random weights."""
    _, *rest = tiny_network(classes).children()
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(6, 8, 3, stride=2), *rest).eval()


def by_hand(image: Tensor, hidden: Tensor) -> Tensor:
    """Six channels ``[6, height, width]``, channel by channel and pixel by pixel: zero where ``[height, width]`` is."""
    out = torch.zeros(6, *image.shape[1:])
    for y, x in (~hidden).nonzero().tolist():
        for colour in range(3):
            out[colour, y, x], out[colour + 3, y, x] = image[colour, y, x], 1 - image[colour, y, x]
    return out


def hidden_pixels(cover: Cover, mask: int) -> Tensor:
    rows, columns = cover.masks[mask].footprint(cover.image)
    hidden = torch.zeros(cover.image, dtype=torch.bool)
    for top, bottom in rows:
        for left, right in columns:
            hidden[top:bottom, left:right] = True
    return hidden


@pytest.mark.parametrize("views", [("plain",), ("plain", "mirror"), tuple(VIEWS)])
@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_votes_are_those_of_six_channels_made_by_hand(cover: Cover, views: tuple[str, ...], images: Tensor) -> None:
    """To the last bit, through the bare network of six channels, with batches and weights laid out the same way."""
    network = six_channels().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    engine = Engine(Classifier(SixChannels(network), 24, batch=len(cover), precision="fp32", views=views), [cover])
    assert engine.fill == engine.classifier.fill == (HIDDEN,) * 3
    assert engine.describe()["fill"] == [HIDDEN] * 3
    picture = images[0].clone()
    picture[:, 5:9, 3:20] = 0  # really black
    (found,) = outputs_under(engine, cover, picture[None], [singles_of(cover)])
    seen = torch.stack([by_hand(picture, hidden_pixels(cover, mask)) for mask in range(len(cover))])
    turns = {"plain": [], "mirror": [3], "upside-down": [2]}
    with torch.no_grad():
        own = [network(seen.flip(turns[view])).softmax(dim=1) for view in views]
    expected = own[0]
    for other in own[1:]:
        expected = expected + other
    assert torch.equal(found, as_votes(expected / len(views)))


def test_openvino_tells_it_too(images: Tensor) -> None:
    cover, told = COVERS[1], SixChannels(six_channels())
    found = []
    for backend in ("torch", "openvino"):
        engine = Engine(Classifier(told, 24, batch=8, precision="fp32", backend=backend), [cover])
        found += outputs_under(engine, cover, images[:1], [singles_of(cover)])
    torch.testing.assert_close(*found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (-0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), (1e-30,) * 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_colour_looks_hidden(colour: tuple[float, float, float], precision: str) -> None:
    """A pixel of any colour adds up to one over a colour and its negative, a hidden one to zero."""
    seen: list[Tensor] = []

    class Watch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(1, 2)

        def forward(self, channels: Tensor) -> Tensor:
            seen.append(channels.float())
            logits: Tensor = self.linear(channels.mean(dim=(1, 2, 3), dtype=channels.dtype)[:, None])
            return logits

    classifier = Classifier(SixChannels(Watch()), 24, batch=2, precision=precision)
    pictures = torch.full((2, 3, 24, 24), 0.3)
    for y, x in PLACES:
        pictures[0, :, y, x] = torch.tensor(colour)
        pictures[1, :, y, x] = HIDDEN
    classifier.probabilities(pictures)
    for y, x in PLACES:
        torch.testing.assert_close(seen[-1][0, :3, y, x] + seen[-1][0, 3:, y, x], torch.ones(3), atol=0.01, rtol=0)
        assert torch.equal(seen[-1][1, :, y, x], torch.zeros(6))


def test_a_photo_cannot_claim_to_be_hidden(images: Tensor) -> None:
    shield = Defence(SixChannels(six_channels()), COVERS[0], "jury-detection", batch=8)
    images[0, :, 3, 3] = HIDDEN
    with pytest.raises(ClassifierError, match=r"expected image values in \[0, 1\], got -1 to"):
        shield(images)


def test_a_told_network_normalizes_by_itself(images: Tensor) -> None:
    for wrong in ({"mean": (0.5, 0.5, 0.5)}, {"std": (0.5, 0.5, 0.5)}):
        with pytest.raises(ClassifierError, match="expected mean 0 and std 1 for SixChannels"):
            Classifier(SixChannels(six_channels()), 24, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("fill", [(0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (-1.0, -1.0, 0.0), (-1.0, -1.0)])
def test_masks_of_a_told_network_have_no_colour(fill: tuple[float, ...]) -> None:
    with pytest.raises(ClassifierError, match=r"expected the fill \(-1.0, -1.0, -1.0\) for SixChannels"):
        Engine(Classifier(SixChannels(six_channels()), 24), COVERS, fill=fill)  # type: ignore[arg-type]


def test_no_other_network_gets_what_only_told_ones_understand(network: nn.Module) -> None:
    classifier = Classifier(network, 24, mean=(0.3, 0.4, 0.5))
    assert (classifier.told, classifier.fill) == (False, (0.3, 0.4, 0.5))
    with pytest.raises(ClassifierError, match=r"expected a fill colour of three numbers in \[0, 1\]"):
        Engine(classifier, COVERS, fill=(HIDDEN,) * 3)


def test_attackers_look_through_the_same_masks(images: Tensor) -> None:
    """The surrogate's own painting, and that of an engine, are one; gradients reach what is seen and nothing else."""
    cover = COVERS[0]
    classifier = Classifier(SixChannels(six_channels()), 24, batch=8, precision="fp32")
    pairs = torch.tensor([[[0, 1], [2, -1]]])
    own, through = Surrogate(classifier, [cover]), Surrogate(classifier, engine=Engine(classifier, [cover]))
    picture = images[:1].clone().requires_grad_()
    assert torch.equal(own(picture, pairs), through(picture, pairs))
    (slope,) = torch.autograd.grad(own(picture, pairs)[0, 0, 0], picture)
    hidden = hidden_pixels(cover, 0) | hidden_pixels(cover, 1)
    assert not slope[0, :, hidden].any()
    assert slope[0, :, ~hidden].any()
    assert not len(own.leaking_corners(cover))


class Lesson:
    """One batch of bright pictures."""

    dataset: Any = None
    size = (24, 24)
    labels = torch.zeros(4, dtype=torch.long)

    def batches(self, order: Tensor, batch: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        yield torch.full((len(order), 3, 24, 24), 0.75, device=device), self.labels[order]


@pytest.mark.parametrize("cutout", ["random", "greedy"])
def test_training_hides_as_masks_do(cutout: str, tmp_path: Path) -> None:
    recipe, shown = Recipe(cutout=cutout, epochs=1, batch=4), []
    for number, (network, mean, std) in enumerate(
        [(SixChannels(six_channels()), 0.0, 1.0), (tiny_network(), 0.5, 0.5)]
    ):
        network.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
        colours: dict[str, Any] = {"mean": (mean,) * 3, "std": (std,) * 3}
        trainer = Trainer(network, Lesson(), recipe, tmp_path / str(number), device="cpu", **colours)
        trainer.train(None, lambda _: None)
        assert set(shown[-1].unique().tolist()) == ({HIDDEN, 0.75}, {0.0, 0.5})[number]


def test_saved_and_loaded_it_is_the_same(images: Tensor, tmp_path: Path) -> None:
    shield = Defence(SixChannels(six_channels()), COVERS[0], "jury-detection", batch=8)
    shield.save(tmp_path / "told.safetensors")
    again = Defence.load(tmp_path / "told.safetensors", SixChannels(six_channels()))
    assert again.engine.fill == (HIDDEN,) * 3
    assert shield(images).labels.tolist() == again(images).labels.tolist()


@pytest.mark.parametrize(
    ("name", "widths", "layers"),
    [("told_resnet18_cifar", (64, 128, 256, 512), 17), ("told_resnet26w2_cifar", (32, 64, 128), 25)],
)
def test_the_told_resnets_have_the_layers_of_their_names(name: str, widths: tuple[int, ...], layers: int) -> None:
    model = build_model(name, 10, (32, 32)).eval()
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == layers
    assert tuple(dict.fromkeys(m.out_channels for m in convolutions)) == widths
    assert (convolutions[0].in_channels, convolutions[0].stride) == (6, (1, 1))
    assert not any(isinstance(m, nn.MaxPool2d) for m in model.modules())
    black, hidden = torch.zeros(1, 3, 32, 32), torch.full((1, 3, 32, 32), HIDDEN)
    assert not torch.equal(model(black), model(hidden))
