"""The service under uvicorn: one process, one machine."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI


class Server(uvicorn.Server):
    """Calls ``ready`` as soon as it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def run(app: FastAPI, found: socket.socket, grace: float, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then take nothing new, answer what is there, and end with exit code 0.

    ``grace`` are the seconds that answers may take then.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(grace),
    )
    Server(config, ready).run(sockets=[found])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
