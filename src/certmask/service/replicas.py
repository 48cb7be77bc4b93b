"""The same app as a Ray Serve deployment: replicas that each hold the defence once, behind one address."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from math import floor
from socket import socket
from threading import Event
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve

from certmask.errors import UsageError
from certmask.service.address import reached
from certmask.service.limits import Limits, Replicas

NAME = "certmask"
SPARE = 10.0
"""Seconds beyond the limit on time before Ray gives up on a request itself."""
ROUNDING = 1e-9


def deployment(build: Callable[[], FastAPI], replicas: Replicas, limits: Limits) -> Any:
    """What ``serve.run`` takes; ``build`` is called in every replica, and limits are each replica's own."""

    def app() -> FastAPI:
        return build()

    options: dict[str, Any] = {
        "name": NAME,
        "num_replicas": replicas.count,
        "ray_actor_options": {"num_cpus": replicas.cpus, "num_gpus": replicas.gpus},
        "max_ongoing_requests": 2 * limits.queue,
        "max_queued_requests": replicas.count * limits.queue,
        "graceful_shutdown_timeout_s": limits.seconds + SPARE,
    }
    return serve.deployment(serve.ingress(app)(), **options).bind()


def started(build: Callable[[], FastAPI], limits: Limits, free: socket, replicas: Replicas, address: str | None) -> str:
    """Start the replicas and wait until they answer; where they are reached.

    They listen where ``free`` is bound. Without the ``address`` of a cluster, Ray is started on this machine and ends
    with this process.
    """
    with free:
        where, (host, port) = reached(free), free.getsockname()[:2]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray.init(address or "local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    _check_room(replicas)
    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": host, "port": port, "request_timeout_s": limits.seconds + SPARE},
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
    serve.run(deployment(build, replicas, limits), name=NAME)
    return where


def _check_room(replicas: Replicas) -> None:
    """An error where a cluster has too little for the replicas, which Ray would wait for without end."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind, each in (("CPU", replicas.cpus), ("GPU", replicas.gpus)):
        there = [node.get(kind, 0.0) for node in nodes]
        if replicas.count * each > sum(there) + ROUNDING:
            ray.shutdown()
            raise UsageError(
                f"expected at most {sum(there):g} {kind}s for all replicas, got {replicas.count} of {each:g}"
            )
        if each and sum(floor(own / each + ROUNDING) for own in there) < replicas.count:
            ray.shutdown()
            raise UsageError(
                f"expected room for {replicas.count} replicas of {each:g} {kind}s, got nodes of "
                f"{', '.join(f'{own:g}' for own in sorted(there))}"
            )


def until_told() -> None:
    """Serve until SIGTERM or Ctrl-C; then let replicas answer what they have taken on, and end them."""
    over = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    while not over.wait(1.0):
        pass
    serve.delete(NAME)
    ray.shutdown()
