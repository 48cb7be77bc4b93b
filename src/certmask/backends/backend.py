"""The table of backends; none is imported before a classifier asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from certmask.errors import ClassifierError, any_of
from certmask.threat import Size

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


class ForeignModel(ABC):
    """A model that is no torch network: one backend alone computes it, and results files know it by its ``sha256``."""

    computed_by: ClassVar[str]
    sha256: str
    layers_sha256: str
    grid: int

    @abstractmethod
    def __call__(self, images: Tensor) -> Tensor:
        """Logits of normalized images."""


@dataclass(frozen=True)
class Backend:
    """One way to compute logits: the devices and precisions that it serves (no devices: all of them).

    The file of this room that bears its name says how, with two functions: ``place(model, size, device, precision)``
    gives a copy of the network ready to be called, ``arranged(images, precision)`` the images as it takes them.
    """

    name: str
    title: str
    package: str
    precisions: tuple[str, ...] = PRECISIONS
    devices: tuple[str, ...] = ()
    plain_callables: bool = False
    remark: str = ""

    def serves(self, device: str) -> bool:
        return not self.devices or device.partition(":")[0] in self.devices

    def place(
        self, model: Callable[[Tensor], Tensor], name: str, size: Size, device: torch.device, precision: str
    ) -> Callable[[Tensor], Tensor]:
        """The model where it will compute: a network is copied, any other callable is taken as it is."""
        from torch import nn

        network, foreign = isinstance(model, nn.Module), isinstance(model, ForeignModel)
        if isinstance(model, ForeignModel) and model.computed_by != self.name:
            raise ClassifierError(f"expected the backend {model.computed_by} for {name}, got {self.name}")
        if not (self.serves(device.type) and (self.plain_callables or network or foreign)):
            wanted = "a callable" if self.plain_callables else "a model" if foreign else "an nn.Module"
            where = f" on the {any_of(place.upper() for place in self.devices)}" if self.devices else ""
            raise ClassifierError(f"expected {wanted}{where} for {self.title}, got {name} on {device}")
        if not (self.plain_callables or is_compilable(model)):
            raise ClassifierError(
                f"expected a network that can be compiled for {self.title}, got {name}, which branches on what it is "
                "shown: take the backend torch"
            )
        if precision not in self.precisions:
            raise ClassifierError(f"expected precision {any_of(self.precisions)} with {self.title}, got {precision!r}")
        placed: Callable[[Tensor], Tensor] = self._file.place(model, size, device, precision) if network else model
        return placed

    @property
    def arranged(self) -> Callable[[Tensor, str], Tensor]:
        """What images of a precision go through before the model takes them."""
        function: Callable[[Tensor, str], Tensor] = self._file.arranged
        return function

    @property
    def _file(self) -> Any:
        return import_module(f"certmask.backends.{self.name}")


BACKENDS = (
    Backend("onnxruntime", "ONNX Runtime", "onnxruntime", ("fp32",), ("cpu",), remark="for ONNX files"),
    Backend("torch", "torch", "torch", plain_callables=True),
    Backend("openvino", "OpenVINO", "openvino", ("fp32", "bf16"), ("cpu",), remark="faster on CPUs"),
)
"""``auto`` takes the last one that is installed and serves the device; a ``ForeignModel`` has but one."""


def is_compilable(model: object) -> bool:
    """Whether a network may be compiled at all: one with ``compilable = False`` branches on what it is shown."""
    return getattr(model, "compilable", True) is not False


def backends_help() -> str:
    """All backends in one line."""
    return ", ".join(f"{b.name} ({b.remark})" if b.remark else b.name for b in BACKENDS) + ", or auto."


def backend_named(name: str) -> Backend:
    """The row of the table with this name; an error if there is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise ClassifierError(f"expected backend to be {any_of(b.name for b in BACKENDS)}, got {name!r}")


def default_backend(device: str) -> str:
    """What ``auto`` takes on a device."""
    return next(b.name for b in reversed(BACKENDS) if b.serves(device) and find_spec(b.package))
