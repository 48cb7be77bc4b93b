"""Networks that look at the picture enlarged: what they compute, where they start, what masks hide from them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from certmask.classifier import Classifier, token_side
from certmask.training import starting_point
from certmask.zoo import build_model, load_checkpoint, save_model
from certmask.zoo.enlarged import Enlarged, enlargement
from certmask.zoo.timm_import import import_timm
from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD

CLASSES = ["n01440764", "n02102040", "n02979186"]
SIDES = [320, 384]


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a plain DeiT-Tiny that knows ImageNet's classes."""
    torch.manual_seed(2)
    path = tmp_path_factory.mktemp("weights") / "deit_tiny.safetensors"
    save_file(import_timm().create_model("deit_tiny_patch16_224").state_dict(), path)
    return path


@pytest.mark.parametrize("side", SIDES)
def test_the_matrices_are_bicubic_interpolation(side: int, pictures: torch.Tensor) -> None:
    network = Enlarged(torch.nn.Identity(), side)
    seen = network(pictures)
    told = functional.interpolate(pictures, (side, side), mode="bicubic", align_corners=False)
    torch.testing.assert_close(seen, told, atol=1e-5, rtol=0)
    torch.testing.assert_close(enlargement(224, side).sum(dim=1), torch.ones(side))


@pytest.mark.parametrize("side", SIDES)
def test_it_starts_as_timm_would_start_it(side: int, weights: Path, pictures: torch.Tensor) -> None:
    """Places between those of the plain network's tokens, and of the last layer what it knows of these classes."""
    model, card = starting_point(f"deit_tiny_enlarged_{side}", CLASSES, weights=weights)
    timm, vision = import_timm(), import_module("timm.models.vision_transformer")
    theirs = timm.create_model("deit_tiny_patch16_224", img_size=side)
    state = load_file(weights)
    theirs.load_state_dict(vision.checkpoint_filter_fn(state, theirs))
    larger = functional.interpolate(pictures, (side, side), mode="bicubic", align_corners=False)
    with torch.inference_mode():
        torch.testing.assert_close(model.eval()(pictures), theirs.eval()(larger)[:, [0, 217, 482]], atol=1e-4, rtol=0)
    assert (card.size, card.mean) == ((224, 224), IMAGENET_MEAN)
    assert "places spread over more tokens" in card.data["start"]


def test_a_trained_one_is_read_again(weights: Path, pictures: torch.Tensor, tmp_path: Path) -> None:
    """And goes on from its own weights, whose places are spread already."""
    model, card = starting_point("deit_tiny_enlarged_320", CLASSES, weights=weights)
    save_model(model, card, tmp_path / "mine.safetensors")
    again, _ = load_checkpoint(tmp_path / "mine.safetensors")
    further, _ = starting_point(str(tmp_path / "mine.safetensors"), CLASSES)
    with torch.inference_mode():
        logits = model.eval()(pictures[:1])
        assert torch.equal(again.eval()(pictures[:1]), logits)
        assert torch.equal(further.eval()(pictures[:1]), logits)


def test_what_a_mask_hides_changes_nothing(pictures: torch.Tensor) -> None:
    """Masks are painted before the picture is enlarged, so nothing that lies under one is smeared over its edge."""
    classifier = Classifier(build_model("deit_tiny_enlarged_320", 3, (224, 224)), 224, mean=IMAGENET_MEAN,
                            std=IMAGENET_STD, precision="fp32", batch=2)  # fmt: skip
    fill = torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
    hidden = pictures.clone()
    hidden[1] = hidden[0]
    hidden[1, :, 40:104, 60:124] = 1.0
    assert not torch.equal(*classifier(hidden))
    hidden[:, :, 40:104, 60:124] = fill
    assert torch.equal(*classifier(hidden))


def test_its_tokens_are_not_squares_of_the_picture() -> None:
    """So masks are not laid on them."""
    assert token_side(build_model("deit_tiny_enlarged_384", 10, (224, 224)), (224, 224)) == 1


def test_nobody_offers_its_weights() -> None:
    with pytest.raises(ValueError, match="no weights to download"):
        import_timm().create_model("deit_tiny_enlarged_384", pretrained=True)
