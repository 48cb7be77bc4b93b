"""Smoothed ViT (Salman et al. 2022): a vision transformer that drops the tokens of which nothing is seen."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from certmask.errors import ClassifierError
from certmask.zoo.told import UNCHANGED
from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD, with_config

CHUNK = {"cuda": 8}
"""Pictures that show many tokens are computed so many at a time; elsewhere one by one."""
WIDE = 3
"""By default, few tokens are as many as so many columns of them have: a band of up to 2 tokens and 1 pixel."""


class SmoothedViT(nn.Module):
    """A plain vision transformer of timm's on what is seen alone; its tensors keep their names.

    A picture that shows at most ``few`` tokens is computed with so many, beside the class token, and what is left over
    is masked in attention; any other with all tokens, those that are hidden masked. Both are batches of fixed shapes,
    whatever else is in the batch, so an answer is a function of one picture. Hidden pixels of a token that is partly
    seen have the mean colour.
    """

    told = True
    compilable = False
    mean: Tensor
    std: Tensor

    def __init__(self, network: Any, few: int | None = None) -> None:
        super().__init__()
        self.patch_embed, self.blocks, self.norm = network.patch_embed, network.blocks, network.norm
        self.fc_norm, self.head_drop, self.head = network.fc_norm, network.head_drop, network.head
        self.cls_token, self.pos_embed = network.cls_token, network.pos_embed
        _check_plain(network, self)
        self.num_classes = network.num_classes
        self.few = WIDE * self.patch_embed.grid_size[0] if few is None else few
        for name, colour in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)):
            self.register_buffer(name, torch.tensor(colour).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """``[n, 3, height, width]`` in [0, 1], below 0 where hidden, to logits ``[n, classes]``."""
        hidden = images < 0
        seen = torch.where(hidden, 0.0, (images - self.mean) / self.std)
        tokens = self.patch_embed(seen) + self.pos_embed[:, 1:]
        shown = self._shown(hidden)
        first = shown.int().argsort(dim=1, descending=True, stable=True)[:, : self.few]
        some = tokens.gather(1, first[:, :, None].expand(-1, -1, tokens.shape[2]))
        logits = self._logits(some, shown.gather(1, first))
        many = (shown.sum(dim=1) > self.few).nonzero()[:, 0]
        size = CHUNK.get(images.device.type, 1)
        for start in range(0, len(many), size):
            part = many[start : start + size]
            filled = part.repeat(size)[:size]
            logits = logits.index_put((part,), self._logits(tokens[filled], shown[filled])[: len(part)])
        return logits

    def _shown(self, hidden: Tensor) -> Tensor:
        """The tokens ``[n, tokens]`` of which some pixel is seen, in any channel."""
        seen = (~hidden.all(dim=1, keepdim=True)).float()
        return functional.max_pool2d(seen, self.patch_embed.patch_size).flatten(1) > 0

    def _logits(self, tokens: Tensor, shown: Tensor) -> Tensor:
        """Of tokens ``[n, tokens, channels]``, of which those that are ``shown`` can be seen."""
        own = (self.cls_token + self.pos_embed[:, :1]).expand(len(tokens), -1, -1)
        values = torch.cat([own, tokens], dim=1)
        seen = functional.pad(shown, (1, 0), value=True)[:, None, None, :]
        for block in self.blocks:
            values = values + block.drop_path1(block.ls1(_attended(block.attn, block.norm1(values), seen)))
            values = values + block.drop_path2(block.ls2(block.mlp(block.norm2(values))))
        logits: Tensor = self.head(self.head_drop(self.fc_norm(self.norm(values)[:, 0])))
        return logits


def _attended(attention: Any, values: Tensor, seen: Tensor) -> Tensor:
    """What timm's attention layer makes of values ``[n, tokens, channels]``, where it looks at those ``seen`` alone.

    Not all versions of it take a mask.
    """
    count, length, channels = values.shape
    parts = attention.qkv(values).view(count, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    query, key, value = parts.unbind(0)
    dropout = attention.attn_drop.p if attention.training else 0.0
    mixed = functional.scaled_dot_product_attention(
        attention.q_norm(query), attention.k_norm(key), value, attn_mask=seen, dropout_p=dropout
    )
    given: Tensor = attention.proj_drop(attention.proj(mixed.transpose(1, 2).reshape(count, length, channels)))
    return given


def _check_plain(network: Any, taken: nn.Module) -> None:
    """An error unless a transformer is what this file computes: one class token, which answers, and no other parts."""
    left = sorted(set(network.state_dict()) ^ set(taken.state_dict()))
    layers = {name.split(".")[0] for block in network.blocks for name, _ in block.attn.named_parameters()}
    odd = [*left, *sorted(layers - {"qkv", "q_norm", "k_norm", "proj"})]
    if network.global_pool != "token" or network.no_embed_class:
        odd.append("an answer from other tokens or a class token without a place")
    if odd:
        raise ClassifierError(f"expected a plain vision transformer with a class token, got one with {odd[0]}")


def smoothed_deit_tiny_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """DeiT-Ti on what is seen alone."""
    return _smoothed("deit_tiny_patch16_224", pretrained, options)


def smoothed_deit_small_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """DeiT-S on what is seen alone."""
    return _smoothed("deit_small_patch16_224", pretrained, options)


default_cfgs: dict[str, dict[str, Any]] = {
    f"smoothed_deit_{size}_patch16_224": {"num_classes": 1000, "input_size": (3, 224, 224), **UNCHANGED,
                                          "crop_pct": 0.9, "classifier": "head"}
    for size in ("tiny", "small")
}  # fmt: skip


def _smoothed(name: str, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    few = options.pop("few", None)
    network = import_module("timm").create_model(name, **options)
    own = f"smoothed_{name}"
    return with_config(SmoothedViT(network, few), own, default_cfgs[own], pretrained)
