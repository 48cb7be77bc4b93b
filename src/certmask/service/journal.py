"""What surrounds every request: it is counted and logged in the service's own words, and refused politely."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from certmask.service.metrics import Metrics

LOG = logging.getLogger("certmask.service")
DRAINED, PATIENCE = 64 * 2**20, 5.0
"""Bytes and seconds for which a body is still taken in, and forgotten, after its request was refused."""


class Journal:
    """One line in the log for each request: method, route, status and time; no path, file name or content.

    A client that is refused while it still sends would lose the reason with the connection, so it may end first; not
    one that took too long.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, body, status = monotonic(), _Body(scope, receive), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and status != 408:
                    await body.drain()
            await send(message)

        try:
            await self.app(scope, body.receive, sent)
        finally:
            seconds = monotonic() - begin
            route = getattr(scope.get("route"), "path", "elsewhere")
            self.metrics.request(route, status, seconds)
            LOG.info("%s %s %d, %.0f ms", scope["method"][:10], route, status, 1000 * seconds)


class _Body:
    """A request's body, and whether all of it has come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive, self._ended = receive, False
        self._asked = dict(scope["headers"]).get(b"expect", b"").lower() != b"100-continue"

    async def receive(self) -> Message:
        message = await self._receive()
        self._asked = True
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Let the client say all it has to say; not if it waits to be asked for it."""
        if not self._ended and self._asked:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._forget(), PATIENCE)

    async def _forget(self) -> None:
        taken = 0
        while not self._ended and taken < DRAINED:
            taken += len((await self.receive()).get("body", b""))
