"""What a network is known by: digests of its weights and layers, its tokens, the packages that compute it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from certmask.backends import ForeignModel, backend_named
from certmask.threat import Size

UNKNOWN = "unknown"
"""The weights of a plain callable."""


def known_of(model: object, size: Size) -> tuple[int, str, str]:
    """The side of a model's tokens, and the digests of its weights and of its layers."""
    if isinstance(model, ForeignModel):
        return model.grid, model.sha256, model.layers_sha256
    if isinstance(model, nn.Module):
        return token_side(model, size), weights_digest(model), architecture_digest(model)
    return 1, UNKNOWN, UNKNOWN


def token_side(model: nn.Module, size: Size) -> int:
    """The side of the square tokens into which a network cuts an input of this size; 1 if it has none, or several.

    A convolution over images makes them, in a module that has a ``patch_size``: so it is in transformers, mixers and
    Swins of timm. The stem of a ConvNeXt is in none.
    """
    sides = {
        _cut(layer, size) if getattr(own, "img_size", None) in (None, size) else 1
        for own in model.modules()
        if hasattr(own, "patch_size")
        for layer in own.children()
        if isinstance(layer, nn.Conv2d) and layer.in_channels == 3
    }
    return sides.pop() if len(sides) == 1 else 1


def _cut(convolution: nn.Conv2d, size: Size) -> int:
    """The side of the squares into which a convolution cuts an input; 1 where they overlap or do not fill it."""
    side = convolution.kernel_size[0]
    squares = convolution.kernel_size == convolution.stride == (side, side) and convolution.padding == (0, 0)
    return side if squares and size[0] % side == size[1] % side == 0 else 1


def packages_of(model: object, backend: str) -> tuple[str, ...]:
    """What computes a model, or has its layers, beside what every results file names."""
    own = type(model).__module__.partition(".")[0]
    return tuple(sorted({backend_named(backend).package, own} & {"onnxruntime", "transformers"}))


def weights_digest(model: nn.Module) -> str:
    """sha256 over all parameters and buffers, by name: the same for the same weights under any library version."""
    return tensors_digest([*model.named_parameters(), *model.named_buffers()])


def tensors_digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over named tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def architecture_digest(model: nn.Module) -> str:
    """sha256 over the printed layers, which tells a ReLU from a Tanh; library versions may print differently."""
    return hashlib.sha256(str(model).encode()).hexdigest()
