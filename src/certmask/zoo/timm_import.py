"""The one place where timm is imported.

timm imports torchvision. The torchvision wheel of the public index is built for CUDA; beside a CPU build of torch its
import fails because its compiled operators are missing. certmask uses none of them, so when exactly that error comes,
the two operators are declared (not implemented) and the import is tried again.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

from certmask.zoo.register import register

_MISSING = "operator torchvision::nms does not exist"
_declared: list[Any] = []


def import_timm() -> ModuleType:
    """Return the timm module, with certmask's own architectures registered."""
    timm = _import_timm()
    register()
    return timm


def _import_timm() -> ModuleType:
    """Import timm, declaring torchvision's missing operators if that is what stands in the way."""
    try:
        import timm
    except RuntimeError as error:
        if _MISSING not in str(error):
            raise
        for name in [m for m in sys.modules if m.split(".")[0] in ("torchvision", "timm")]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import timm
    return timm
