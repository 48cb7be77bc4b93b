"""Smoothed ViT: tokens that nobody sees are dropped, and an answer is a function of one picture."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEVICES
from looking import outputs_under, singles_of
from safetensors.torch import save_file
from torch import Tensor, nn

from certmask.classifier import Classifier
from certmask.covers import band_cover
from certmask.engine import Engine
from certmask.engine.premises import check_company
from certmask.errors import ClassifierError
from certmask.images import HIDDEN
from certmask.votes import as_votes
from certmask.zoo import build_model
from certmask.zoo.models import load_model
from certmask.zoo.smoothed_vit import CHUNK, SmoothedViT
from certmask.zoo.timm_import import import_timm

MEAN, STD = (torch.tensor(colour).view(1, 3, 1, 1) for colour in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
FEW = 6


def transformer(**options: Any) -> Any:
    """A small vision transformer of 4 × 5 tokens of 8 pixels, with fixed random weights that matter."""
    torch.manual_seed(0)
    kind = import_timm().models.vision_transformer.VisionTransformer
    settings = {"img_size": (32, 40), "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 7}
    network = kind(**{**settings, **options}).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network


def pictures(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, 32, 40, generator=torch.Generator().manual_seed(seed))


def bands(images: Tensor) -> Tensor:
    """Each picture with all but a band of its own hidden: of no pixel at all, of some, up to the whole picture."""
    out = torch.full_like(images, HIDDEN)
    for number, (own, image) in enumerate(zip(out, images, strict=True)):
        left, width = 3 * number % 40, (5 * number) % 41
        columns = [(left + offset) % 40 for offset in range(width)]
        own[:, :, columns] = image[:, :, columns]
        own[:, : 4 * (number % 3)] = HIDDEN
    return out


def tokens_seen(picture: Tensor) -> list[int]:
    """Numbers of the tokens of ``[3, 32, 40]`` that show a pixel, token by token."""
    return [
        5 * row + column
        for row in range(4)
        for column in range(5)
        if (picture[0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] >= 0).any()
    ]


def embedded(network: Any, picture: Tensor) -> Tensor:
    """The class token and all others ``[1, 21, channels]`` of one picture, as timm embeds them."""
    seen = torch.where(picture[None] < 0, 0.0, (picture[None] - MEAN) / STD)
    return network._pos_embed(network.patch_embed(seen))  # type: ignore[no-any-return]


def sliced(network: Any, picture: Tensor) -> Tensor:
    """timm's own blocks on the tokens of one picture that are seen, and no others."""
    kept = [0, *(1 + token for token in tokens_seen(picture))]
    return network.forward_head(network.norm(network.blocks(embedded(network, picture)[:, kept])))[0]  # type: ignore[no-any-return]


def masked(network: Any, picture: Tensor) -> Tensor:
    """All tokens, each with plain matrices and a softmax in which hidden ones have -inf."""
    x = embedded(network, picture)[0]
    score = torch.full((21,), -torch.inf)
    score[[0, *(1 + token for token in tokens_seen(picture))]] = 0
    for block in network.blocks:
        q, k, v = block.attn.qkv(block.norm1(x)).split(24, dim=1)
        heads = [slice(8 * head, 8 * head + 8) for head in range(3)]
        mixed = [torch.softmax(q[:, h] @ k[:, h].T / 8**0.5 + score, dim=1) @ v[:, h] for h in heads]
        x = x + block.attn.proj(torch.cat(mixed, dim=1))
        x = x + block.mlp(block.norm2(x))
    return network.head(network.norm(x)[0])  # type: ignore[no-any-return]


def test_a_pixel_is_hidden_where_all_its_channels_are() -> None:
    network = SmoothedViT(transformer(), FEW).eval()
    one = torch.full((1, 3, 32, 40), HIDDEN)
    hidden = network(one)
    for channel in range(3):
        some = one.clone()
        some[:, channel, :8, :8] = 0.5
        assert not torch.equal(network(some), hidden)


