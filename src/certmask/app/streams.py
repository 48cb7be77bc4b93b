"""The streams on which browsers get their answers, ended so that none is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

END = b'data: {"msg":"close_stream"'
"""How Gradio ends a stream."""
PATIENCE = 5.0
"""Seconds that a browser has to hang up after that."""


class Streams:
    """Tells browsers that a stream has ended, and of no new question that is taken before they know.

    Gradio ends a visitor's stream when nothing more is to be answered. A browser that asks again before it has read of
    that end waits for the answer on the stream that has ended. It hangs up as soon as it has read it: so what it asks
    is confirmed after that, and it opens a new stream.
    """

    def __init__(self) -> None:
        self._ending: dict[str, asyncio.Event] = {}

    async def run(self, app: ASGIApp, visitor: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A stream, up to the time when its end is known."""
        ended, last = asyncio.Event(), []

        async def told(message: Message) -> None:
            if message.get("body", b"").startswith(END):
                self._ending[visitor] = ended
            if ended is self._ending.get(visitor) and not message.get("more_body", False):
                last.append(message)
            else:
                await send(message)

        try:
            await app(scope, receive, told)
            if last:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_hung_up(receive), PATIENCE)
        finally:
            ended.set()
            if self._ending.get(visitor) is ended:
                del self._ending[visitor]
        for message in last:
            await send(message)

    def confirming(self, visitor: str, send: Send) -> Send:
        """How a visitor is told that a question is taken: not while a stream of theirs ends."""

        async def told(message: Message) -> None:
            if visitor in self._ending:
                await self._ending[visitor].wait()
            await send(message)

        return told


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
