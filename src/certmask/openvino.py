"""OpenVINO as the engine room on CPUs: ``pip install 'certmask[openvino]'``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from certmask.errors import ClassifierError
from certmask.geometry import Size

HINTS = {"fp32": "f32", "bf16": "bf16"}


def openvino_model(model: nn.Module, size: Size, precision: str) -> Callable[[Tensor], Tensor]:
    """The same network compiled by OpenVINO, once per batch size; a different function in its last digits."""
    if precision not in HINTS:
        raise ClassifierError(f"expected precision fp32 or bf16 with OpenVINO, got {precision!r}")
    try:
        openvino = import_module("openvino")
    except ImportError:
        raise ClassifierError("expected the package openvino, got none: pip install 'certmask[openvino]'") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's tracer, which OpenVINO uses
        graph = openvino.convert_model(model.float().eval(), example_input=torch.zeros(2, 3, *size))
    hints = {"INFERENCE_PRECISION_HINT": HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
    compiled: dict[int, Any] = {}

    def run(images: Tensor) -> Tensor:
        if len(images) not in compiled:
            graph.reshape(list(images.shape))
            compiled[len(images)] = openvino.Core().compile_model(graph, "CPU", hints)
        return torch.from_numpy(compiled[len(images)](images.contiguous().numpy())[0].copy())

    return run
