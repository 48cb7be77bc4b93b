"""Weights of one network as a start for another that is not quite the same."""

from __future__ import annotations

import torch
from torch import Tensor

from certmask.classifier import Colour
from certmask.zoo.checkpoint import StateDict
from certmask.zoo.timm_import import import_timm

TOLD, INNER = "told_", "network."
"""How names of networks that are told what is hidden begin, and those of their tensors."""


def transplanted(name: str, own: StateDict, state: StateDict) -> tuple[StateDict, str]:
    """The tensors ``state`` as a network ``name`` with tensors ``own`` takes them over, and words about what changed.

    Of a network that is told, from the same one that is not; of a BagNet, from a ResNet-50; others as they are.
    """
    if name.startswith(TOLD) and not any(key.startswith(INNER) for key in state):
        config = import_timm().get_pretrained_cfg(name.removeprefix(TOLD))
        state = {INNER + key: tensor for key, tensor in state.items()}
        first = next(key for key, tensor in own.items() if tensor.ndim == 4)
        if config and first in state and state[first].shape[1] == 3:
            state[first] = six_channels(state[first], config.mean, config.std)
        return state, ", its first convolution for six channels"
    if name.startswith("bagnet") and "conv2.weight" not in state:
        fresh = {key: own[key] for key in ("conv1.weight", "conv2.weight")}
        fitted = {key: narrowed(tensor, own[key]) if key in own else tensor for key, tensor in state.items()}
        return {**fitted, **fresh}, ", 3×3 kernels summed up where it has 1×1, a fresh stem"
    return state, ""


def six_channels(kernel: Tensor, mean: Colour, std: Colour) -> Tensor:
    """A kernel on ``(x, 1 − x)`` that gives what ``kernel`` does on ``(x − mean) / std``, pixel by pixel.

    ``k·(x − m)/s = k·(1 − m)/s · x − k·m/s · (1 − x)``. Zeros, at the border as where hidden, are what the mean was.
    """
    shift, scale = (torch.tensor(colour).view(1, 3, 1, 1) for colour in (mean, std))
    return torch.cat([kernel * (1 - shift) / scale, -kernel * shift / scale], dim=1)


def narrowed(kernel: Tensor, own: Tensor) -> Tensor:
    """A kernel of 1×1 that gives what ``kernel`` does where all its pixels are alike; any other tensor as it is."""
    if own.ndim == 4 and own.shape[2:] == (1, 1) and own.shape[:2] == kernel.shape[:2]:
        return kernel.sum(dim=(2, 3), keepdim=True)
    return kernel
