"""The energy counter of an NVIDIA GPU, read through the driver's own library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

Counter = Callable[[], "float | None"]
"""Joules since the driver was loaded, idle time included; None where the hardware does not say."""


def energy_counter(device: torch.device) -> Counter:
    """The counter of a device; one that always says None where there is none."""
    if device.type != "cuda":
        return _silent
    try:
        return _nvml_counter(str(torch.cuda.get_device_properties(device).uuid))
    except (OSError, AttributeError):
        return _silent


def _silent() -> None:
    return None


def _nvml_counter(uuid: str) -> Counter:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle = ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
        return _silent

    def joules() -> float | None:
        millijoules = ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1000

    return joules
