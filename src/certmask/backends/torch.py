"""torch itself: any device, any precision, any callable."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from certmask.threat import Size

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def place(model: nn.Module, _size: Size, device: torch.device, precision: str) -> nn.Module:
    """A copy of the network in evaluation mode, channels last; a ScriptModule stays in its own memory format."""
    with torch.no_grad():  # else a ScriptModule's copies would remember what they were copied from
        model = copy.deepcopy(model).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model = model.to(device, DTYPES[precision])
    if isinstance(model, torch.jit.ScriptModule):
        return model
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def arranged(images: Tensor, precision: str) -> Tensor:
    """The same images in the network's precision, channels last."""
    return images.to(DTYPES[precision]).contiguous(memory_format=torch.channels_last)
