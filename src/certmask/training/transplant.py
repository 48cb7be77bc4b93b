"""Weights of one network as a start for another that is not quite the same."""

from __future__ import annotations

from importlib import import_module
from math import isqrt

import torch
from torch import Tensor

from certmask.errors import CertmaskError
from certmask.images import Colour
from certmask.zoo.checkpoint import StateDict
from certmask.zoo.timm_import import import_timm

TOLD, INNER = "told_", "network."
"""How names of networks that are told what is hidden begin, and those of tensors of a network within another."""
ENLARGED, PLACES = "_enlarged_", "pos_embed"
"""What is in names of networks that see the picture enlarged; where a transformer keeps the places of its tokens."""


def transplanted(name: str, own: StateDict, state: StateDict) -> tuple[StateDict, str]:
    """The tensors ``state`` as a network ``name`` with tensors ``own`` takes them over, and words about what changed.

    Of a network that is told, from the same one that is not; of one that sees the picture enlarged, from one that sees
    it as it is; of a BagNet or a ResNetV2-50, from a ResNet-50; others as they are.
    """
    bare = not any(key.startswith(INNER) for key in state)
    if ENLARGED in name and bare:
        return on_more_tokens(name, own, state), ", its places spread over more tokens"
    if name.startswith(TOLD) and bare:
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
    if name.startswith("resnetv2_50") and "layer1.0.conv1.weight" in state:
        return {**own, **preactivated(own, state)}, ", its kernels before activations instead of behind them"
    return state, ""


def on_more_tokens(name: str, own: StateDict, state: StateDict) -> StateDict:
    """Tensors of a transformer by the names of one on a finer grid of tokens, whose places lie between."""
    given = state.get(PLACES)
    if given is None or given.ndim != 3 or isqrt(given.shape[1] - 1) ** 2 != given.shape[1] - 1:
        raise CertmaskError(
            f"expected weights of a transformer with a class token and a square of others for {name}, got others"
        )
    side = isqrt(own[INNER + PLACES].shape[1] - 1)
    spread = import_module("timm.layers").resample_abs_pos_embed(given.float(), [side, side], num_prefix_tokens=1)
    return {INNER + key: spread if key == PLACES else tensor for key, tensor in state.items()}


def preactivated(own: StateDict, state: StateDict) -> StateDict:
    """Kernels and inner norms of a ResNet-50 by the names of ResNetV2-50, which normalizes before a kernel, not behind.

    A block's last norm, and that of its shortcut, go into their kernels, but for what they add, which has no place.
    ResNet-50 takes colours of 0…255, ResNetV2-50 of −1…1.
    """
    found = {"stem.conv.weight": _scaled(state, "conv1", "bn1") * 127.5}
    for key in own:
        if not key.startswith("stages."):
            continue
        _, stage, _, block, *rest = key.split(".")
        there, part = f"layer{int(stage) + 1}.{block}", ".".join(rest)
        if part == "downsample.conv.weight":
            found[key] = _scaled(state, f"{there}.downsample.0", f"{there}.downsample.1")
        elif part == "conv3.weight":
            found[key] = _scaled(state, f"{there}.conv3", f"{there}.bn3")
        elif part.startswith("conv"):
            found[key] = state[f"{there}.{part}"]
        elif part.startswith(("norm2", "norm3")):
            found[key] = state.get(f"{there}.bn{int(part[4]) - 1}{part[5:]}", own[key])
    return found


def _scaled(state: StateDict, kernel: str, norm: str) -> Tensor:
    """A kernel that gives what it and the norm behind it do, less what the norm adds."""
    scale = state[f"{norm}.weight"].float() / (state[f"{norm}.running_var"].float() + 1e-5).sqrt()
    return state[f"{kernel}.weight"].float() * scale.view(-1, 1, 1, 1)


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
