"""ONNX Runtime on CPUs: ONNX files, and torch networks that are exported for it: ``pip install 'certmask[onnx]'``."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import warnings
from collections.abc import Iterator
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certmask.backends.backend import ForeignModel
from certmask.backends.graph import Graph, graph_of, import_onnx
from certmask.backends.outputs import CHECKED_BATCHES, LogitsAlone, check_same, quiet_logs
from certmask.errors import ClassifierError, first_line
from certmask.threat import Size

TITLE = "ONNX Runtime"


def place(model: nn.Module, size: Size, _device: torch.device, _precision: str) -> Exported:
    """The same network exported to ONNX; a different function in its last digits."""
    network = LogitsAlone(copy.deepcopy(model).float()).eval()
    return Exported(_exported(network, size), network)


def arranged(images: Tensor, _precision: str) -> Tensor:
    """The same images: ONNX Runtime takes fp32."""
    return images


class OnnxNetwork(ForeignModel):
    """An ONNX graph in ONNX Runtime, which computes it with as many threads as torch has, always the same way.

    A graph whose batch is fixed gets its images so many at a time, the last ones filled up with the last image.
    """

    computed_by = "onnxruntime"

    def __init__(self, graph: Graph) -> None:
        self.graph, self.sha256, self.layers_sha256, self.grid = graph, graph.sha256, graph.layers_sha256, graph.grid
        self._session = _session(graph)

    def __call__(self, images: Tensor) -> Tensor:
        step = self.graph.batch or len(images)
        return torch.cat([self._computed(part, step)[: len(part)] for part in torch.split(images, step)])

    def __reduce__(self) -> tuple[type[OnnxNetwork], tuple[Any, ...]]:
        """A copy begins a session of its own: one cannot leave the process."""
        return type(self), (self.graph,)

    def _computed(self, images: Tensor, batch: int) -> Tensor:
        filled = torch.cat([images, images[-1:].expand(batch - len(images), -1, -1, -1)])
        try:
            (numbers,) = self._session.run(
                [self.graph.output], {self.graph.input: np.ascontiguousarray(filled.numpy())}
            )
        except Exception as error:  # those of ONNX Runtime have no common kind
            raise ClassifierError(
                f"expected {TITLE} to compute {list(filled.shape)} images, got {_reason(error)}"
            ) from error
        return torch.from_numpy(numbers)


class Exported(OnnxNetwork):
    """A torch network in ONNX Runtime, which is compared with torch on the first batches."""

    def __init__(self, graph: Graph, model: nn.Module) -> None:
        super().__init__(graph)
        self.model, self._checked, self._turn = model, 0, Lock()

    def __call__(self, images: Tensor) -> Tensor:
        outputs = super().__call__(images)
        with self._turn:
            if self._checked < CHECKED_BATCHES:
                with torch.inference_mode():
                    check_same(outputs[:2], self.model(images[:2]), TITLE)
                self._checked += 1
        return outputs

    def __reduce__(self) -> tuple[type[OnnxNetwork], tuple[Any, ...]]:
        return type(self), (self.graph, self.model)


def _session(graph: Graph) -> Any:
    """The graph ready to compute on the processor: no operators but ONNX Runtime's own, and no other threads."""
    runtime = _onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # errors are told below, in one line
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(graph.content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # those of ONNX Runtime have no common kind
        raise ClassifierError(f"expected a graph that {TITLE} can compute, got {_reason(error)}") from error


def _onnxruntime() -> Any:
    try:
        return import_module("onnxruntime")
    except ImportError:
        raise ClassifierError("expected the package onnxruntime, got none: pip install 'certmask[onnx]'") from None


def _exported(network: nn.Module, size: Size) -> Graph:
    """The network as ONNX has it, for batches of any size."""
    import_onnx()
    example, batch = torch.zeros(2, 3, *size), torch.export.Dim("batch")
    try:
        with _quietly():
            program: Any = torch.onnx.export(
                network, (example,), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
            )
    except Exception as error:  # whatever is in a network can fail to be exported
        raise ClassifierError(
            f"expected a network that torch can export to ONNX for {size[0]}×{size[1]} images, got {_reason(error)}: "
            "take the backend torch"
        ) from error
    model = program.model_proto
    return graph_of(model, hashlib.sha256(model.SerializeToString()).hexdigest(), type(network).__name__)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Exporting tells its steps, and what it thinks of its own versions."""
    with quiet_logs(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _reason(error: Exception) -> str:
    """What happened, without ONNX Runtime's number for it."""
    text = str(error).strip().rpartition(" : ")[2].rpartition(", Error ")[2]
    return first_line(Exception(text or type(error).__name__))
