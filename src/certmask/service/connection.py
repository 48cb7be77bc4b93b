"""What a client may do before the service knows what it wants: connect, and say so soon and in few bytes."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from certmask.service.limits import Limits

HEADERS = 32 * 2**10
"""Most bytes of a request before its body."""
PATIENCE = 10.0
"""Seconds from a connection, or from the last answer on it, to the end of the next request's headers, at most."""
SPARE = 10.0
"""Seconds beyond the limit on time before a request is given up whose answer nobody takes."""
DAY = 24 * 3600.0
BACKLOG = 128


class Connection(H11Protocol):
    """One of not too many connections; each is closed that does not ask in time, or does not take its answer."""

    most: int
    patience: float
    longest: float
    _cycle: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503, f"expected at most {self.most} connections at once, got more")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused as everything else is."""
        self._refuse(400, f"expected an HTTP request with at most {HEADERS:,} bytes of headers, got something else")

    def _watch(self) -> None:
        """A time for each request until it has come, and one until it is answered; more bytes make neither longer."""
        cycle = None if self.cycle is None or self.cycle.response_complete else self.cycle
        if self._timer is not None and cycle is self._cycle:
            return
        self._stop()
        if not self.transport.is_closing():
            self._cycle = cycle
            self._timer = self.loop.call_later(self.longest if cycle else self.patience, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self._cycle is None:
            self._refuse(408, f"expected a request within {self.patience:g} s, got a part of it")
        else:
            self.transport.abort()

    def _refuse(self, status: int, reason: str) -> None:
        """Say why, where no answer was begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": reason}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            start = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connection_within(limits: Limits, open_end: bool = False) -> type[Connection]:
    """Connections of a service with these limits, and with no more of them than half of the files it may open.

    With ``open_end`` an answer may go on for a day.
    """

    class Limited(Connection):
        most = min(limits.connections, _files() // 2)
        patience, longest = min(PATIENCE, limits.seconds), DAY if open_end else limits.seconds + SPARE

    return Limited


def _files() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ImportError:
        return 1024
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else 2**20
