"""The margin that a certificate asks for, measured instead of guessed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from certmask.engine import Engine
from certmask.engine.forward import Forward
from certmask.passes import NONE
from certmask.votes import Margin, lead_changes

BOXED = 4
"""Photos into which boxes are put, to see whether cells that do not touch them stay as they are."""


def measured_margin(engine: Engine, images: Sequence[Tensor], seed: int = 0) -> Margin:
    """The most by which a lead changes when the same masked image travels in another place or another batch shape.

    A verdict that leads by more than this keeps its winner under any change of that size. With the engine's fixed
    batch shape the change is normally zero. On top of it comes what kernels let boxes outside of the fields of cells do
    to local evidence.
    """
    with engine.alone():
        return _measured(engine.forward, images, seed)


def _measured(forward: Forward, images: Sequence[Tensor], seed: int) -> Margin:
    forward.warm_up()
    chosen = np.random.default_rng(seed)
    images = images[: forward.slots]
    forward.put(np.arange(len(images)), images)
    slots = chosen.integers(0, len(images), forward.batch)
    pairs = chosen.integers(0 if len(forward.masks) else NONE, len(forward.masks), (forward.batch, 2))
    shipped, _ = forward(slots, pairs)
    order = chosen.permutation(forward.batch)
    moved, _ = forward(slots[order], pairs[order])
    back = torch.from_numpy(np.argsort(order)).to(moved.device)
    half = max(forward.batch // 2, 1)
    parts = [slice(start, start + half) for start in range(0, forward.batch - half + 1, half)]
    others = torch.cat([forward.unpadded(slots[part], pairs[part])[0] for part in parts])
    changes = _changes(forward, shipped, moved[back]), _changes(forward, shipped[: len(others)], others)
    most = Margin(*map(max, *changes))
    return most._replace(evidence=most.evidence + forward.strayed(images[:BOXED]))


def _changes(forward: Forward, numbers: Tensor, others: Tensor) -> Margin:
    """The most by which any lead changes if these numbers of passes become those."""
    classifier = forward.classifier
    found = lead_changes(classifier.summary(numbers), classifier.summary(others))
    return found._replace(evidence=classifier.moved(numbers, others))
