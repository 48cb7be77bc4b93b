"""Starting points that were another network: what is taken over computes what it did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from certmask.errors import CertmaskError
from certmask.images import HIDDEN
from certmask.training.start import starting_point
from certmask.zoo import build_model, card_of
from certmask.zoo.checkpoint import read_state_dict

CLASSES = ("cat", "dog", "owl")


def written(name: str, folder: Path, classes: int = 5) -> tuple[nn.Module, Path]:
    """A fresh network of an architecture, with norms that do something, and the file of its weights."""
    torch.manual_seed(2)
    model = build_model(name, classes, card_of(name).size).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
    save_file(model.state_dict(), folder / f"{name}.safetensors")
    return model, folder / f"{name}.safetensors"


def normal(images: Tensor, name: str) -> Tensor:
    mean, std = (torch.tensor(colour).view(1, 3, 1, 1) for colour in (card_of(name).mean, card_of(name).std))
    return (images - mean) / std


@pytest.mark.parametrize(("name", "side"), [("resnet50_v1", 64), ("resnet26w2_cifar", 32)])
def test_a_told_network_starts_as_the_one_that_was_not(name: str, side: int, tmp_path: Path) -> None:
    """On bare pictures, their borders included; and hidden pixels are what those of mean colour were."""
    plain, weights = written(name, tmp_path, len(CLASSES))
    told, card = starting_point(f"told_{name}", CLASSES, weights=weights)
    assert card.data["start"].endswith(", its first convolution for six channels")
    assert card.mean == (0.0, 0.0, 0.0)
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    hidden = torch.rand(2, 1, side, side, generator=torch.Generator().manual_seed(2)) < 0.5
    mean = torch.tensor(card_of(name).mean).view(1, 3, 1, 1)
    with torch.no_grad():
        for seen, painted in ((images, images), [torch.where(hidden, fill, images) for fill in (HIDDEN, mean)]):
            torch.testing.assert_close(told.eval()(seen), plain(normal(painted, name)), atol=1e-3, rtol=1e-3)


def test_a_told_network_goes_on_with_weights_of_its_own(tmp_path: Path) -> None:
    """Another number of classes: a new head, and nothing else changes."""
    model, weights = written("told_resnet26w2_cifar", tmp_path)
    again, card = starting_point("told_resnet26w2_cifar", CLASSES, weights=weights)
    assert "six" not in card.data["start"]
    before, after = model.state_dict(), again.state_dict()
    assert {key for key in before if not torch.equal(before[key], after[key])} == {
        "network.fc.weight",
        "network.fc.bias",
    }


@pytest.mark.parametrize(("name", "wide"), [("bagnet9", 2), ("bagnet17", 3), ("bagnet33", 4)])
def test_a_bagnet_starts_as_a_resnet50_of_equal_pixels(name: str, wide: int, tmp_path: Path) -> None:
    """Kernels of 3×3 that it has are taken over, those that it has not are summed up; the stem is fresh."""
    _, weights = written("resnet50_v1", tmp_path)
    model, card = starting_point(name, CLASSES, weights=weights)
    assert "3×3 kernels summed up where it has 1×1, a fresh stem" in card.data["start"]
    source, found = read_state_dict(weights), model.state_dict()
    kept = {key for key in found if key in source and found[key].shape == source[key].shape}
    assert all(torch.equal(found[key], source[key]) for key in kept)
    summed = set(found) - kept - {"conv1.weight", "conv2.weight", "fc.weight", "fc.bias"}
    firsts = {f"layer{stage}.0.conv2.weight" for stage in range(1, 5)}
    assert summed == {key for key in source if key.endswith("conv2.weight")} - {
        key for key in firsts if int(key[5]) <= wide
    }
    for key in summed:
        even = torch.rand(1, source[key].shape[1], 1, 1)
        both = [
            nn.functional.conv2d(even.expand(-1, -1, 3, 3), source[key]),
            nn.functional.conv2d(even, found[key]),
        ]
        torch.testing.assert_close(*both, atol=1e-4, rtol=1e-4)


def test_a_bagnet_takes_published_weights_as_they_are(tmp_path: Path) -> None:
    model, weights = written("bagnet17_half", tmp_path, len(CLASSES))
    again, card = starting_point("bagnet17_half", CLASSES, weights=weights)
    assert card.data["start"].startswith("local weights, sha256 ")
    assert "summed" not in card.data["start"]
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in model.state_dict().items())


def test_a_smoothed_transformer_starts_from_a_deit(tmp_path: Path) -> None:
    plain, weights = written("deit_tiny_patch16_224", tmp_path)
    model, card = starting_point("smoothed_deit_tiny_patch16_224", CLASSES, weights=weights)
    before, after = plain.state_dict(), model.state_dict()
    assert {key for key in after if not torch.equal(before[key], after[key])} == {"head.weight", "head.bias"}
    assert (card.mean, card.std) == ((0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize("name", ["told_resnet18_cifar", "bagnet17_half", "told_resnet26w2_cifar"])
def test_weights_of_quite_another_network_are_refused(name: str, tmp_path: Path) -> None:
    _, weights = written("resnet50_v1", tmp_path)
    with pytest.raises(CertmaskError, match=f"expected weights of {name} in"):
        starting_point(name, CLASSES, weights=weights)


def test_a_network_of_imagenet_keeps_what_it_knows_of_classes_that_it_has(tmp_path: Path) -> None:
    """Its answers about tench, cassette player and parachute are those that it gave among a thousand."""
    model, weights = written("resnet50_v1", tmp_path, 1000)
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    synsets = ("n01440764", "n02979186", "n03888257")
    again, card = starting_point("resnet50_v1", synsets, weights=weights)
    assert card.data["start"].endswith(", with what it knows of these classes")
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(images), model(images)[:, [0, 482, 701]])
    for classes in (("n01440764", "n02979186", "parachute"), CLASSES):
        fresh, card = starting_point("resnet50_v1", classes, weights=weights)
        assert "knows" not in card.data["start"]
        assert not torch.equal(fresh.state_dict()["fc.weight"][0], model.state_dict()["fc.weight"][0])


def test_weights_with_as_many_classes_keep_their_last_layer_and_claim_nothing(tmp_path: Path) -> None:
    """Even where the classes are some of ImageNet's: it was not ImageNet's layer that knew them."""
    model, weights = written("resnet50_v1", tmp_path, 3)
    again, card = starting_point("resnet50_v1", ("n01440764", "n02979186", "n03888257"), weights=weights)
    assert "knows" not in card.data["start"]
    assert torch.equal(again.state_dict()["fc.weight"], model.state_dict()["fc.weight"])


def test_resnetv2_takes_the_kernels_of_resnet50(tmp_path: Path) -> None:
    """Every kernel comes from there, in a block with the norm behind it but for what that adds; norms inside, too."""
    model, weights = written("resnet50_v1", tmp_path)
    plain, state = read_state_dict(weights), model.state_dict()
    fresh = build_model("resnetv2_50", len(CLASSES), (224, 224)).state_dict()
    network, card = starting_point("resnetv2_50", CLASSES, weights=weights)
    assert card.data["start"].endswith(", its kernels before activations instead of behind them")
    own = network.state_dict()
    changed = {key for key in own if own[key].ndim == 4 and not torch.equal(own[key], fresh[key])}
    assert {key for key in own if own[key].ndim == 4} - changed <= {"head.fc.weight"}
    torch.testing.assert_close(own["stages.1.blocks.2.conv2.weight"], plain["layer2.2.conv2.weight"])
    torch.testing.assert_close(own["stages.1.blocks.2.norm3.running_var"], plain["layer2.2.bn2.running_var"])
    features = torch.randn(1, 128, 4, 4, generator=torch.Generator().manual_seed(0))
    block: nn.Module = model.get_submodule("layer2.2")
    behind = block.bn3(block.conv3(features))  # type: ignore[operator]
    nothing = block.bn3(torch.zeros_like(behind))  # type: ignore[operator]
    folded = nn.functional.conv2d(features, own["stages.1.blocks.2.conv3.weight"])
    torch.testing.assert_close(folded, (behind - nothing).detach(), atol=1e-4, rtol=1e-3)
    colours = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    apart = nn.functional.conv2d(255 * colours, state["conv1.weight"], stride=2)
    scale = (state["bn1.weight"] / (state["bn1.running_var"] + 1e-5).sqrt()).view(1, -1, 1, 1)
    here = nn.functional.conv2d(2 * colours, own["stem.conv.weight"], stride=2)
    torch.testing.assert_close(here, apart * scale, atol=1e-2, rtol=1e-3)
