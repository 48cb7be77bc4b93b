"""Who crashed a worker: what is begun and not ended is on record with a process that outlives the workers."""

from __future__ import annotations

from collections import Counter
from typing import Any

RETRIES = 2
"""Workers that one photo may take down by itself before it is set aside."""


class Attempts:
    """Counts, by name, the attempts that were begun and never ended: each of these took its process down with it."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        """Begin an attempt; returns how many before it never ended."""
        self._open[name] += 1
        return self._open[name] - 1

    def end(self, name: str) -> None:
        """An attempt came to its end, whatever it found."""
        del self._open[name]


class Record:
    """The attempts as a worker asks for them: a handle to the one process that has them."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def begin(self, name: str) -> int:
        import ray

        return int(ray.get(self._handle.begin.remote(name)))

    def end(self, name: str) -> None:
        import ray

        ray.get(self._handle.end.remote(name))

    def close(self) -> None:
        """End the process that has them."""
        import ray

        ray.kill(self._handle)


def started_record(ray: Any) -> Record:
    """A record beside the driver, so that no other node takes it down."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    return Record(ray.remote(Attempts).options(num_cpus=0, scheduling_strategy=here).remote())
