"""A transformer that looks at the picture enlarged: more, smaller tokens of the same pixels."""

from __future__ import annotations

from importlib import import_module
from math import floor
from typing import Any

import torch
from torch import Tensor, nn

from certmask.errors import ClassifierError
from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD, with_config

SHOWN, SEEN = 224, 384
"""Sides of the picture that the network is shown, on which masks are painted, and of the one that it sees."""
CUBIC = -0.75
"""The slope of the kernel at its first zero, as torch and OpenCV have it."""


class Enlarged(nn.Module):
    """Shows a network the picture in another size, by bicubic interpolation: two products with one fixed matrix."""

    enlargement: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.num_classes = getattr(network, "num_classes", None)
        self.register_buffer("enlargement", enlargement(SHOWN, SEEN), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """``[n, 3, 224, 224]`` to logits ``[n, classes]``."""
        logits: Tensor = self.network(self.enlargement @ images @ self.enlargement.T)
        return logits


def enlargement(side: int, larger: int) -> Tensor:
    """The matrix ``[larger, side]`` by which a column of pixels becomes a longer one; the same on every machine."""
    matrix = torch.zeros(larger, side, dtype=torch.float64)
    for row in range(larger):
        place = (row + 0.5) * side / larger - 0.5
        for pixel in range(floor(place) - 1, floor(place) + 3):
            matrix[row, min(max(pixel, 0), side - 1)] += _cubic(abs(place - pixel))
    return matrix.float()


def _cubic(away: float) -> float:
    """What a pixel counts so far away from it, below 2 pixels."""
    if away <= 1:
        return (CUBIC + 2) * away**3 - (CUBIC + 3) * away**2 + 1
    return CUBIC * (away**3 - 5 * away**2 + 8 * away - 4)


def deit_tiny_enlarged_384(pretrained: bool = False, **options: Any) -> nn.Module:
    """DeiT-Ti on 24×24 tokens of 9.3 pixels."""
    name, size = "deit_tiny_enlarged_384", options.pop("img_size", (SHOWN, SHOWN))
    if tuple(size) != (SHOWN, SHOWN):
        raise ClassifierError(f"expected pictures of {SHOWN}×{SHOWN} for {name}, got {size[0]}×{size[1]}")
    network = import_module("timm").create_model("deit_tiny_patch16_224", img_size=SEEN, **options)
    return with_config(Enlarged(network), name, default_cfgs[name], pretrained)


default_cfgs: dict[str, dict[str, Any]] = {
    "deit_tiny_enlarged_384": {"num_classes": 1000, "input_size": (3, SHOWN, SHOWN), "mean": IMAGENET_MEAN,
                               "std": IMAGENET_STD, "crop_pct": 0.9, "classifier": "network.head"},
}  # fmt: skip
