"""Processes that decode photos: whatever one is shown takes its own time and memory, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import Event, Timer
from time import monotonic

from PIL import Image
from torch import Tensor

from certmask.data import to_tensor
from certmask.errors import first_line
from certmask.service.darkroom import ANSWER, ORDER, Darkroom
from certmask.service.limits import Limits, RefusedError

LOG = logging.getLogger("certmask.service")
COUNT = 2
"""Photos that are decoded at once: each may have as many pixels as the limit says."""
START = 60.0
"""Seconds within which a process must be ready."""
SPARE = 1.0
"""Seconds that a process may take to end."""
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from certmask.service.darkroom import work; work()"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Decoder:
    """A process with a darkroom, for one thread at a time.

    It is killed where a photo takes longer than it may; then, and where it crashed, the next photo has a new one.
    """

    def __init__(self, darkroom: Darkroom) -> None:
        self._darkroom = darkroom
        self._process: Popen[bytes] | None = None

    def start(self) -> None:
        """Begin a process; an error if it is not ready in time."""
        self.end()
        command, environment = [sys.executable, "-c", PROGRAM, *sys.path], {**os.environ, **ONE_THREAD}
        try:
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, env=environment)
            self._asked(pickle.dumps(self._darkroom), START)
        except (OSError, TimeoutError, RefusedError) as error:
            LOG.error("a process that decodes photos does not start: %s", first_line(error))
            raise RefusedError(500, "expected a process that decodes photos, got one that does not start") from None

    def developed(self, photo: bytes | memoryview, seconds: float) -> Tensor:
        """The model input, ``[3, height, width]`` in [0, 1]; ``TimeoutError`` where it takes longer than it may."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        status, content = self._asked(photo, seconds)
        if status != 200:
            raise RefusedError(status, content.decode())
        height, width = self._darkroom.size
        return to_tensor(Image.frombytes("RGB", (width, height), content))

    def kill(self) -> None:
        """Whatever it does; any thread may call this."""
        if (process := self._process) is not None:
            process.kill()

    def end(self) -> None:
        """Kill the process and forget it."""
        self.kill()
        if self._process is not None:
            with suppress(OSError), self._process:
                pass
        self._process = None

    def _asked(self, content: bytes | memoryview, seconds: float) -> tuple[int, bytes]:
        assert self._process is not None
        with _killed_after(self._process, seconds) as killed:
            found = _exchanged(self._process, ORDER.pack(len(content), seconds), content)
        if killed.is_set() or found is None:
            self.end()
        if killed.is_set():
            raise TimeoutError(f"expected an answer within {seconds:.3g} s, got none")
        if found is None:
            raise RefusedError(400, "expected a readable image in the upload, got one that crashes the decoder")
        return found


@contextmanager
def _killed_after(process: Popen[bytes], seconds: float) -> Iterator[Event]:
    """Kill a process unless this ends before; says whether that was done."""
    killed = Event()

    def kill() -> None:
        killed.set()
        process.kill()

    timer = Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield killed
    finally:
        timer.cancel()
        timer.join()


def _exchanged(process: Popen[bytes], *sent: bytes | memoryview) -> tuple[int, bytes] | None:
    """Status and content of what a process answers; None if it ended before."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for part in sent:
            process.stdin.write(part)
        process.stdin.flush()
        status, size = ANSWER.unpack(process.stdout.read(ANSWER.size))
        content = process.stdout.read(size)
    except (OSError, struct.error):
        return None
    return (status, content) if len(content) == size else None


class Decoders:
    """A few decoders that share the photos as they come."""

    def __init__(self, darkroom: Darkroom, count: int = COUNT) -> None:
        self.limits = darkroom.limits
        self._all = [Decoder(darkroom) for _ in range(count)]
        self._free: SimpleQueue[Decoder] = SimpleQueue()
        for decoder in self._all:
            self._free.put(decoder)
        self._threads = ThreadPoolExecutor(count, "certmask-decoder")

    def start(self) -> None:
        """Begin all processes; an error if one is not ready in time."""
        list(self._threads.map(Decoder.start, self._all))

    def end(self) -> None:
        """Kill all processes; what they were shown is refused."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for decoder in self._all:
            decoder.kill()
        self._threads.shutdown()
        for decoder in self._all:
            decoder.end()

    async def developed(self, photo: bytes | memoryview, deadline: float) -> Tensor:
        """The model input; refused where there is none before the deadline, or where it takes too long to make."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._developed, photo, deadline)
        try:
            return await asyncio.wait_for(work, max(deadline - monotonic(), 0) + SPARE)
        except asyncio.TimeoutError:
            raise _no_turn() from None

    def _developed(self, photo: bytes | memoryview, deadline: float) -> Tensor:
        left, decoder = deadline - monotonic(), self._free.get()
        try:
            if left <= 0:
                raise _no_turn()
            return decoder.developed(photo, min(left, self.limits.decoding))
        except TimeoutError:
            raise self._too_long(left) from None
        finally:
            self._free.put(decoder)

    def _too_long(self, left: float) -> RefusedError:
        if left < self.limits.decoding:
            return RefusedError(504, f"expected an answer within {self.limits.seconds:g} s, got none in that time")
        return too_slow(self.limits)


def too_slow(limits: Limits) -> RefusedError:
    """What is said of a photo that takes longer to decode than it may."""
    return RefusedError(
        422, f"expected a photo that is decoded within {limits.decoding:g} s, got one that takes longer"
    )


def _no_turn() -> RefusedError:
    return RefusedError(503, "expected a turn in time, got a queue that is too long", 1)
