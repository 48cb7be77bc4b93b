"""What a request passes on its way to the model: token, size, room in the queue, decoding; and its way back."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect

from certmask.data import Framing
from certmask.deployed import Defence
from certmask.service.answers import PhotoAnswer
from certmask.service.darkroom import Darkroom
from certmask.service.decoders import Decoders
from certmask.service.examiner import Examiner, Job
from certmask.service.limits import Limits, Places, RefusedError
from certmask.service.metrics import Metrics
from certmask.service.photos import photos_in
from certmask.service.queue import PhotoQueue

GRACE = 5.0
"""Seconds that the model may take to end a batch whose time is up."""


class Reception:
    """A defence, its queue, and all that a request passes on its way there."""

    def __init__(self, shield: Defence, framing: Framing, limits: Limits, token: str | None) -> None:
        self.limits, self._token = limits, token
        self.places = Places(limits.queue)
        self.examiner = Examiner(shield, limits)
        self.metrics = Metrics(self.places, self.examiner.fingerprint, self.examiner.digest)
        self.queue = PhotoQueue(self.examiner, self._done)
        self.framing = framing
        self.decoders = Decoders(Darkroom(framing, shield.classifier.size, limits))

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """The queue works meanwhile; whatever is in it is answered before the end."""
        await asyncio.to_thread(self.decoders.start)
        self.queue.start()
        yield
        await asyncio.to_thread(self.decoders.end)
        await asyncio.to_thread(self.queue.finish)

    def _done(self, _: Job, found: PhotoAnswer | RefusedError, seconds: float) -> None:
        self.metrics.photo(found)
        if isinstance(found, PhotoAnswer):
            self.places.tell(seconds)

    def check_token(self, given: str) -> None:
        """Refuse who does not know the token, in a time that does not tell how much of it was right."""
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RefusedError(401, "expected the service's token as Authorization: Bearer, got another one or none")

    def check_health(self) -> None:
        """Refuse everything once the model was seen to have changed."""
        if self.queue.broken:
            raise RefusedError(503, self.queue.broken)

    async def predict(self, request: Request, prove: bool, most: int) -> list[PhotoAnswer | RefusedError]:
        """The answers about all photos of a request; each that has none has a refusal of its own."""
        deadline = monotonic() + self.limits.seconds
        self.check_health()
        self.places.take()
        taken = 1
        try:
            body = await self._body(request, deadline)
            photos = await asyncio.to_thread(photos_in, body, request.headers.get("content-type", ""), most)
            self._check_count(len(photos), most)
            self.places.take(len(photos) - 1)
            taken = len(photos)
            return list(await asyncio.gather(*(self._answer(photo, prove, deadline) for photo in photos)))
        finally:
            self.places.leave(taken)

    def _check_count(self, count: int, most: int) -> None:
        if most == 1 and count != 1:
            raise RefusedError(
                400, f"expected one photo, got {'several: POST /predict/batch takes them' if count else 'none'}"
            )
        self.limits.check_photos(count)

    async def _body(self, request: Request, deadline: float) -> bytearray:
        """The whole body; refused by what it says of its size, and as soon as it is larger than that."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RefusedError(415, "expected a body that is not compressed, got a content encoding")
        told = request.headers.get("content-length", "")
        self.limits.check_upload(int(told[:20]) if told.isdecimal() else 0)
        try:
            return await asyncio.wait_for(self._read(request), deadline - monotonic())
        except asyncio.TimeoutError:
            raise RefusedError(408, f"expected an upload within {self.limits.seconds:g} s, got a part of it") from None
        except ClientDisconnect:
            raise RefusedError(400, "expected the whole upload, got a part of it") from None

    async def _read(self, request: Request) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            self.limits.check_upload(len(body))
        return body

    async def _answer(self, photo: memoryview, prove: bool, deadline: float) -> PhotoAnswer | RefusedError:
        try:
            image = await self.decoders.developed(photo, deadline)
        except RefusedError as refusal:
            self.metrics.photo(refusal)
            return refusal
        job = Job(image, deadline, prove)
        self.queue.put(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.answer), deadline - monotonic() + GRACE)
        except RefusedError as refusal:
            return refusal
        except asyncio.TimeoutError:
            return RefusedError(504, f"expected an answer within {self.limits.seconds:g} s, got none in that time")
