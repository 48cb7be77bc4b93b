"""One forward pass over a full batch of masked images, from mask numbers to probabilities, on the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from certmask.classifier import Classifier, Colour, as_deployed, checked_images, compile_options, float32_mode
from certmask.covers import Cover
from certmask.engine.masking import MaskTable
from certmask.errors import ClassifierError, VoteError
from certmask.geometry import IntArray
from certmask.passes import NONE
from certmask.votes import head_of


class Forward:
    """Keeps the images in work on the device; only image slots and mask numbers travel per batch.

    Masking, normalization, model and softmax are one function; on a GPU it is compiled once for its fixed shape.
    """

    def __init__(self, classifier: Classifier, covers: Sequence[Cover], fill: Colour, together: int = 2) -> None:
        if len(fill) != 3 or not all(0 <= c <= 1 for c in fill):
            raise ClassifierError(f"expected a fill colour of three numbers in [0, 1], got {fill}")
        self.classifier = classifier
        self.masks = MaskTable(covers, classifier.size, classifier.device)
        self.slots, self.together = 2 * classifier.batch, together
        self._fill = torch.tensor(fill, device=classifier.device).view(1, 3, 1, 1)
        self._images = torch.zeros(self.slots, 3, *classifier.size, device=classifier.device)
        self._step = self._compiled() if classifier.compiled else self._plain_step
        self._staging: Tensor | None = None
        self._staged: torch.cuda.Event | None = None
        self._warm = False
        self.bytes_sent = 0

    def _compiled(self) -> Callable[..., tuple[Tensor, Tensor]]:
        return torch.compile(self._plain_step, dynamic=False, options=dict(compile_options()))

    def put(self, slots: IntArray, images: Sequence[Tensor]) -> None:
        """Send images to the device."""
        checked = [checked_images(image[None], self.classifier.size)[0] for image in images]
        self.bytes_sent += sum(image.nbytes for image in checked)
        if self.classifier.device.type != "cuda" or any(image.device.type != "cpu" for image in checked):
            for slot, image in zip(slots, checked, strict=True):
                self._images[int(slot)] = image
            return
        staging = self._staging_area(len(checked))
        for place, image in zip(staging.numpy(), checked, strict=True):
            place[:] = image.numpy()
        self._images[self._send(slots)] = staging.to(self.classifier.device, non_blocking=True)
        self._staged = torch.cuda.current_stream(self.classifier.device).record_event()

    def _staging_area(self, count: int) -> Tensor:
        """Memory from which a GPU fetches images by itself, once it has fetched the last ones."""
        if self._staged is not None:
            self._staged.synchronize()
        if self._staging is None or len(self._staging) < count:
            self._staging = torch.empty(count, 3, *self.classifier.size, pin_memory=True)
        return self._staging[:count]

    def warm_up(self) -> None:
        """Compile, if that is wanted; a model that cannot be compiled runs as it is, and is recorded so."""
        if self._warm:
            return
        try:
            self(np.zeros(1, dtype=np.int64), np.full((1, 1), NONE))
        except torch.OutOfMemoryError:
            self.classifier.halve()
            self.warm_up()
        except Exception as error:
            if not self.classifier.compiled:
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(f"{self.classifier.name} runs uncompiled: {reason}", stacklevel=2)
            self.classifier.compiled = False
            self._step = self._plain_step
        self._warm = True

    @torch.inference_mode()
    def __call__(self, slots: IntArray, sets: IntArray) -> tuple[Tensor, Tensor]:
        """Probabilities ``[batch, classes]`` and heads of the images in ``slots [n]`` under ``sets [n, masks]``.

        The heads are on the host, or on their way there until the device has done what it was given so far.
        """
        batch = self.classifier.batch
        outputs, heads = self.unpadded(_padded(slots, batch), _padded(sets, batch))
        return outputs, heads if heads.device.type == "cpu" else self._fetch(heads)

    @torch.inference_mode()
    def unpadded(self, slots: IntArray, sets: IntArray) -> tuple[Tensor, Tensor]:
        """The same for a batch of any size, on the device."""
        if sets.shape[1] > self.together:
            raise VoteError(f"expected at most {self.together} masks in a pass, got {sets.shape[1]}")
        width = self.together - sets.shape[1]
        where, which = self._send(slots), self._send(np.pad(sets, ((0, 0), (0, width)), constant_values=NONE))
        device = self.classifier.device
        with float32_mode(device, tf32=self.classifier.precision == "tf32"), as_deployed(device):
            return self._step(self._images, where, self.masks.rows[which], self.masks.columns[which])

    def _fetch(self, heads: Tensor) -> Tensor:
        """Start copying to the host."""
        return torch.empty(heads.shape, dtype=heads.dtype, pin_memory=True).copy_(heads, non_blocking=True)

    def _send(self, numbers: IntArray) -> Tensor:
        self.bytes_sent += numbers.nbytes
        return torch.from_numpy(numbers).to(self.classifier.device, non_blocking=True)

    def _plain_step(self, images: Tensor, slots: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Mask, classify, summarize; no shape here depends on how many masks there are, so one compilation does.

        Where the network gives no numbers (a patch may bring that about) no class gets a vote: all zeros.
        """
        outputs = self.classifier.probabilities(self._hide(images[slots], rows, columns))
        outputs = torch.where(outputs.isfinite().all(dim=1, keepdim=True), outputs, 0.0)
        return outputs, head_of(outputs)

    def shown(self, images: Tensor, sets: Tensor) -> Tensor:
        """What the network is shown of each image ``[n, 3, H, W]`` under its set of masks ``[n, masks]``."""
        return self._hide(images, self.masks.rows[sets], self.masks.columns[sets])

    def _hide(self, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Fill what any mask of a set covers: ``rows [n, masks, height]``, ``columns [n, masks, width]``."""
        hidden = (rows[:, :, :, None] & columns[:, :, None, :]).any(dim=1)
        return torch.where(hidden[:, None], self._fill, images)


def _padded(rows: IntArray, length: int) -> IntArray:
    """Repeat the last row until there are ``length`` rows."""
    return np.concatenate([rows, np.repeat(rows[-1:], length - len(rows), axis=0)])
