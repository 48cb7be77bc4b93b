"""The workers that are asked for, and the connection to Ray."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from certmask.errors import CertmaskError, UsageError, first_line

LOCAL = "local"
"""The address of a Ray that is started for this run alone, and stopped after it."""

ALONE = {"RAY_worker_niceness": "0"}
"""Of such a Ray: workers have the priority of the command, as the plain engine has it; a cluster's have a lower one."""


@dataclass(frozen=True)
class Pool:
    """How many workers, and what each reserves; fractions of a GPU, or of a CPU, let several share one.

    None: as many workers as the cluster has room for, and a GPU for each where there are some.
    """

    workers: int | None = None
    cpus: float = 1.0
    gpus: float | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"expected at least 1 worker, got {self.workers}")
        if not (0 < self.cpus < math.inf):
            raise UsageError(f"expected more than 0 CPUs for a worker, got {self.cpus:g}")
        if self.gpus is not None and not (0 <= self.gpus <= 1 or (self.gpus > 1 and float(self.gpus).is_integer())):
            raise UsageError(f"expected a share of one GPU or whole ones for a worker, got {self.gpus:g}")

    @property
    def threads(self) -> int:
        """Threads that a worker computes with: the CPUs that it reserves, and one at least."""
        return max(int(self.cpus), 1)

    def fitted(self, nodes: Sequence[dict[str, float]]) -> Pool:
        """The same with every number settled; an error where no node of the cluster has room for a single worker.

        A worker has all that it reserves on one node: what is left over on several is no room.
        """
        most = {kind: max((node.get(kind, 0.0) for node in nodes), default=0.0) for kind in ("CPU", "GPU")}
        gpus = (1.0 if most["GPU"] else 0.0) if self.gpus is None else self.gpus
        room = sum(_room(node.get("CPU", 0.0), self.cpus, node.get("GPU", 0.0), gpus) for node in nodes)
        if not room:
            got = f"{most['CPU']:g} CPUs and {most['GPU']:g} GPUs on a node at most"
            raise UsageError(f"expected room for a worker of {self.cpus:g} CPUs and {gpus:g} GPUs, got {got}")
        return replace(self, workers=min(self.workers or room, room), gpus=gpus)


def _room(cpus: float, each: float, gpus: float, each_gpus: float) -> int:
    """Workers that a node takes."""
    most = math.floor(cpus / each + 1e-9)
    return min(most, math.floor(gpus / each_gpus + 1e-9)) if each_gpus else most


def import_ray() -> Any:
    """Ray; an error that names the extra where it is not installed."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise CertmaskError(
            f"expected the package ray for --engine ray, got {first_line(error)}: pip install 'certmask[ray]'"
        ) from None


@contextmanager
def connected(pool: Pool) -> Iterator[Pool]:
    """Ray for as long as a run takes: that of an address, or one on this machine that ends with the run.

    Yields the pool as it fits there. A Ray that this process is connected to already is used, and left as it is.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray = import_ray()
    own = not ray.is_initialized()
    if own:
        with _silent():
            _connect(ray, pool)
    try:
        yield pool.fitted([node["Resources"] for node in ray.nodes() if node["Alive"]])
    finally:
        if own:
            ray.shutdown()


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on stderr, not even from Ray's own program; what goes wrong is an error."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_address(address: str) -> None:
    """An error for what is no address, and where nobody answers: Ray itself would wait for minutes."""
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise UsageError(f"expected the address of a Ray cluster as auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise CertmaskError(f"expected a Ray cluster at {address}, got {first_line(error)}") from None


def _connect(ray: Any, pool: Pool) -> None:
    address = pool.address or os.environ.get("RAY_ADDRESS") or LOCAL
    _check_address(address)
    here: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address == LOCAL else {}
    try:
        with _inherited(ALONE if address == LOCAL else {}):
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise CertmaskError(f"expected a Ray cluster at {address}, got {first_line(error)}") from None


@contextmanager
def _inherited(more: dict[str, str]) -> Iterator[None]:
    """An environment for the processes that are started meanwhile; what is set already stays."""
    added = {name: value for name, value in more.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
