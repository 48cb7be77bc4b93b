"""ResNets that timm does not have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor, nn

CAFFE_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class CifarResNet(nn.Module):
    """ResNet for 32×32 (He et al. 2016): stages of ``blocks`` basic blocks; three have 6·blocks + 2 layers."""

    def __init__(self, blocks: int, width: int, num_classes: int, *, stages: int = 3, colours: int = 3) -> None:
        super().__init__()
        basic: Any = import_module("timm.models.resnet").BasicBlock
        self.num_classes = num_classes
        first = nn.Conv2d(colours, width, 3, padding=1, bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(True))
        layers, channels = [], width
        for stage in range(stages):
            planes = width << stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                shortcut = None if channels == planes else _shortcut(channels, planes, stride)
                layers.append(basic(channels, planes, stride, shortcut))
                channels = planes
        self.blocks = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """``[n, colours, 32, 32]`` (or larger) to logits ``[n, classes]``."""
        logits: Tensor = self.fc(self.blocks(self.stem(images)).mean(dim=(2, 3)))
        return logits


def _shortcut(channels: int, planes: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))


def resnet26w2_cifar(pretrained: bool = False, num_classes: int = 10, **_: Any) -> nn.Module:
    """26 layers, twice as wide as the first CIFAR-10 ResNets: 1.5 million weights."""
    network = CifarResNet(4, 32, num_classes)
    return with_config(network, "resnet26w2_cifar", default_cfgs["resnet26w2_cifar"], pretrained)


def resnet26w3_cifar(pretrained: bool = False, num_classes: int = 10, **_: Any) -> nn.Module:
    """The same, three times as wide as the first ones: 3.3 million weights."""
    network = CifarResNet(4, 48, num_classes)
    return with_config(network, "resnet26w3_cifar", default_cfgs["resnet26w3_cifar"], pretrained)


def resnet50_v1(pretrained: bool = False, num_classes: int = 1000, **options: Any) -> nn.Module:
    """ResNet-50 as first published: a stage's stride sits in its first 1×1 convolution; input in 0…255 minus a mean."""
    model: Any = import_module("timm").create_model("resnet50", num_classes=num_classes, **options)
    for stage in (model.layer2, model.layer3, model.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    return with_config(model, "resnet50_v1", default_cfgs["resnet50_v1"], pretrained)


CIFAR = {"num_classes": 10, "input_size": (3, 32, 32), "mean": CIFAR_MEAN, "std": CIFAR_STD, "crop_pct": 1.0,
         "classifier": "fc"}  # fmt: skip
default_cfgs: dict[str, dict[str, Any]] = {
    "resnet26w2_cifar": CIFAR,
    "resnet26w3_cifar": CIFAR,
    "resnet50_v1": {"num_classes": 1000, "input_size": (3, 224, 224), "mean": CAFFE_MEAN, "std": (1 / 255,) * 3,
                    "crop_pct": 0.875, "classifier": "fc"},
}  # fmt: skip


def with_config(model: nn.Module, name: str, config: dict[str, Any], pretrained: bool) -> nn.Module:
    """The model as timm wants it; an error where its weights are to be downloaded, which nobody offers."""
    if pretrained:
        raise ValueError(f"{name} has no weights to download: give a local file")
    model.pretrained_cfg = config  # type: ignore[assignment]
    return model
