"""What computes a network's logits, and where: one file and one row for each backend."""

from certmask.backends.backend import (
    BACKENDS,
    PRECISIONS,
    Backend,
    ForeignModel,
    backend_named,
    backends_help,
    default_backend,
    is_compilable,
)

__all__ = [
    "BACKENDS",
    "PRECISIONS",
    "Backend",
    "ForeignModel",
    "backend_named",
    "backends_help",
    "default_backend",
    "is_compilable",
]
