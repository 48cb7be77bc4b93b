"""Images × masks → votes."""

from certmask.engine.engine import Engine, Finding

__all__ = ["Engine", "Finding"]
