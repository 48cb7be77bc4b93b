"""The service under uvicorn: one process, one machine."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from certmask.errors import UsageError, first_line


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to before the service is ready; an error if the address is not free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"expected a free address, got {host} port {port} ({first_line(error)})") from None
    return found


def reached(found: socket.socket) -> str:
    """Where a socket is reached."""
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Calls ``ready`` as soon as it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def run(app: FastAPI, found: socket.socket, seconds: float, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then take nothing new, answer what is there, and end with exit code 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(seconds) + 10,
    )
    Server(config, ready).run(sockets=[found])


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
