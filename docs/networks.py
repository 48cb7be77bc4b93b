"""How networks are called on a page, by the names that results files have for them."""

from __future__ import annotations

from certmask.experiments.measured import FinishedTrial

ARCHITECTURES = {
    "deit_tiny": "DeiT-Tiny",
    "efficientnet-lite0": "EfficientNet-Lite0",
    "resmlp_24": "ResMLP-S24",
    "resnet26": "ResNet-26",
    "resnet26w3": "ResNet-26 w3",
    "resnet50": "ResNet-50",
    "resnetv2_50": "ResNetV2-50",
}
DATA = {"imagenet": "ImageNet", "imagenette": "Imagenette", "cifar10": "CIFAR-10"}
PHOTO = 32
"""The side of CIFAR-10's photos, which some networks take enlarged."""


def title_of(trial: FinishedTrial) -> str:
    """The network, by the longest name of an architecture within its own, and the data set; its own where none is."""
    known = [name for name in ARCHITECTURES if name in trial.model]
    if not known or trial.data not in DATA:
        return trial.model
    side = trial.run.model["size"][0]
    enlarged = f" at {side}" if trial.data == "cifar10" and side != PHOTO else ""
    return f"{ARCHITECTURES[max(known, key=len)]}, {DATA[trial.data]}{enlarged}"
