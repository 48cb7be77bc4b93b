"""How torch computes a network: in the float32 mode that was asked for, without timing kernels, outside autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_ONE_MODE = RLock()
"""torch has one float32 mode for all threads, so they take turns to start kernels in theirs."""


def compile_options() -> dict[str, bool]:
    """Options under which torch compiles a network without timing kernels; none where it cannot (before 2.10).

    By default it times several and takes the fastest, so that another process may sum in another order and be another
    function than the one that was certified.
    """
    from torch._inductor import config

    return {"deterministic": True} if hasattr(config, "deterministic") else {}


@contextmanager
def float32_mode(device: torch.device, tf32: bool) -> Iterator[None]:
    """fp32 means fp32: on a GPU, the reduced tf32 mode is used only where it was asked for, by whichever thread."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with _ONE_MODE:
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = tf32
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before


@contextmanager
def as_deployed(device: torch.device) -> Iterator[None]:
    """The certified precision holds inside a caller's ``torch.autocast``, too."""
    if torch.compiler.is_compiling() or not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, enabled=False):
        yield
