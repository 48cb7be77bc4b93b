"""Certification on many machines, with the rows of one: workers on Ray hold the defence once each.

Ray itself is imported when a run begins; nothing of it is needed on one machine. Names are imported when first used, so
that processes of Ray's which only count need not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certmask.scale.driver import certify_on_ray as certify_on_ray
    from certmask.scale.pool import Pool as Pool
    from certmask.scale.setting import Setting as Setting

_FILE_OF = {"Pool": "pool", "Setting": "setting", "certify_on_ray": "driver"}
__all__ = sorted(_FILE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'certmask.scale' has no attribute {name!r}")
    return getattr(import_module(f"certmask.scale.{_FILE_OF[name]}"), name)
