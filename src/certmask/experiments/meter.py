"""Time and energy of a trial, written beside its results file; energy is read from an NVIDIA GPU's own counter."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from certmask.certification import Progress
from certmask.errors import ResultsError

EnergyCounter = Callable[[], "float | None"]
"""Joules since the driver was loaded, idle time included; None where the hardware does not say."""


@dataclass(frozen=True)
class Stretch:
    """An uninterrupted part of a trial, compiling left out."""

    passes: int
    seconds: float
    joules: float | None


class Meter:
    """Listens to a trial's progress; the clock starts with the first word, which comes after warming up."""

    def __init__(self, progress: Progress, energy: EnergyCounter) -> None:
        self._progress, self._energy = progress, energy
        self._passes, self._began = 0, 0.0
        self._joules: float | None = None

    def __call__(self, what: str, count: int) -> None:
        if not self._began:
            self._began, self._joules = time.perf_counter(), self._energy()
        if what == "passes":
            self._passes += count
        self._progress(what, count)

    def stretch(self) -> Stretch:
        seconds = time.perf_counter() - self._began if self._began else 0.0
        after = self._energy()
        joules = None if after is None or self._joules is None else after - self._joules
        return Stretch(self._passes, seconds, joules)


def meter_path(results: Path) -> Path:
    return results.with_suffix(".meter.json")


def add_stretch(results: Path, stretch: Stretch) -> None:
    """Note a stretch; one without a pass says nothing and is not noted."""
    if stretch.passes:
        stretches = [asdict(one) for one in (*read_stretches(results), stretch)]
        meter_path(results).write_text(json.dumps(stretches, indent=1) + "\n", encoding="utf-8")


def read_stretches(results: Path) -> list[Stretch]:
    """What was noted beside a results file; nothing if there is no such note."""
    path = meter_path(results)
    if not path.is_file():
        return []
    try:
        return [Stretch(**stretch) for stretch in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise ResultsError(f"expected passes, seconds and joules of every session in {path}, got {error}") from None


def milliseconds_per_pass(stretches: list[Stretch]) -> float | None:
    return _per_pass([(one.passes, 1000 * one.seconds) for one in stretches])


def joules_per_pass(stretches: list[Stretch]) -> float | None:
    """Over the stretches whose energy is known."""
    return _per_pass([(one.passes, one.joules) for one in stretches if one.joules is not None])


def _per_pass(known: list[tuple[int, float]]) -> float | None:
    passes = sum(count for count, _ in known)
    return sum(amount for _, amount in known) / passes if passes else None


def energy_counter(device: torch.device) -> EnergyCounter:
    """The counter of a device; one that always says None where there is none."""
    if device.type != "cuda":
        return lambda: None
    try:
        return _nvml_counter(str(torch.cuda.get_device_properties(device).uuid))
    except (OSError, AttributeError):
        return lambda: None


def _nvml_counter(uuid: str) -> EnergyCounter:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle = ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
        return lambda: None

    def joules() -> float | None:
        millijoules = ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1000

    return joules
