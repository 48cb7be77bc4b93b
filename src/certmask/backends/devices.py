"""Devices: whether one is there, which precision it computes natively, what it is called."""

from __future__ import annotations

import os
import platform

import torch

from certmask.errors import ClassifierError, first_line

BATCH = {"cpu": 32, "cuda": 512}
AMPERE = (8, 0)
"""The first NVIDIA GPUs that compute bf16."""


def present_device(device: torch.device | str) -> torch.device:
    """A device that torch knows, that this machine has and that computes; ``auto`` takes the GPU where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.ones(1, device=device).item()  # "meta" makes tensors, but has no numbers in them
        return torch.device(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = first_line(error)
        raise ClassifierError(f"expected a device that is there, got {str(device)!r} ({reason})") from None


def best_precision(device: torch.device | str) -> str:
    """bf16 where the hardware computes it natively, else fp32: what only emulates it takes three times as long."""
    device = torch.device(device)
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= AMPERE else "fp32"
    return "bf16" if device.type == "cpu" and _cpu_computes_bf16() else "fp32"


def _cpu_computes_bf16() -> bool:
    """torch's own test, without which it may be built, is content with AVX-512 on x86, where it emulates bf16."""
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    if is_supported is None or not is_supported():
        return False
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not on_x86 or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def best_batch(device: torch.device) -> int:
    """Images per forward pass that keep a device busy without filling its memory."""
    return BATCH.get(device.type, 32)


def device_name(device: torch.device) -> str:
    """The GPU's own name; of a CPU its kind, its vector instructions and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    kind = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return f"{device.type} {kind}, {torch.get_num_threads()} threads"


def settings() -> dict[str, str]:
    """Switches of libraries that change what a network computes, recorded to explain a change if one is seen."""
    backends = torch.backends
    return {
        "mkldnn": str(backends.mkldnn.enabled),
        "cudnn": str(backends.cudnn.enabled),
        "bf16 reduction": str(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "TIMM_FUSED_ATTN": os.environ.get("TIMM_FUSED_ATTN", "unset"),
    }
