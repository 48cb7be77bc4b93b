"""OpenVINO as the engine room on CPUs: ``pip install 'certmask[openvino]'``."""

from __future__ import annotations

import copy
import os
import sys
import warnings
from importlib import import_module
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from certmask.backends.outputs import CHECKED_BATCHES, LogitsAlone, check_same, quiet_logs
from certmask.errors import ClassifierError
from certmask.threat import Size

TELEMETRY = "openvino_telemetry"
HINTS = {"fp32": "f32", "bf16": "bf16"}


def place(model: nn.Module, size: Size, _device: torch.device, precision: str) -> Converted:
    """The same network compiled by OpenVINO; a different function in its last digits."""
    return Converted(LogitsAlone(copy.deepcopy(model).float()).eval(), size, precision)


class Converted:
    """A network in OpenVINO, compiled once per batch size; threads that call it at once take turns.

    Its output lies in memory that the next call writes to, so a turn ends when the output has been copied.
    """

    def __init__(self, model: nn.Module, size: Size, precision: str) -> None:
        self.model, self.size, self.precision = model, size, precision
        self._graph = _graph(model, size)
        self._compiled: dict[int, Any] = {}
        self._checked = 0
        self._turn = Lock()

    def __call__(self, images: Tensor) -> Tensor:
        with self._turn:
            outputs = self._computed(images)
            if self._checked < CHECKED_BATCHES:
                with torch.inference_mode():
                    check_same(outputs[:2], self.model(images[:2]), "OpenVINO")
                self._checked += 1
        return outputs

    def __reduce__(self) -> tuple[type[Converted], tuple[nn.Module, Size, str]]:
        """A copy is converted again: what OpenVINO has compiled cannot leave the process."""
        return Converted, (self.model, self.size, self.precision)

    def _computed(self, images: Tensor) -> Tensor:
        try:
            if len(images) not in self._compiled:
                self._graph.reshape(list(images.shape))
                self._compiled[len(images)] = _openvino().Core().compile_model(self._graph, "CPU", self._hints)
            return torch.from_numpy(self._compiled[len(images)](images.contiguous().numpy())[0].copy())
        except RuntimeError as error:
            raise ClassifierError(
                f"expected OpenVINO to compute {list(images.shape)} images, got {_reason(error)}: take torch"
            ) from error

    @property
    def _hints(self) -> dict[str, str]:
        """One stream has all threads: no two calls are computed by different shares of the processor.

        Where torch was told to leave processors to others, so does OpenVINO.
        """
        threads = torch.get_num_threads()
        return {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            **({"INFERENCE_NUM_THREADS": str(threads)} if threads < (os.cpu_count() or 1) else {}),
        }


def arranged(images: Tensor, _precision: str) -> Tensor:
    """The same images: OpenVINO takes fp32 and rounds inside."""
    return images


def _openvino() -> Any:
    """OpenVINO without its telemetry: a dozen messages for every conversion, each sent by a copy of this process.

    Where somebody has imported it before, or its telemetry, that is as they have it.
    """
    first = "openvino" not in sys.modules
    hidden = first and sys.modules.setdefault(TELEMETRY, None) is None  # type: ignore[arg-type]
    try:
        return import_module("openvino")
    except ImportError:
        raise ClassifierError("expected the package openvino, got none: pip install 'certmask[openvino]'") from None
    finally:
        if hidden:
            sys.modules.pop(TELEMETRY, None)


def _graph(model: nn.Module, size: Size) -> Any:
    """The network as OpenVINO reads it, for batches of any size."""
    with quiet_logs(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's tracer, which OpenVINO uses
        warnings.simplefilter("ignore", TracerWarning)  # ViTs check shapes while they are traced
        openvino = _openvino()
        try:
            return openvino.convert_model(model, example_input=torch.zeros(2, 3, *size))
        except Exception as error:
            raise ClassifierError(
                f"expected a network that OpenVINO can convert for {size[0]}×{size[1]} images, got {_reason(error)}: "
                "take the backend torch"
            ) from error


def _reason(error: Exception) -> str:
    """The one line that says what happened, of the many in which OpenVINO says where."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip(" -")] or [type(error).__name__]
    return lines[lines.index("Exception:") + 1] if "Exception:" in lines[:-1] else lines[-1]
