"""The margin that a certificate asks for, measured instead of guessed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from certmask.engine import Engine


def measured_margin(engine: Engine, images: Sequence[Tensor], seed: int = 0) -> float:
    """Twice the largest change of a probability when the same masked image travels in a batch of another shape.

    A lead is a difference of two probabilities, so a verdict that leads by more than this margin keeps its winner
    under any change of that size. With the engine's fixed batch shape the change is normally zero.
    """
    classifier, forward = engine.classifier, engine.forward
    forward.warm_up()
    chosen = np.random.default_rng(seed)
    images = images[: forward.slots]
    forward.put(np.arange(len(images)), images)
    slots = chosen.integers(0, len(images), classifier.batch)
    pairs = chosen.integers(0, len(forward.masks), (classifier.batch, 2))
    shipped, _ = forward(slots, pairs)
    order = chosen.permutation(classifier.batch)
    moved, _ = forward(slots[order], pairs[order])
    deviation = (moved - shipped[torch.from_numpy(order).to(shipped.device)]).abs().max()
    half = max(classifier.batch // 2, 1)
    for start in range(0, classifier.batch - half + 1, half):
        part = slice(start, start + half)
        other, _ = forward.unpadded(slots[part], pairs[part])
        deviation = torch.maximum(deviation, (other - shipped[part]).abs().max())
    return 2 * float(deviation)
