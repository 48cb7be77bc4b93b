"""The way in: what every request passes before it reaches the page, and what every answer tells the browser."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from certmask.service.limits import Limits, RefusedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; media-src 'self' blob: data:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
"""Whatever a script on the page might want: nothing is fetched from, or sent to, another address."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
UPLOAD, CLOSED = "/gradio_api/upload", ("/gradio_api/proxy", "/proxy=", "/monitoring", "/gradio_api/deep_link")
"""Where uploads go, and doors of Gradio's that nobody here needs."""
KEPT = 8
"""Uploads of the largest size that may lie on disk together before the next is refused."""
MOST_WORDS = 2**20
"""Bytes of a request that is no upload."""


class Door:
    """Lets nobody name a file but one that was uploaded, keeps uploads within bounds, and sends every answer a policy.

    Gradio reads the files and fetches the addresses that a request names: where the page is part of another app, it
    does not look whether they were uploaded.
    """

    def __init__(self, app: App, limits: Limits, uploads: Path) -> None:
        self._app, self._limits, self._uploads = app, limits, uploads.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope.get("path", ""))
        try:
            if path.startswith(CLOSED):
                raise RefusedError(404, "expected an address of this page, got another one")
            if path.startswith(UPLOAD):
                self._check_room()
            elif scope["method"] == "POST":
                receive = await self._checked(receive)
        except RefusedError as refusal:
            await _refused(send, refusal)
            return
        await self._app(scope, receive, _with_headers(send))

    def _check_room(self) -> None:
        kept = sum(path.stat().st_size for path in self._uploads.rglob("*") if path.is_file())
        if kept > KEPT * self._limits.upload:
            raise RefusedError(503, "expected room for an upload, got too many at once: try again in some minutes")

    async def _checked(self, receive: Receive) -> Receive:
        """The same request, once its body is known to name no file of this machine and no other address."""
        body = await _body(receive)
        for named in _paths(_parsed(body)):
            if not Path(named).resolve().is_relative_to(self._uploads):
                raise RefusedError(403, "expected a file that was uploaded, got another one")
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again


async def _body(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_WORDS:
            raise RefusedError(413, f"expected a request of at most {MOST_WORDS:,} bytes, got more")
    return bytes(body)


def _parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "expected a request in JSON, got something else") from None


def _paths(told: Any) -> Iterator[str]:
    """Everything that a request calls a path, however deep."""
    waiting = [told]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("path") is not None:
                yield str(one["path"])
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _with_headers(send: Send) -> Send:
    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return told


async def _refused(send: Send, refusal: RefusedError) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.reason.encode()})
