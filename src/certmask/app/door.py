"""The way in: what every request passes before it reaches the page, and what every answer tells the browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from certmask.service.limits import Limits

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


class Door:
    """Refuses uploads once those that are kept fill their place, and sends the browser a policy with every answer."""

    def __init__(self, app: App, limits: Limits, uploads: Path) -> None:
        self._app, self._limits, self._uploads = app, limits, uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope.get("path", ""))
        if path.startswith(CLOSED):
            await _refused(send, 404, "expected an address of this page, got another one")
        elif path.startswith(UPLOAD) and self.kept > KEPT * self._limits.upload:
            await _refused(send, 503, "expected room for an upload, got too many at once: try again in some minutes")
        else:
            await self._app(scope, receive, _with_headers(send))

    @property
    def kept(self) -> int:
        """Bytes of all uploads that are on disk."""
        return sum(path.stat().st_size for path in self._uploads.rglob("*") if path.is_file())


def _with_headers(send: Send) -> Send:
    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return told


async def _refused(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reason.encode()})
