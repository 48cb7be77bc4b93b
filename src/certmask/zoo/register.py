"""Architectures that timm does not have, made known to it under their own names."""

from __future__ import annotations

from importlib import import_module

from certmask.zoo.bagnet import bagnet9, bagnet17, bagnet17_half, bagnet33
from certmask.zoo.enlarged import deit_tiny_enlarged_384
from certmask.zoo.smoothed_vit import smoothed_deit_small_patch16_224, smoothed_deit_tiny_patch16_224
from certmask.zoo.told import told_resnet18_cifar, told_resnet26w2_cifar, told_resnet50_v1
from certmask.zoo.variants import resnet26w2_cifar, resnet26w3_cifar, resnet50_v1

OWN = (
    *(resnet26w2_cifar, resnet26w3_cifar, resnet50_v1),
    *(told_resnet18_cifar, told_resnet26w2_cifar, told_resnet50_v1),
    *(bagnet9, bagnet17, bagnet17_half, bagnet33),
    *(smoothed_deit_tiny_patch16_224, smoothed_deit_small_patch16_224),
    deit_tiny_enlarged_384,
)


def register() -> None:
    """Make the names known to timm, once."""
    timm, registry = import_module("timm"), import_module("timm.models")
    for build in OWN:
        if not timm.is_model(build.__name__):
            registry.register_model(build)
