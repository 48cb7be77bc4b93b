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

PARTING = 2
"""Seconds that open pages have at the end."""


class Server(uvicorn.Server):
    """Calls ``ready`` as soon as it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def run(
    app: FastAPI,
    found: socket.socket,
    limits: Limits,
    ready: Callable[[], None] = lambda: None,
    *,
    open_end: bool = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C; then take nothing new, answer what is there, and end with exit code 0.

    ``open_end`` is for pages that listen as long as they are open: their answers have no end, and nobody waits for it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=connection_within(limits, open_end),
        ws="none",
        h11_max_incomplete_event_size=HEADERS,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=PARTING if open_end else round(limits.seconds + SPARE),
    )
    Server(config, ready).run(sockets=[found])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
