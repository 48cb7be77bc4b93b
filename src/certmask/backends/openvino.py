"""OpenVINO as the engine room on CPUs: ``pip install 'certmask[openvino]'``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from certmask.backends.outputs import LogitsAlone
from certmask.errors import ClassifierError
from certmask.threat import Size

HINTS = {"fp32": "f32", "bf16": "bf16"}
CHECKED_BATCHES = 4
"""As many as a classifier looks at before it serves: black, grey, white and random pictures."""
TOLERANCE = 0.1
"""More than bf16 changes a probability: another network, not rounding."""


def place(model: nn.Module, size: Size, _device: torch.device, precision: str) -> Callable[[Tensor], Tensor]:
    """The same network compiled by OpenVINO, once per batch size; a different function in its last digits."""
    try:
        openvino = import_module("openvino")
    except ImportError:
        raise ClassifierError("expected the package openvino, got none: pip install 'certmask[openvino]'") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's tracer, which OpenVINO uses
        warnings.simplefilter("ignore", TracerWarning)  # ViTs check shapes while they are traced
        model = LogitsAlone(copy.deepcopy(model).float()).eval()
        graph = openvino.convert_model(model, example_input=torch.zeros(2, 3, *size))
    hints = {"INFERENCE_PRECISION_HINT": HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
    compiled: dict[int, Any] = {}
    seen = count()

    def logits(images: Tensor) -> Tensor:
        if len(images) not in compiled:
            graph.reshape(list(images.shape))
            compiled[len(images)] = openvino.Core().compile_model(graph, "CPU", hints)
        outputs = torch.from_numpy(compiled[len(images)](images.contiguous().numpy())[0].copy())
        if next(seen) < CHECKED_BATCHES:
            with torch.inference_mode():
                _check_same(outputs[:2], model(images[:2]))
        return outputs

    return logits


def arranged(images: Tensor, _precision: str) -> Tensor:
    """The same images: OpenVINO takes fp32 and rounds inside."""
    return images


def _check_same(found: Tensor, own: Tensor) -> None:
    """Refuse a network that converting has changed, as it does where a forward pass branches on pixels."""
    if found.shape != own.shape:
        raise ClassifierError(
            f"expected outputs of shape {list(own.shape)} from OpenVINO, got {list(found.shape)}: take torch"
        )
    change = float((found.softmax(dim=-1).nan_to_num() - own.softmax(dim=-1).nan_to_num()).abs().max())
    if change > TOLERANCE:
        raise ClassifierError(
            "expected a network that OpenVINO computes as torch does, got a probability that differs by "
            f"{change:.2g}: take the backend torch"
        )
