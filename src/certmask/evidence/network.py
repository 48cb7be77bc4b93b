"""A classifier whose network sees the picture piece by piece: one pass gives local logits, cell by cell of its map."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from certmask.backends.arithmetic import as_deployed
from certmask.classifier import Classifier
from certmask.company import ROUNDING
from certmask.errors import ClassifierError
from certmask.evidence.field import Field, field_of_batch
from certmask.evidence.maps import LARGEST, touched
from certmask.identity import architecture_digest, weights_digest
from certmask.threat import Size
from certmask.views import PLAIN, checked_views

SUMS = 4
"""How many signed sums of the evidence of all cells a fingerprint holds."""


class LocalLogits(nn.Module):
    """The map of a network, ``[n, classes, rows, columns]``: what its method ``local`` gives, or the network itself."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, images: Tensor) -> Tensor:
        look: Callable[[Tensor], Tensor] = getattr(self.network, "local", self.network)
        return look(images)


class LocalClassifier(Classifier):
    """Maps images to the local logits of a network, flattened ``[n, rows · columns · classes]``, within ±4096.

    No cell's logits depend on a pixel outside its field, computed from the network's layers as they run: in its batch,
    precision and layout. Where logits are no numbers they say the least about every class. As a plain classifier it
    gives the softmax of their mean.

    model: a network with a method ``local``, such as BagNet, or one that gives maps ``[n, classes, rows, columns]``
    size: height and width of the input, or one number for a square
    Everything else goes to ``Classifier``; but the precision ``auto`` is fp32, as kernels of fewer bits have been seen
    to carry what is no number into cells that their layer does not reach.
    """

    piecewise = True

    def __init__(self, model: nn.Module | Callable[[Tensor], Tensor], size: Size | int = 224, **options: Any) -> None:
        if not isinstance(model, nn.Module):
            raise ClassifierError(f"expected a network whose receptive field can be computed, got {model!r}")
        if checked_views(options.get("views", PLAIN)) != PLAIN:
            raise ClassifierError(f"expected one plain view with local evidence, got {', '.join(options['views'])}")
        if options.get("backend", "torch") != "torch":
            raise ClassifierError(f"expected the backend torch, whose layers can be followed, got {options['backend']}")
        self.fields: tuple[Field, Field]
        precision = "fp32" if options.get("precision", "auto") == "auto" else options["precision"]
        told = {"name": type(model).__name__, **options, "precision": precision}
        super().__init__(LocalLogits(model), size, **told)
        self.weights, self.architecture = weights_digest(model), architecture_digest(model)

    @property
    def cells(self) -> Size:
        """Rows and columns of the map."""
        return self.fields[0].cells, self.fields[1].cells

    @property
    def width(self) -> int:
        return self.cells[0] * self.cells[1] * self.classes

    def fields_in(self, batch: int) -> tuple[Field, Field]:
        """What the cells of the network see as it runs in batches of this shape."""
        with torch.inference_mode(), as_deployed(self.device):
            black = self._arranged(torch.zeros(batch, 3, *self.size, device=self.device), self.precision)
            return field_of_batch(cast(nn.Module, copy.deepcopy(self.model)), black)

    def check_batch(self, batch: int) -> None:
        if batch in self._traced:
            return
        for own, other in zip(self.fields, self.fields_in(batch), strict=True):
            if own.describe() != other.describe():
                raise ClassifierError(
                    f"expected cells of {self.name} that see the same pixels in every batch, got others in one of "
                    f"{batch}"
                )
        self._traced.add(batch)

    @torch.inference_mode()
    def _count_classes(self) -> int:
        """From a batch of black pictures."""
        self.fields, self._traced = self.fields_in(self.batch), {self.batch}
        maps = self.logits(torch.zeros(self.batch, 3, *self.size, device=self.device))
        if maps.ndim != 4 or maps.shape[0] != self.batch or maps.shape[1] < 2 or tuple(maps.shape[2:]) != self.cells:
            raise ClassifierError(
                f"expected a map of shape [{self.batch}, classes, {self.cells[0]}, {self.cells[1]}], got "
                f"{list(maps.shape)}"
            )
        return int(maps.shape[1])

    def _shaped_logits(self, images: Tensor) -> Tensor:
        return self.logits(images).permute(0, 2, 3, 1).flatten(1)

    def numbers(self, images: Tensor) -> Tensor:
        told = self._shaped_logits(images).float()
        return told.nan_to_num(nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST).clamp(-LARGEST, LARGEST)

    def maps(self, numbers: Tensor) -> Tensor:
        """The numbers of passes as local logits ``[n, rows, columns, classes]``."""
        return numbers.view(-1, *self.cells, self.classes)

    def summary(self, numbers: Tensor) -> Tensor:
        return self.maps(numbers).double().mean(dim=(1, 2)).softmax(dim=1).float()

    def probabilities(self, images: Tensor) -> Tensor:
        return self.summary(self.numbers(images))

    def moved(self, numbers: Tensor, others: Tensor) -> float:
        change = (self.maps(numbers).double() - self.maps(others)).abs().sum(dim=(1, 2))
        return 2 * float(change.amax()) if change.numel() else 0.0

    def sums(self, numbers: Tensor) -> Tensor:
        """Of all cells, and of cells with random signs, the same ones everywhere: exact, as votes are whole units."""
        signs = torch.randint(0, 2, (SUMS, *self.cells), generator=torch.Generator().manual_seed(0)) * 2 - 1
        signs[0] = 1
        return torch.einsum("nrkc,srk->nsc", self.maps(numbers).double(), signs.to(numbers.device).double())

    def strayed(self, pictures: Tensor, look: Callable[[Tensor], Tensor]) -> float:
        beside, boxed, places = _boxes(pictures)
        clean, told = look(pictures)[beside], look(boxed)
        rows, columns = touched(tuple(side // 4 or 1 for side in self.size), self.fields)  # type: ignore[arg-type]
        inside = torch.from_numpy(np.stack([np.outer(rows[top], columns[left]) for top, left in places]))
        numbers = inside.flatten(1).repeat_interleave(self.classes, dim=1).to(clean.device)
        seen = torch.where(numbers, clean, told)
        scale, change = float(clean.abs().amax()), float((seen - clean).abs().amax())
        if not change <= ROUNDING[self.precision] * scale:
            raise ClassifierError(
                f"expected cells that see no more than their field, got a logit of {self.name} that a box outside of "
                f"it changed by {change:.2g}"
            )
        return self.moved(seen, clean)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "cells": list(self.cells)}


def _boxes(pictures: Tensor) -> tuple[Tensor, Tensor, list[Size]]:
    """Each picture with boxes of noise, black and white, a quarter of its sides long, at two places each.

    The numbers of the pictures, what they become, and the places.
    """
    chance = torch.Generator().manual_seed(0)
    height, width = (side // 4 or 1 for side in pictures.shape[2:])
    beside = torch.arange(len(pictures)).repeat_interleave(6)
    tops, lefts = (torch.randint(0, side - own + 1, (len(beside),), generator=chance).tolist()
                   for side, own in zip(pictures.shape[2:], (height, width), strict=True))  # fmt: skip
    noise = torch.randint(0, 2, (3, height, width), generator=chance).to(pictures)
    boxed = pictures[beside]
    for number, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        content = (noise, 0.0, 1.0)[number % 3]
        boxed[number, :, top : top + height, left : left + width] = content
    return beside, boxed, list(zip(tops, lefts, strict=True))
