"""Where photos that people bring are decoded: in processes of their own, which can be killed and have little memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from PIL import Image
from torch import Tensor

from certmask.app.examples import Photo
from certmask.data import Framing
from certmask.errors import UsageError
from certmask.service.darkroom import Darkroom
from certmask.service.decoders import Decoder, too_slow
from certmask.service.limits import Limits
from certmask.threat import Size

KEPT = 4
"""Processes that wait for the next photo; each makes pictures of one size."""
SHIPPED = 2**18
"""Bytes and pixels that a photo which comes with certmask may have."""


class Lab:
    """Develops photos as ``certmask serve`` does, one at a time; to be used by any thread until it is closed."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._decoders: OrderedDict[Darkroom, Decoder] = OrderedDict()
        self._alone, self._closed = Lock(), False

    def developed(self, photo: Photo, framing: Framing, size: Size) -> Image.Image:
        """What a model with inputs of this size is shown; refused where it is no photo, too large or too slow."""
        limits = self._limits_of(photo)
        limits.check_upload(len(photo.content))
        with self._alone:
            decoder = self._decoder(Darkroom(framing, size, limits))
            try:
                return as_picture(decoder.developed(photo.content, limits.decoding))
            except TimeoutError:
                raise too_slow(limits) from None

    def close(self) -> None:
        """End all processes, whatever they do; nothing is developed any more."""
        self._closed = True
        for decoder in list(self._decoders.values()):
            decoder.kill()
        with self._alone:
            while self._decoders:
                self._decoders.popitem()[1].end()

    def _limits_of(self, photo: Photo) -> Limits:
        """Those on what visitors bring or, for a photo that comes with certmask, some that let it in."""
        if not photo.shipped:
            return self.limits
        upload, pixels = max(self.limits.upload, SHIPPED), max(self.limits.pixels, SHIPPED)
        return replace(self.limits, upload=upload, pixels=pixels)

    def _decoder(self, darkroom: Darkroom) -> Decoder:
        """The process for such pictures; the one that was idle longest makes room for a new one."""
        if self._closed:
            raise UsageError("expected an open page, got one that ends")
        if darkroom not in self._decoders:
            while len(self._decoders) >= KEPT:
                self._decoders.popitem(last=False)[1].end()
            self._decoders[darkroom] = Decoder(darkroom)
        self._decoders.move_to_end(darkroom)
        return self._decoders[darkroom]


def as_picture(image: Tensor) -> Image.Image:
    """A model input ``[3, height, width]`` in [0, 1] as people see it."""
    return Image.fromarray((image.cpu() * 255).round().byte().permute(1, 2, 0).numpy())
