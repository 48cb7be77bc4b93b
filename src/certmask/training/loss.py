"""What is learnt: the plain cross-entropy, or PatchGuard's provable training for networks with local logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from certmask.errors import UsageError
from certmask.evidence import hypotheses, receptive_field
from certmask.evidence.network import LocalLogits
from certmask.threat import Patch, Size
from certmask.training.recipe import PROVABLE, Recipe


class Loss(Protocol):
    """What cross-entropy is taken of, and how the network answers where it is used."""

    accuracy: str
    """The name of the share of held-out photos answered rightly."""
    forward: Callable[[Tensor], Tensor]
    """What of the network is trained: normalized images in, its outputs out."""

    def logits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of the outputs of a training batch, ``[n, classes]``."""
        ...

    def scores(self, outputs: Tensor) -> Tensor:
        """The largest is the answer, ``[n, classes]``."""
        ...


class Plain:
    """The network's logits as they are."""

    def __init__(self, model: nn.Module, accuracy: str = "validation_accuracy") -> None:
        self.forward: Callable[[Tensor], Tensor] = model
        self.accuracy = accuracy

    def logits(self, outputs: Tensor, _: Tensor) -> Tensor:
        return outputs.float()

    def scores(self, outputs: Tensor) -> Tensor:
        return outputs.float()


class Provable:
    """Local logits clipped at 0, the mean over all cells; the true class loses its strongest window first.

    The windows are those of robust masking against this patch: what is learnt is what is left after the worst of them.
    """

    accuracy = "validation_masked_accuracy"

    def __init__(self, model: nn.Module, size: Size, patch: Patch | Size | int) -> None:
        self.forward: Callable[[Tensor], Tensor] = model.local  # type: ignore[assignment]
        sets = hypotheses(patch, receptive_field(LocalLogits(model.eval()), size))
        self.rows, self.columns = (torch.from_numpy(w).float() for w in (sets.window_rows, sets.window_columns))

    def logits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Only the true class is masked, ``[n, classes]``."""
        evidence = outputs.float().clamp(min=0)
        own = evidence[torch.arange(len(labels), device=labels.device), labels]
        lost = self._strongest(own[:, None]) * nn.functional.one_hot(labels, evidence.shape[1])
        return (evidence.sum(dim=(2, 3)) - lost) / evidence[0, 0].numel()

    def scores(self, outputs: Tensor) -> Tensor:
        """Every class is masked, as robust masking does: ``[n, classes]``."""
        evidence = outputs.float().clamp(min=0)
        return evidence.sum(dim=(2, 3)) - self._strongest(evidence)

    def _strongest(self, evidence: Tensor) -> Tensor:
        """The largest sum over a window of each map ``[n, maps, rows, columns]``."""
        self.rows, self.columns = self.rows.to(evidence.device), self.columns.to(evidence.device)
        return (self.rows @ evidence @ self.columns.T).amax(dim=(2, 3))


def check_recipe(recipe: Recipe, model: nn.Module, size: Size) -> None:
    """An error for a recipe that this network cannot be trained with on pictures of this size."""
    if recipe.band is not None and not recipe.band < size[1]:
        raise UsageError(f"expected a band narrower than the input, {size[1]} px, got {recipe.band}")
    if recipe.loss == PROVABLE and not callable(getattr(model, "local", None)):
        raise UsageError(
            f"expected a network with local logits, such as bagnet17, for the provable loss, got {type(model).__name__}"
        )


def loss_of(recipe: Recipe, model: nn.Module, size: Size) -> Loss:
    """The loss that a recipe names, for a network that is still on the host."""
    check_recipe(recipe, model, size)
    if recipe.loss == PROVABLE:
        assert recipe.patch is not None
        return Provable(model, size, recipe.patch)
    return Plain(model, "validation_band_accuracy") if recipe.band else Plain(model)
