"""BagNets (Brendel & Bethge 2019): a ResNet-50 whose cells see only 9, 17 or 33 pixels, and vote one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from certmask.zoo.variants import IMAGENET_MEAN, IMAGENET_STD, with_config

WIDE_STAGES = {9: 2, 17: 3, 33: 4}
"""How many stages begin with a 3×3 convolution, by the side of the receptive field; all others see one cell."""
STRIDES = (2, 2, 2, 1)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1, ``kernel`` × ``kernel`` without padding, 1×1; the shortcut is cropped at its far end to what is left."""

    def __init__(self, channels: int, planes: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, kernel, stride, bias=False), nn.BatchNorm2d(planes)
        out = EXPANSION * planes
        self.conv3, self.bn3 = nn.Conv2d(planes, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, cells: Tensor) -> Tensor:
        """Cells ``[n, channels, rows, columns]`` to as many or fewer of them."""
        inner = functional.relu(self.bn1(self.conv1(cells)))
        inner = functional.relu(self.bn2(self.conv2(inner)))
        inner = self.bn3(self.conv3(inner))
        rows, columns = inner.shape[2:]
        return functional.relu(inner + self.downsample(cells)[:, :, :rows, :columns])


class BagNet(nn.Module):
    """Logits of each cell of the picture, ``field`` × ``field`` pixels every 8, and their mean.

    Tensors are named as the published ones, whose weights load. ``width`` is that of the stem; ``blocks`` are the
    bottlenecks in each stage.
    """

    def __init__(
        self, field: int, num_classes: int = 1000, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3)
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.conv1, self.conv2 = nn.Conv2d(3, width, 1, bias=False), nn.Conv2d(width, width, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        kernels = [3 if stage < WIDE_STAGES[field] else 1 for stage in range(4)]
        channels = [width, *(EXPANSION * width << stage for stage in range(4))]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _stage(channels[stage], width << stage, blocks[stage], kernels[stage], STRIDES[stage]) for stage in range(4)
        )
        self.fc = nn.Linear(channels[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, images: Tensor) -> Tensor:
        """What each cell sees, ``[n, channels, rows, columns]``."""
        cells = functional.relu(self.bn1(self.conv2(self.conv1(images))))
        cells = self.layer2(self.layer1(cells))
        return self.layer4(self.layer3(cells))  # type: ignore[no-any-return]

    def local(self, images: Tensor) -> Tensor:
        """The logits of each cell, ``[n, classes, rows, columns]``."""
        logits: Tensor = self.fc(self.features(images).permute(0, 2, 3, 1))
        return logits.permute(0, 3, 1, 2)

    def forward(self, images: Tensor) -> Tensor:
        """The mean of the local logits, ``[n, classes]``: the last layer is linear, so it may come after the mean."""
        logits: Tensor = self.fc(self.features(images).mean(dim=(2, 3)))
        return logits


class LocalLogits(nn.Module):
    """A network whose output is another one's ``local``, as ``receptive_field`` and others that call networks need."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network.local(images)  # type: ignore[operator]
        return logits


def _stage(channels: int, planes: int, blocks: int, kernel: int, stride: int) -> nn.Sequential:
    rest = [Bottleneck(EXPANSION * planes, planes, 1, 1) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(channels, planes, kernel, stride), *rest)


def bagnet9(pretrained: bool = False, num_classes: int = 1000, **_: Any) -> nn.Module:
    """BagNet-9: cells of 9 × 9 pixels."""
    return with_config(BagNet(9, num_classes), "bagnet9", default_cfgs["bagnet9"], pretrained)


def bagnet17(pretrained: bool = False, num_classes: int = 1000, **_: Any) -> nn.Module:
    """BagNet-17: cells of 17 × 17 pixels."""
    return with_config(BagNet(17, num_classes), "bagnet17", default_cfgs["bagnet17"], pretrained)


def bagnet33(pretrained: bool = False, num_classes: int = 1000, **_: Any) -> nn.Module:
    """BagNet-33: cells of 33 × 33 pixels."""
    return with_config(BagNet(33, num_classes), "bagnet33", default_cfgs["bagnet33"], pretrained)


def bagnet17_half(pretrained: bool = False, num_classes: int = 1000, **_: Any) -> nn.Module:
    """BagNet-17 with half as many channels everywhere."""
    network = BagNet(17, num_classes, width=32)
    return with_config(network, "bagnet17_half", default_cfgs["bagnet17_half"], pretrained)


default_cfgs: dict[str, dict[str, Any]] = {
    name: {"num_classes": 1000, "input_size": (3, 224, 224), "mean": IMAGENET_MEAN, "std": IMAGENET_STD,
           "crop_pct": 0.875, "classifier": "fc"}
    for name in ("bagnet9", "bagnet17", "bagnet33", "bagnet17_half")
}  # fmt: skip
