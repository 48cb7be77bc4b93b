"""Images × masks → votes."""

from certmask.engine.engine import Archive, Engine, Finding

__all__ = ["Archive", "Engine", "Finding"]
