"""Gradient descent on the pixels of many patches at once (momentum, sign steps, large at first, then smaller)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from certmask.attacks.goals import HIDDEN, KEEP
from certmask.attacks.pasting import paste
from certmask.attacks.surrogate import Surrogate
from certmask.attacks.views import Views
from certmask.errors import AttackError

SLACK = 1.0
"""Logits by which a narrow goal wants the target to lead."""


@dataclass(frozen=True)
class Descent:
    """Step count and sizes. In the first ``explore`` share of the steps any wrong class will do; then each patch
    settles on the class that its views lean to most (or on its ``rank``-th best)."""

    steps: int = 60
    first_step: float = 0.12
    last_step: float = 0.008
    momentum: float = 0.8
    explore: float = 0.25

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise AttackError(f"expected at least 1 step, got {self.steps}")

    def size(self, step: int) -> float:
        """How far every pixel moves in a step: half a cosine from the first size down to the last."""
        share = step / max(self.steps - 1, 1)
        return self.last_step + (self.first_step - self.last_step) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class Prey:
    """Attempts in work, on the surrogate's device: images ``[n, 3, H, W]``, labels, corners ``[n, 2]``, and how.

    ``targets`` is -1 where any wrong class will do at first; ``rank`` picks among the classes to settle on;
    ``narrow`` says which attempts are content with a small lead.
    """

    images: Tensor
    labels: Tensor
    corners: Tensor
    targets: Tensor
    rank: Tensor
    narrow: Tensor


def descend(
    surrogate: Surrogate, prey: Prey, views: Views, patches: Tensor, descent: Descent, chance: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Patches ``[n, 3, h, w]`` after all steps, the targets they settled on, and their last losses ``[n]``."""
    velocity, targets = torch.zeros_like(patches), prey.targets
    losses = patches.new_zeros(len(patches))
    settle = max(round(descent.explore * descent.steps), 1)
    for step in range(descent.steps):
        pairs, wanted = views.draw(chance)
        patches = patches.detach().requires_grad_()
        logits = surrogate(paste(prey.images, patches, prey.corners), pairs)
        if step == settle:
            targets = _settled(logits.detach(), wanted, prey, targets)
        losses = attempt_losses(logits, wanted, prey.labels, targets, prey.narrow)
        (slope,) = torch.autograd.grad(losses.sum(), patches)
        scale = slope.abs().mean(dim=(1, 2, 3), keepdim=True).clamp(min=1e-20)
        velocity = descent.momentum * velocity + slope / scale
        patches = (patches.detach() - descent.size(step) * velocity.sign()).clamp(0, 1)
    return patches.detach(), targets, losses.detach()


def attempt_losses(logits: Tensor, wanted: Tensor, labels: Tensor, targets: Tensor, narrow: Tensor) -> Tensor:
    """How far each attempt is from its goal, ``[n]``: a mean over its views ``[n, views, classes]``."""
    lead = _lead(logits, labels)
    aimed = targets.clamp(min=0)
    towards = torch.where(narrow[:, None], (SLACK - _lead(logits, aimed)).clamp(min=0), _surprise(logits, aimed))
    turn = torch.where(targets[:, None] >= 0, towards, lead)
    loss = torch.where(wanted == KEEP, _surprise(logits, labels), turn)
    counted = wanted != HIDDEN
    return torch.where(counted, loss, 0.0).sum(dim=1) / counted.sum(dim=1).clamp(min=1)


def _surprise(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross-entropy of one class per attempt in each of its views, ``[n, views]``."""
    wide = classes[:, None].expand(logits.shape[:2])
    return functional.cross_entropy(logits.flatten(0, 1), wide.flatten(), reduction="none").view(logits.shape[:2])


def _lead(logits: Tensor, classes: Tensor) -> Tensor:
    """By how many logits a class is ahead of the best other one, ``[n, views]``."""
    index = classes[:, None, None].expand(*logits.shape[:2], 1)
    others = logits.scatter(2, index, -torch.inf).amax(dim=2)
    return logits.gather(2, index)[..., 0] - others


def _settled(logits: Tensor, wanted: Tensor, prey: Prey, targets: Tensor) -> Tensor:
    """The class to go for where none was given: the ``rank``-th best wrong one over the views to turn."""
    counted = (wanted != HIDDEN) & (wanted != KEEP)
    score = (logits.softmax(dim=2) * counted[..., None]).sum(dim=1)
    score = score.scatter(1, prey.labels[:, None], -1.0)
    best = score.argsort(dim=1, descending=True)
    chosen = best.gather(1, prey.rank[:, None].clamp(max=logits.shape[2] - 2))[:, 0]
    return torch.where(targets >= 0, targets, chosen)