@pytest.mark.parametrize("few", [1, FEW, 20, 50])
def test_it_says_what_a_transformer_without_the_hidden_tokens_says(few: int) -> None:
    network, shown = transformer(), bands(pictures(24))
    counts = {len(tokens_seen(picture)) for picture in shown}
    assert min(counts) == 0
    assert max(counts) == 20
    assert counts & {FEW}
    with torch.no_grad():
        found = SmoothedViT(network, few).eval()(shown)
        for picture, logits in zip(shown, found, strict=True):
            torch.testing.assert_close(logits, sliced(network, picture), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(logits, masked(network, picture), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            SmoothedViT(network, few).eval()(pictures(3)), network((pictures(3) - MEAN) / STD), atol=1e-4, rtol=1e-4
        )


def test_hidden_tokens_are_not_computed() -> None:
    """Few tokens reach the blocks, in one batch of a fixed shape, and pictures that show many one by one."""
    network = SmoothedViT(transformer(), FEW).eval()
    shapes: list[tuple[int, ...]] = []
    for block in network.blocks:
        block.mlp.register_forward_pre_hook(lambda _, given: shapes.append(tuple(given[0].shape[:2])))
    shown = torch.full((6, 3, 32, 40), HIDDEN)
    shown[:, :, :, :8] = 0.5
    network(shown)
    assert shapes == [(6, 1 + FEW)] * 3
    shapes.clear()
    shown[[2, 5]] = 0.5
    network(shown)
    assert shapes == [(6, 1 + FEW)] * 3 + [(1, 21)] * 6


def test_chunks_of_several_pictures_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the last one is filled up, and every picture gets its own answer."""
    network, shown = SmoothedViT(transformer(), FEW).eval(), bands(pictures(24))
    one_by_one = network(shown)
    monkeypatch.setitem(CHUNK, "cpu", 5)
    shapes: list[tuple[int, ...]] = []
    network.head.register_forward_pre_hook(lambda _, given: shapes.append(tuple(given[0].shape)))
    torch.testing.assert_close(network(shown), one_by_one, atol=1e-4, rtol=1e-4)
    many = sum(len(tokens_seen(picture)) > FEW for picture in shown)
    assert many % 5 != 0
    assert shapes == [(24, 24)] + [(5, 24)] * -(-many // 5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_answer_is_a_function_of_one_picture(precision: str, device: str) -> None:
    """To the last bit: any neighbours, any place in the batch, however many of them show many tokens."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    network = SmoothedViT(transformer(), FEW).eval().to(device, dtype)
    shown = bands(pictures(24)).to(device, dtype)
    own = network(shown)
    for seed in range(4):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(seed)).to(device)
        assert torch.equal(network(shown[order]), own[order])
        strangers = shown.clone()
        strangers[order[:12]] = pictures(12, seed).to(device, dtype) if seed % 2 else HIDDEN
        assert torch.equal(network(strangers)[order[12:]], own[order[12:]])


def test_a_gradient_reaches_what_is_seen_and_nothing_else() -> None:
    network = SmoothedViT(transformer(), FEW)
    shown = bands(pictures(24)).requires_grad_()
    (slope,) = torch.autograd.grad(network(shown).square().sum(), shown)
    assert not slope[shown < 0].any()
    assert (slope[shown >= 0] != 0).float().mean() > 0.99
    network(shown).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_black_is_not_hidden() -> None:
    network, shown = SmoothedViT(transformer(), FEW).eval(), bands(pictures(24))
    black = torch.where(shown < 0, 0.0, shown)
    differs = (network(shown) != network(black)).any(dim=1)
    assert differs.tolist() == (shown < 0).flatten(1).any(dim=1).tolist()


def test_votes_of_bands_through_the_engine() -> None:
    """With the canary, which shows all tokens, in every batch; strangers change nothing, and nothing warns."""
    network, cover = transformer(img_size=(40, 40)), band_cover(40, 4, band=5)
    images = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = Classifier(SmoothedViT(network, 10), 40, batch=8, precision="fp32", compiled=True)
        engine = Engine(classifier, [cover])
        check_company(engine, list(images))
        found = outputs_under(engine, cover, images, [singles_of(cover)] * 2)
    assert (classifier.grid, classifier.compiled, classifier.company) == (8, False, 0)
    for image, votes in zip(images, found, strict=True):
        shown = torch.full((40, 3, 40, 40), HIDDEN)
        for left in range(40):
            columns = np.arange(left, left + 5) % 40
            shown[left][:, :, columns] = image[:, :, columns]
        with torch.no_grad():
            own = as_votes(SmoothedViT(network, 10).eval()(shown).softmax(dim=1))
        order = [_column_shown(cover.masks[number].footprint((40, 40))[1]) for number in range(len(cover))]
        torch.testing.assert_close(votes, own[order], atol=1e-5, rtol=0)


def test_openvino_does_not_take_it() -> None:
    """Tracing would keep one branch, that of the bare pictures with which it is tried."""
    with pytest.raises(ClassifierError, match="for OpenVINO, got SmoothedViT, which branches on what it is shown"):
        Classifier(SmoothedViT(transformer(img_size=(40, 40))), 40, backend="openvino", precision="fp32")


def _column_shown(hidden: Any) -> int:
    """The first column of the band that a mask leaves."""
    covered = {column for low, high in hidden for column in range(low, high)}
    return next(column for column in range(40) if column not in covered and (column - 1) % 40 in covered)


@pytest.mark.parametrize(
    "options",
    [{"reg_tokens": 2}, {"global_pool": "avg"}, {"no_embed_class": True}, {"pre_norm": True}, {"class_token": False}],
)
def test_other_transformers_are_refused(options: dict[str, Any]) -> None:
    if "class_token" in options:
        options = {**options, "global_pool": "avg"}
    with pytest.raises(ClassifierError, match="expected a plain vision transformer with a class token, got one with"):
        SmoothedViT(transformer(**options))


def test_weights_of_a_deit_load(tmp_path: Path) -> None:
    """By name, without a word about the wrapping; on a bare picture it is that DeiT."""
    plain = build_model("deit_tiny_patch16_224", 1000, (224, 224)).eval()
    save_file(plain.state_dict(), tmp_path / "deit.safetensors")
    smoothed: Any = load_model("smoothed_deit_tiny_patch16_224", tmp_path / "deit.safetensors").eval()
    assert set(smoothed.state_dict()) == set(plain.state_dict())
    assert smoothed.few == 42
    picture = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(smoothed(picture), plain((picture - MEAN) / STD), atol=1e-4, rtol=1e-4)
