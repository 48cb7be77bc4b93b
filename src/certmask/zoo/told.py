"""Networks that are told what is hidden: six channels, as de-randomized smoothing has them (Levine & Feizi 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from certmask.zoo.variants import CifarResNet, resnet50_v1, with_config


class SixChannels(nn.Module):
    """Shows a network of six channels the picture and its negative, ``(x, 1 − x)``, and zeros where it is hidden.

    Of what is seen the two add up to 1, so no colour looks as what is hidden does.
    """

    told = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.num_classes = getattr(network, "num_classes", None)

    def forward(self, images: Tensor) -> Tensor:
        """``[n, 3, height, width]`` in [0, 1], below 0 where hidden, to what the network makes of six channels."""
        both = torch.cat([images, 1 - images], dim=1)
        seen: Tensor = self.network(torch.where((images < 0).repeat(1, 2, 1, 1), 0.0, both))
        return seen


def told_resnet18_cifar(pretrained: bool = False, num_classes: int = 10, **_: Any) -> nn.Module:
    """ResNet-18 for 32×32: a 3×3 stem without pooling, four stages of two blocks, 64 to 512 channels."""
    return _told(CifarResNet(2, 64, num_classes, stages=4, colours=6), "told_resnet18_cifar", pretrained)


def told_resnet26w2_cifar(pretrained: bool = False, num_classes: int = 10, **_: Any) -> nn.Module:
    """``resnet26w2_cifar`` with six channels."""
    return _told(CifarResNet(4, 32, num_classes, colours=6), "told_resnet26w2_cifar", pretrained)


def told_resnet50_v1(pretrained: bool = False, num_classes: int = 1000, **options: Any) -> nn.Module:
    """``resnet50_v1`` with six channels."""
    return _told(resnet50_v1(num_classes=num_classes, in_chans=6, **options), "told_resnet50_v1", pretrained)


UNCHANGED = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
"""A network that is told what is hidden gets the picture as it is."""

default_cfgs: dict[str, dict[str, Any]] = {
    "told_resnet18_cifar": {"num_classes": 10, "input_size": (3, 32, 32), **UNCHANGED,
                            "crop_pct": 1.0, "classifier": "network.fc"},
    "told_resnet26w2_cifar": {"num_classes": 10, "input_size": (3, 32, 32), **UNCHANGED,
                              "crop_pct": 1.0, "classifier": "network.fc"},
    "told_resnet50_v1": {"num_classes": 1000, "input_size": (3, 224, 224), **UNCHANGED,
                         "crop_pct": 0.875, "classifier": "network.fc"},
}  # fmt: skip


def _told(network: nn.Module, name: str, pretrained: bool) -> nn.Module:
    return with_config(SixChannels(network), name, default_cfgs[name], pretrained)
