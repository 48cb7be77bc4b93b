"""The service under uvicorn: one process, one machine."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from certmask.service.connection import BACKLOG, HEADERS, SPARE, connection_within
from certmask.service.limits import Limits


class Server(uvicorn.Server):
    """Calls ``ready`` as soon as it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def run(app: FastAPI, found: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or Ctrl-C; then take nothing new, answer what is there, and end with exit code 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    limits: Limits = app.state.reception.limits
    config = uvicorn.Config(
        app,
        http=connection_within(limits),
        ws="none",
        h11_max_incomplete_event_size=HEADERS,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(limits.seconds + SPARE),
    )
    Server(config, ready).run(sockets=[found])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
