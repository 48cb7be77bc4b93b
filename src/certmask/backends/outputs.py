"""What a model returned, read as logits; what could be meant in two ways is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from certmask.errors import ClassifierError

CHECKED_BATCHES = 4
"""As many as a classifier looks at before it serves: black, grey, white and random pictures."""
TOLERANCE = 0.1
"""More than bf16 changes a probability: another network, not rounding."""
OFF_ONE = 0.01
"""More than bf16 takes away from the sum of a row of probabilities."""


def logits_of(returned: Any) -> Tensor:
    """The tensor itself, an object's ``.logits``, a dict's ``"logits"``, or the first of a tuple.

    The first of a tuple is taken only where no other member could be the logits.
    """
    if isinstance(returned, Tensor):
        return returned
    found = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if found is None and isinstance(returned, (tuple, list)):
        tables = [member for member in returned if isinstance(member, Tensor) and member.ndim == 2]
        found = returned[0] if len(tables) == 1 and tables[0] is returned[0] else None
    if not isinstance(found, Tensor):
        raise ClassifierError(
            f"expected logits [n, classes] from the model, got {_words(returned)}: "
            "wrap it in a module whose forward returns the logits alone"
        )
    return found


def checked_logits(logits: Tensor, batch: int) -> Tensor:
    """The same logits; an error unless they are ``[batch, classes]`` of two classes or more."""
    if logits.shape in ((batch,), (batch, 1)):
        raise ClassifierError(
            f"expected logits of at least two classes, got one number per image {list(logits.shape)}: for a yes-or-no "
            "model with output z return torch.stack([0 * z, z], dim=1)"
        )
    if logits.ndim != 2 or logits.shape[0] != batch or logits.shape[1] < 2:
        raise ClassifierError(f"expected logits of shape [{batch}, classes], got {list(logits.shape)}")
    return logits


def are_probabilities(logits: Tensor) -> bool:
    """Whether every row lies in [0, 1] and sums to 1, as after a softmax."""
    rows = logits.float()
    within = (rows >= 0).all() & (rows <= 1).all()
    return bool(within & ((rows.sum(dim=1) - 1).abs() < OFF_ONE).all())


def check_same(found: Tensor, own: Tensor, title: str) -> None:
    """Refuse a network that converting has changed, as it does where a forward pass branches on pixels."""
    if found.shape != own.shape:
        raise ClassifierError(
            f"expected outputs of shape {list(own.shape)} from {title}, got {list(found.shape)}: take torch"
        )
    change = float((found.softmax(dim=-1).nan_to_num() - own.softmax(dim=-1).nan_to_num()).abs().max())
    if change > TOLERANCE:
        raise ClassifierError(
            f"expected a network that {title} computes as torch does, got a probability that differs by "
            f"{change:.2g}: take the backend torch"
        )


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Without remarks of other libraries on how they convert a network; errors come through."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


class LogitsAlone(nn.Module):
    """A network that returns its logits and nothing else."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.network(images))


def _words(returned: Any) -> str:
    kind = type(returned).__name__
    if isinstance(returned, Mapping):
        return f"a {kind} of {', '.join(map(str, returned)) or 'nothing'}"
    if isinstance(returned, (tuple, list)):
        members = (str(list(m.shape)) if isinstance(m, torch.Tensor) else type(m).__name__ for m in returned)
        return f"a {kind} of {', '.join(members) or 'nothing'}"
    return f"a {kind}"
