"""A network that looks at the picture enlarged: what it computes, where it starts, what masks hide from it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from looking import outputs_under, singles_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover
from certmask.engine import Engine
from certmask.errors import CertmaskError, ClassifierError
from certmask.identity import token_side
from certmask.threat import Patch
from certmask.training import starting_point
from certmask.zoo import build_model, load_checkpoint, save_model
from certmask.zoo.enlarged import SEEN, SHOWN, Enlarged, enlargement
from certmask.zoo.timm_import import import_timm
from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD

NAME, CLASSES = "deit_tiny_enlarged_384", ["n01440764", "n02102040", "n02979186"]


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    return torch.rand(2, 3, SHOWN, SHOWN, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a plain DeiT-Tiny that knows ImageNet's classes."""
    return saved("deit_tiny_patch16_224", tmp_path_factory.mktemp("weights"))


def saved(name: str, folder: Path) -> Path:
    torch.manual_seed(2)
    save_file(import_timm().create_model(name).state_dict(), folder / f"{name}.safetensors")
    return folder / f"{name}.safetensors"


@pytest.mark.parametrize(("side", "larger"), [(SHOWN, SEEN), (7, 12), (5, 5), (2, 9)])
def test_the_matrix_is_bicubic_interpolation(side: int, larger: int) -> None:
    pictures = torch.rand(1, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    told = functional.interpolate(pictures, (larger, larger), mode="bicubic", align_corners=False)
    matrix = enlargement(side, larger).double()
    torch.testing.assert_close(matrix @ pictures @ matrix.T, told, atol=1e-6, rtol=0)


def test_the_network_sees_the_picture_enlarged(pictures: Tensor) -> None:
    told = functional.interpolate(pictures.double(), (SEEN, SEEN), mode="bicubic", align_corners=False)
    torch.testing.assert_close(Enlarged(nn.Identity()).double()(pictures.double()), told, atol=1e-6, rtol=0)


def test_it_starts_as_timm_would_start_it(weights: Path, pictures: Tensor) -> None:
    """Places between those of the plain network's tokens, and of the last layer what it knows of these classes."""
    model, card = starting_point(NAME, CLASSES, weights=weights)
    theirs = import_timm().create_model("deit_tiny_patch16_224", img_size=SEEN)
    spread = import_module("timm.models.vision_transformer").checkpoint_filter_fn(load_file(weights), theirs)
    theirs.load_state_dict(spread)
    larger = functional.interpolate(pictures, (SEEN, SEEN), mode="bicubic", align_corners=False)
    with torch.inference_mode():
        torch.testing.assert_close(model.eval()(pictures), theirs.eval()(larger)[:, [0, 217, 482]], atol=1e-4, rtol=0)
    assert (card.size, card.mean) == ((SHOWN, SHOWN), IMAGENET_MEAN)
    assert "places spread over more tokens" in card.data["start"]


def test_a_trained_one_is_read_again(weights: Path, pictures: Tensor, tmp_path: Path) -> None:
    """And goes on from its own weights, whose places are spread already."""
    model, card = starting_point(NAME, CLASSES, weights=weights)
    save_model(model, card, tmp_path / "mine.safetensors")
    again, _ = load_checkpoint(tmp_path / "mine.safetensors")
    further, _ = starting_point(str(tmp_path / "mine.safetensors"), CLASSES)
    with torch.inference_mode():
        logits = model.eval()(pictures[:1])
        assert torch.equal(again.eval()(pictures[:1]), logits)
        assert torch.equal(further.eval()(pictures[:1]), logits)


def test_what_a_mask_hides_changes_nothing(pictures: Tensor) -> None:
    """Masks are painted by the engine, before the picture is enlarged: nothing under one is smeared over its edge."""
    classifier = Classifier(build_model(NAME, 3, (SHOWN, SHOWN)), SHOWN, mean=IMAGENET_MEAN, std=IMAGENET_STD,
                            precision="fp32", batch=2)  # fmt: skip
    cover = patchcleanser_cover((SHOWN, SHOWN), Patch(32, 32), 2)
    top, left = 5, 80
    both = pictures[:1].repeat(2, 1, 1, 1)
    both[1, :, top : top + 32, left : left + 32] = 1.0
    clean, patched = outputs_under(Engine(classifier, [cover]), cover, both, [singles_of(cover)] * 2)
    for number, mask in enumerate(cover.masks):
        down, right = (range(mask.top, mask.top + mask.height), range(mask.left, mask.left + mask.width))
        hides = {top, top + 31} <= {*down} and {left, left + 31} <= {*right}
        assert torch.equal(clean[number], patched[number]) == hides


def test_its_tokens_are_not_squares_of_the_picture() -> None:
    """So masks are not laid on them."""
    assert token_side(build_model(NAME, 10, (SHOWN, SHOWN)), (SHOWN, SHOWN)) == 1


def test_nobody_offers_its_weights() -> None:
    with pytest.raises(ValueError, match="no weights to download"):
        import_timm().create_model(NAME, pretrained=True)


def test_other_sizes_and_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match=r"expected pictures of 224×224 for .*, got 32×32"):
        build_model(NAME, 10, (32, 32))
    for name in ("resnet18", "deit_tiny_distilled_patch16_224"):
        with pytest.raises(CertmaskError, match="expected weights of a transformer with a class token"):
            starting_point(NAME, CLASSES, weights=saved(name, tmp_path))
