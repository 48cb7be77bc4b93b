"""One forward pass over a full batch of masked images, from mask numbers to probabilities, on the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from certmask.backends.arithmetic import as_deployed, compile_options, float32_mode
from certmask.certificate import NO_CLASS
from certmask.classifier import Classifier
from certmask.company import SAME, probes, rounding_of
from certmask.covers import Cover
from certmask.engine.fingerprint import Fingerprint, evidence_of
from certmask.engine.masking import MaskTable, hidden_by
from certmask.errors import ChangedModelError, ClassifierError, VoteError, first_line
from certmask.geometry import IntArray
from certmask.images import Colour, checked_images
from certmask.passes import NONE, widened
from certmask.votes import FloatArray, as_votes, head_of


class Forward:
    """Keeps the images in work on the device; only image slots and mask numbers travel per batch.

    Masking, normalization, model and softmax are one function; on a GPU it is compiled once for its fixed shape. The
    last place of every batch, and what is left of one, has a fixed picture, the canary: should the answer about it ever
    change, the model is no function of one picture, or another one than it was. ``batch`` is halved where memory runs
    out, for this forward pass alone.
    """

    def __init__(self, classifier: Classifier, covers: Sequence[Cover], fill: Colour, together: int = 2) -> None:
        if classifier.told and tuple(fill) != classifier.fill:
            raise ClassifierError(
                f"expected the fill {classifier.fill} for {classifier.name}, which is told what is hidden, got {fill}"
            )
        if not classifier.told and (len(fill) != 3 or not all(0 <= c <= 1 for c in fill)):
            raise ClassifierError(f"expected a fill colour of three numbers in [0, 1], got {fill}")
        self.classifier = classifier
        self.masks = MaskTable(covers, classifier.size, classifier.device)
        self.batch, self.slots, self.together = classifier.batch, 2 * classifier.batch, together
        self._fill = torch.tensor(fill, device=classifier.device).view(1, 3, 1, 1)
        self._images = torch.zeros(self.slots + 2, 3, *classifier.size, device=classifier.device)
        self._images[self.slots :] = probes(classifier.size)[:2].to(classifier.device)
        self._step = self._compiled() if classifier.compiled else self._plain_step
        self._staging: Tensor | None = None
        self._staged: torch.cuda.Event | None = None
        self._canary: dict[int, FloatArray] = {}
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

    @property
    def room(self) -> int:
        """Images that a batch takes beside the canary, for which a batch of one has no place."""
        return max(self.batch - 1, 1)

    def halve(self) -> None:
        """Go on with batches of half the size; an error if they hold one image already."""
        if self.batch == 1:
            raise self.classifier.no_memory() from None
        self.batch //= 2
        warnings.warn(f"too little memory: {self.classifier.name} goes on in batches of {self.batch}", stacklevel=2)
        if self.classifier.device.type == "cuda":
            torch.cuda.empty_cache()
        self.classifier.check_batch(self.batch)

    def warm_up(self) -> None:
        """Compile, if that is wanted; a model that cannot be compiled runs as it is, and is recorded so."""
        if self.batch in self._canary:
            return
        try:
            _, heads = self._filled(np.array([self.slots]), np.full((1, 1), NONE))
        except torch.OutOfMemoryError:
            self.halve()
            self.warm_up()
        except Exception as error:
            if not self.classifier.compiled:
                raise
            warnings.warn(f"{self.classifier.name} runs uncompiled: {first_line(error)}", stacklevel=2)
            self.classifier.compiled = False
            self._step = self._plain_step
            self.warm_up()
        else:
            head = heads[0].cpu().numpy()
            for before in self._canary.values():
                self._check_canary(head[None], before, rounding_of(self.classifier.precision))
            self._canary[self.batch] = head

    @property
    def tolerance(self) -> float:
        """By how much of itself a probability may change between two batches of one shape."""
        return rounding_of(self.classifier.precision) if self.classifier.company else SAME

    def ask_canary(self) -> None:
        """Ask about the canary alone, where batches of one have no place for it."""
        self.check_canary(self._filled(np.array([self.slots]), np.full((1, 1), NONE))[1].cpu().numpy())

    def check_canary(self, heads: FloatArray) -> None:
        """An error if the canary's heads ``[n, 3]``, from the end of a batch, are not what they were at first."""
        self._check_canary(heads, self._canary[self.batch], self.tolerance)

    def _check_canary(self, heads: FloatArray, own: FloatArray, tolerance: float) -> None:
        """Class, confidence and lead; where the class is another one, it must have been a tie."""
        apart = np.abs(heads - own)[:, 1:].max(axis=1, initial=0.0)
        change = np.where(heads[:, 0] == own[0], apart, np.maximum(apart, heads[:, 2] + own[2]))
        silent = (heads[:, 0] == NO_CLASS) != (own[0] == NO_CLASS)
        worst = np.where(silent, 1.0, change).max(initial=0.0)
        if not worst <= tolerance * own[1]:
            raise ChangedModelError(
                f"expected the same answer from {self.classifier.name} about a fixed picture in every batch, got a "
                f"probability that changed by {worst:.2g}: it keeps state, looks at other pictures, or was changed"
            )

    def fingerprint(self) -> Fingerprint:
        """What the function says about two fixed pictures, each bare and with its middle hidden."""
        self.warm_up()
        slots = self.slots + np.array([0, 0, 1, 1])
        sets = np.array([[NONE], [self.masks.probe], [NONE], [self.masks.probe]])
        parts = np.split(np.arange(len(slots)), range(self.room, len(slots), self.room))
        numbers = torch.cat([self._filled(slots[n], sets[n])[0][: len(n)] for n in parts])
        votes = self.classifier.summary(numbers).cpu()
        if not self.classifier.piecewise:
            return Fingerprint(votes)
        return Fingerprint(votes, evidence_of(numbers.cpu(), self.classifier.sums(numbers).cpu()))

    def strayed(self, images: Sequence[Tensor]) -> float:
        """The most by which sums of local evidence move that boxes in these images do not touch; 0 without any."""
        if not (self.classifier.piecewise and images):
            return 0.0
        return self.classifier.strayed(torch.stack([image.cpu() for image in images]), self.bare)

    def bare(self, images: Tensor) -> Tensor:
        """What passes give of images without masks, ``[n, width]``; they take the place of those in work."""
        told = []
        for part in torch.split(images, self.room):
            self.put(np.arange(len(part)), list(part))
            told.append(self(np.arange(len(part)), np.full((len(part), 1), NONE))[0][: len(part)])
        return torch.cat(told)

    @torch.inference_mode()
    def __call__(self, slots: IntArray, sets: IntArray) -> tuple[Tensor, Tensor]:
        """Votes ``[batch, width]`` and heads of the images in ``slots [n]`` under ``sets [n, masks]``.

        What follows the first ``n`` is about the canary. The heads are on the host, or on their way there until the
        device has done what it was given so far.
        """
        outputs, heads = self._filled(slots, sets)
        return outputs, heads if heads.device.type == "cpu" else self._fetch(heads)

    def _filled(self, slots: IntArray, sets: IntArray) -> tuple[Tensor, Tensor]:
        """The same, all on the device: a batch that is filled up with the canary, bare."""
        empty = self.batch - len(slots)
        canaries = np.full(empty, self.slots), np.full((empty, sets.shape[1]), NONE)
        return self.unpadded(np.concatenate([slots, canaries[0]]), np.concatenate([sets, canaries[1]]))

    @torch.inference_mode()
    def unpadded(self, slots: IntArray, sets: IntArray) -> tuple[Tensor, Tensor]:
        """The same for a batch of any size, on the device."""
        if sets.shape[1] > self.together:
            raise VoteError(f"expected at most {self.together} masks in a pass, got {sets.shape[1]}")
        where, which = self._send(slots), self._send(widened(sets, self.together))
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

        Where the network gives no numbers (a patch may bring that about) the vote is silent.
        """
        outputs = as_votes(self.classifier.numbers(self._hide(images[slots], rows, columns)))
        return outputs, head_of(self.classifier.summary(outputs))

    def shown(self, images: Tensor, sets: Tensor) -> Tensor:
        """What the network is shown of each image ``[n, 3, H, W]`` under its set of masks ``[n, masks]``."""
        return self._hide(images, self.masks.rows[sets], self.masks.columns[sets])

    def _hide(self, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Fill what any mask of a set covers."""
        hidden = hidden_by(rows, columns)
        return torch.where(hidden[:, None], self._fill, images)
