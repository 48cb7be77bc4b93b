"""Where uploads are decoded, as ``certmask predict`` does it: in processes that know neither torch nor the model."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from struct import Struct
from typing import BinaryIO

from certmask.data.framing import Framing
from certmask.data.photo import decoded, opened
from certmask.errors import DataError, first_line
from certmask.service.limits import MIB, Limits, RefusedError
from certmask.threat import Size

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded; Pillow knows more, some of which start other programs."""

UPLOAD = "the upload"
ORDER = Struct("!Qd")
"""What comes before a photo: its bytes, and the seconds that it may take."""
ANSWER = Struct("!HQ")
"""What comes before an answer: the status, and the bytes of the pixels or of the reason."""


@dataclass(frozen=True)
class Darkroom:
    """Develops uploads: what the model is shown of each photo, within the limits."""

    framing: Framing
    size: Size
    limits: Limits

    @property
    def memory(self) -> int:
        """Bytes that a process may take: a quarter more than photos of the most pixels need, whatever their colours."""
        return 512 * MIB + 4 * self.limits.upload + 40 * self.limits.pixels + 4096 * self.size[0] * self.size[1]

    def developed(self, photo: bytes) -> bytes:
        """The model input, 8 bits for each colour of each pixel; refused by its header if it has too many pixels."""
        try:
            with opened(BytesIO(photo), UPLOAD, FORMATS) as file:
                self.limits.check_pixels(*file.size)
                found = decoded(file)
            return self.framing(found, self.size, UPLOAD).tobytes()
        except RefusedError:
            raise
        except DataError as error:
            raise RefusedError(400, str(error)) from None
        except MemoryError:
            most = f"{self.memory // MIB:,} MiB"
            raise RefusedError(422, f"expected a photo that is decoded in {most} of memory, got another one") from None
        except Exception as error:  # whatever a decoder does with bytes that were made to break it
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise RefusedError(400, f"expected a readable image in {UPLOAD}, got {reason}") from None


def work() -> None:
    """What a process of its own does: develop photos from standard input until it ends; see ``Decoder``.

    Whoever ends the service ends this with it, but not before: signals to all processes of a group are not for this
    one. It says nothing, and should the service be killed, it soon ends by itself, whatever it is shown.
    """
    photos, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    darkroom: Darkroom = pickle.loads(_sent(photos)[0])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _limit_memory(darkroom.memory)
    _fall_silent()
    _answer(answers, 200, b"")
    while (sent := _sent(photos))[1]:
        _end_after(ceil(sent[1]) + 1)
        try:
            _answer(answers, 200, darkroom.developed(sent[0]))
        except RefusedError as refusal:
            _answer(answers, refusal.status, refusal.reason.encode(errors="replace"))
        _end_after(0)


def _sent(photos: BinaryIO) -> tuple[bytes, float]:
    """Some bytes and the seconds they are given; 0 at the end."""
    head = photos.read(ORDER.size)
    if len(head) < ORDER.size:
        return b"", 0.0
    size, seconds = ORDER.unpack(head)
    return photos.read(size), seconds


def _answer(answers: BinaryIO, status: int, content: bytes) -> None:
    answers.write(ANSWER.pack(status, len(content)) + content)
    answers.flush()


def _limit_memory(most: int) -> None:
    """Where the platform knows such a limit."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _fall_silent() -> None:
    """Neither Pillow nor the libraries below it write into the service's log."""
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _end_after(seconds: int) -> None:
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)
