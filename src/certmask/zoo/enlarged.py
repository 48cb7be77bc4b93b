"""Transformers that look at the picture enlarged: more, smaller tokens of the same pixels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD, with_config

SIDE = 224
"""Of the pictures that these networks are shown: masks are painted on them before they are enlarged."""
BY_SIDE = "_enlarged_"
"""What stands in their names before the side of the picture as the transformer sees it."""


class Enlarged(nn.Module):
    """Shows a network the picture in another size, by bicubic interpolation: two products with fixed matrices."""

    enlargement: Tensor

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network = network
        self.num_classes = getattr(network, "num_classes", None)
        self.register_buffer("enlargement", enlargement(SIDE, side), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """``[n, 3, 224, 224]`` to logits ``[n, classes]``."""
        logits: Tensor = self.network(self.enlargement @ images @ self.enlargement.T)
        return logits


def enlargement(side: int, larger: int) -> Tensor:
    """The matrix ``[larger, side]`` by which a column of pixels becomes a longer one."""
    columns = functional.interpolate(torch.eye(side)[None, None], (larger, side), mode="bicubic", align_corners=False)
    return columns[0, 0]


def deit_tiny_enlarged_320(pretrained: bool = False, **options: Any) -> nn.Module:
    """DeiT-Ti on 20×20 tokens of 11.2 pixels."""
    return _enlarged("deit_tiny", 320, pretrained, options)


def deit_tiny_enlarged_384(pretrained: bool = False, **options: Any) -> nn.Module:
    """DeiT-Ti on 24×24 tokens of 9.3 pixels."""
    return _enlarged("deit_tiny", 384, pretrained, options)


default_cfgs: dict[str, dict[str, Any]] = {
    f"deit_tiny{BY_SIDE}{side}": {"num_classes": 1000, "input_size": (3, SIDE, SIDE), "mean": IMAGENET_MEAN,
                                  "std": IMAGENET_STD, "crop_pct": 0.9, "classifier": "network.head"}
    for side in (320, 384)
}  # fmt: skip


def _enlarged(base: str, side: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    name = f"{base}{BY_SIDE}{side}"
    network = import_module("timm").create_model(f"{base}_patch16_224", **{**options, "img_size": side})
    return with_config(Enlarged(network, side), name, default_cfgs[name], pretrained)
