"""Ray clusters of several nodes on this machine, and the processes that belong to one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from processes import certify

from certmask.data import CIFAR10

pytest.importorskip("onnxruntime")
graphs = pytest.importorskip("graphs")
MARK = "CERTMASK_TEST_MARK"
NODE = {"num_cpus": 1, "include_log_monitor": False}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""What keeps all nodes at 127.0.0.1, as Ray has it on other systems than Linux."""
CRASHING = b"CRASH the decoder"
"""A photo that begins so takes down whoever opens it, in processes that have ``crashing_decoder`` on their path."""
PLUGIN = f"""
import ctypes
from PIL import Image
Image.register_open("CRASH", None, lambda prefix: prefix.startswith({CRASHING[:5]!r}) and ctypes.string_at(0))
"""


def small_graph(folder: Path) -> Path:
    """A classifier of CIFAR-10's classes as an ONNX graph, loaded in half of the time that timm takes."""
    graph = graphs.model(images=("n", 3, 32, 32), logits=("n", len(CIFAR10)), classes=len(CIFAR10))
    return Path(graphs.written(folder, graph, {**graphs.CARD, "classes": list(CIFAR10)}))


def crashing_decoder(folder: Path) -> Path:
    """A folder for PYTHONPATH with a decoder of Pillow's that segfaults on photos that are made for it."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PLUGIN)
    return folder


@contextmanager
def marked(**more: str) -> Iterator[str]:
    """This process's environment with a mark that all processes inherit which are started meanwhile."""
    mark = uuid4().hex
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    with patch.dict(os.environ, {MARK: mark, **LOOPBACK, **quiet, **more}):
        yield mark


def driven(environment: dict[str, str], arguments: list[str], said: Path) -> None:
    """``certmask certify`` for ``started``, with this environment instead of that of an earlier day."""
    os.environ.update(environment)
    certify(arguments, said)


def processes_with(mark: str) -> list[str]:
    """The processes of a mark that still run, but for this one and those that multiprocessing keeps for it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            running = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
            own = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_text().replace("\0", " ")
            if own and running and int(folder.name) != os.getpid() and "multiprocessing" not in command:
                found.append(f"{folder.name} {command}")
        except OSError:
            continue
    return found


def all_gone(mark: str, seconds: float = 30) -> bool:
    """Whether all processes of a mark end, sooner or later."""
    until = time.monotonic() + seconds
    while processes_with(mark) and time.monotonic() < until:
        time.sleep(0.2)
    left = processes_with(mark)
    assert not left, left
    return True


@contextmanager
def cluster_of(nodes: int) -> Iterator[Any]:
    """A cluster of nodes with a processor each, for processes that are ``marked``."""
    from ray.cluster_utils import Cluster

    with patch("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False):
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "no_monitor": True})
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()
