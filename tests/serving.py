"""A service in a process of its own, and clients that ask it: well, badly, slowly, all at once."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from io import BytesIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from processes import started

from certmask.cli import main

BOUNDARY = "a-boundary"


def serve(arguments: Sequence[str], said: Path, environment: Mapping[str, str]) -> None:
    """``certmask serve`` with the torch backend, for ``started``; what it prints goes to a file."""
    torch.set_num_threads(1)
    os.environ.update(environment)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["certmask", "serve", "--backend", "torch", *arguments]
    main()


@dataclass(frozen=True)
class Reply:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.content["error"])


@dataclass
class Server:
    """A running service."""

    process: BaseProcess
    port: int
    said: Path
    token: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, seconds: float = 60
    ) -> Reply:
        """One request on a connection of its own."""
        own = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with _connected(self.port, seconds) as connection:
            connection.connect()
            with suppress(ConnectionError):  # a server may refuse before it has read all
                connection.request(method, path, body, {**own, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())

    def post(self, photo: bytes, path: str = "/predict", kind: str = "application/octet-stream") -> Reply:
        return self.ask("POST", path, photo, {"Content-Type": kind})

    def batch(self, photos: Sequence[bytes], path: str = "/predict/batch") -> Reply:
        return self.post(form(photos), path, f"multipart/form-data; boundary={BOUNDARY}")

    def end(self, number: int = signal.SIGTERM) -> int | None:
        """Send a signal and wait for the end; the exit code."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)
        self.process.join(60)
        return self.process.exitcode


@contextmanager
def _connected(port: int, seconds: float) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        yield connection
    finally:
        connection.close()


def form(photos: Sequence[bytes], boundary: str = BOUNDARY) -> bytes:
    """A form with one part for each photo, as curl -F writes it."""
    head = 'Content-Disposition: form-data; name="photo"; filename="secret-holiday.png"\r\nContent-Type: image/png'
    parts = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + photo + b"\r\n" for photo in photos]
    return b"".join(parts) + f"--{boundary}--\r\n".encode()


def encoded(photo: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """A photo as the bytes of a file."""
    file = BytesIO()
    photo.save(file, kind, **options)
    return file.getvalue()


@contextmanager
def serving(folder: Path, *arguments: str | Path, token: str = "", port: int = 0) -> Iterator[Server]:
    """A service that answers, on a free port; it is killed at the end if it still runs."""
    said = folder / f"said-{time.monotonic_ns()}"
    environment = {"CERTMASK_TOKEN": token} if token else {}
    process = started(serve, [*map(str, arguments), "--port", str(port)], said, environment)
    try:
        yield Server(process, _port(process, said), said, token)
    finally:
        process.kill()
        process.join()


def _port(process: BaseProcess, said: Path) -> int:
    """Wait until the service says where it is."""
    while process.is_alive():
        found = re.search(r"^serving on http://127\.0\.0\.1:(\d+)$", _text(said), re.MULTILINE)
        if found:
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(f"expected a service that starts, got {_text(said)}")


def _text(said: Path) -> str:
    return said.read_text(encoding="utf-8") if said.exists() else ""


def raw(port: int, request: bytes, seconds: float = 30) -> bytes:
    """What a server says to bytes that need not be HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as line:
        line.sendall(request)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


__all__ = ["BOUNDARY", "HTTPException", "Reply", "Server", "encoded", "form", "raw", "serve", "serving"]
