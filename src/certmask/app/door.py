"""The way in: what every request passes before it reaches the page, and what every answer tells the browser."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import parse_qs

from python_multipart.multipart import parse_options_header

from certmask.app.streams import Streams
from certmask.service.address import is_loopback
from certmask.service.journal import DRAINED, PATIENCE
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
UPLOAD = "/gradio_api/upload"
JOIN, STREAM = "/gradio_api/queue/join", "/gradio_api/queue/data"
POSTS = (UPLOAD, JOIN)
GETS = ("/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/gradio_api/info",
        "/gradio_api/app_id", "/gradio_api/startup-events", STREAM,
        "/gradio_api/upload_progress")  # fmt: skip
BELOW = ("/assets/", "/static/", "/gradio_api/heartbeat/")
"""All that the page asks for; Gradio has more doors, which give out files, fetch addresses or write some: shut. So is
the one that cancels a question: its place would be free while it is still computed."""
CROSS = (b"cross-site", b"same-site")
"""What a browser says of a request that a page of somebody else's makes."""
KEPT = 8
"""Uploads of the largest size that may lie on disk together before the next is refused."""
CACHE = (600, 1800)
"""How often old uploads are deleted, and how old they are then, in seconds."""
BLOCK = 4096
"""Bytes that a file takes on disk, however small it is."""
FORM, WORDS = 2**16, 2**20
"""Bytes of an upload beside the file, and of any other request."""


class Door:
    """Lets nobody name a file but one that was uploaded, keeps uploads within bounds, and sends every answer a policy.

    Gradio reads the files and fetches the addresses that a request names: where the page is part of another app, it
    does not look whether they were uploaded. With ``alone``, the page is for this machine, and is asked for by its
    address or as localhost: a name that leads here is how pages of other people would reach it.
    """

    def __init__(self, app: App, limits: Limits, uploads: Path, alone: bool) -> None:
        self._app, self._limits, self._uploads, self._alone = app, limits, uploads.resolve(), alone
        self._coming, self._streams = 0, Streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path, send = str(scope.get("path", "")), _with_headers(send)
        try:
            self._check_request(scope, path)
            if path == UPLOAD:
                await self._upload(scope, receive, send)
                return
            if scope["method"] == "POST":
                body = self._checked(await self._body(receive, WORDS))
                receive, send = _again(body, receive), self._streams.confirming(_visitor(_parsed(body)), send)
        except RefusedError as refusal:
            if path == UPLOAD:
                await _drain(receive)
            await _refused(send, refusal)
            return
        with suppress(asyncio.CancelledError):  # a page that is open at the end, whose answers have none
            if path == STREAM:
                await self._streams.run(self._app, _listener(scope), scope, receive, send)
            else:
                await self._app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a file in whole, while there is room for it."""
        size = self._room(scope)
        self._coming += size
        try:
            body = await self._body(receive, size)
            _check_one_file(scope, body)
            await self._app(scope, _again(body, receive), send)
        finally:
            self._coming -= size

    def _check_request(self, scope: Scope, path: str) -> None:
        """Refuse what is not for this page, or does not come from it."""
        told = dict(scope.get("headers", ()))
        if self._alone and not is_loopback(_host(told.get(b"host", b""))):
            raise RefusedError(403, "expected a page of this machine, asked for as localhost, got another name for it")
        origin = told.get(b"origin")
        if origin is not None and _site(origin) != told.get(b"host", b"").lower():
            raise RefusedError(403, "expected a request of this page, got one of another page")
        if scope["type"] != "http" or not _is_known(scope["method"], path):
            raise RefusedError(404, "expected an address of this page, got another one")
        if scope["method"] == "POST" and told.get(b"sec-fetch-site", b"") in CROSS:
            raise RefusedError(403, "expected a request of this page, got one of another page")

    def _room(self, scope: Scope) -> int:
        """Bytes that an upload says it has; refused where it has too many, or there are too many others."""
        told = dict(scope["headers"]).get(b"content-length", b"")
        if not told.isdigit():
            raise RefusedError(411, "expected an upload that says its size, got another one")
        size = int(told[:20])
        self._limits.check_upload(max(size - FORM, 0))
        if _size_of(self._uploads) + self._coming + size > KEPT * self._limits.upload:
            raise RefusedError(503, "expected room for an upload, got too many at once: try again in some minutes")
        return size

    async def _body(self, receive: Receive, most: int) -> bytes:
        """All of a request's body, which must not have more bytes than this, and come in time."""
        try:
            return await asyncio.wait_for(_read(receive, most), self._limits.seconds)
        except asyncio.TimeoutError:
            raise RefusedError(408, "expected the whole request in time, got a part of it") from None

    def _checked(self, body: bytes) -> bytes:
        """The same body, once it is known to name no file of this machine and no other address."""
        for named in _paths(_parsed(body)):
            if not _is_inside(named, self._uploads):
                raise RefusedError(403, "expected a file that was uploaded, got another one")
        return body


def _visitor(told: Any) -> str:
    """Whose request this is; nobody's where it does not say."""
    return str(told.get("session_hash", "")) if isinstance(told, dict) else ""


def _listener(scope: Scope) -> str:
    """Whose stream this is."""
    asked = parse_qs(str(scope.get("query_string", b""), "latin-1"))
    return asked.get("session_hash", [""])[0]


def _site(origin: bytes) -> bytes:
    """The name and port of the page that makes a request; nothing where the browser keeps that to itself."""
    return origin.lower().partition(b"://")[2]


def _is_inside(named: str, folder: Path) -> bool:
    try:
        return Path(named).resolve().is_relative_to(folder)
    except (ValueError, OSError):  # a name that no file can have
        return False


def _is_known(method: str, path: str) -> bool:
    """Whether the page asks for such things."""
    if method == "POST":
        return path in POSTS
    return method in ("GET", "HEAD") and (path in GETS or path.startswith(BELOW))


def _check_one_file(scope: Scope, body: bytes) -> None:
    """Refuse a form of several parts: each would be a file in a folder of its own."""
    kinds = [value for key, value in scope["headers"] if key == b"content-type"]
    _, told = parse_options_header(kinds[0] if kinds else b"")  # the first, as Gradio reads it
    boundary = told.get(b"boundary", b"")
    if not boundary or body.count(b"--" + boundary) != 2:
        raise RefusedError(400, "expected one file in an upload, got another form")


def _size_of(folder: Path) -> int:
    """Bytes that the files below a folder take, some of which may be deleted meanwhile; folders left empty go."""
    found = 0
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            with suppress(OSError):
                found += max(os.path.getsize(os.path.join(place, name)), BLOCK)
        with suppress(OSError):
            if Path(place) != folder and time() - os.path.getmtime(place) > CACHE[1]:
                os.rmdir(place)
    return found


def _host(told: bytes) -> str:
    """The name in a request's Host, without the port."""
    name = told.decode("latin-1")
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]


async def _read(receive: Receive, most: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise RefusedError(413, f"expected a request of at most {most:,} bytes, got more")
    return bytes(body)


async def _drain(receive: Receive) -> None:
    """Let a browser send what is refused: it would lose the reason with the connection."""
    with suppress(asyncio.TimeoutError, RefusedError):
        await asyncio.wait_for(_forget(receive), PATIENCE)


async def _forget(receive: Receive) -> None:
    taken, more = 0, True
    while more and taken < DRAINED:
        message = await receive()
        taken += len(message.get("body", b""))
        more = message.get("more_body", False)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, for whoever reads it next."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


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
