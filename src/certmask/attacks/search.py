"""The best place for a patch: first by the energy of the gradient under it, then by a few steps at the best places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from certmask.attacks.descent import Descent, Prey, attempt_losses, descend
from certmask.attacks.surrogate import Surrogate
from certmask.attacks.views import Views, bare_views
from certmask.threat import Patch

CANDIDATES, TRIAL = 4, Descent(steps=6, explore=1.0)
"""Places that are tried, and how long each."""


def search_corners(
    surrogate: Surrogate, prey: Prey, patch: Patch, views_at: Callable[[Tensor, int], Views], chance: torch.Generator
) -> Tensor:
    """A promising corner for each image, ``[n, 2]``; the corners of ``prey`` are not looked at.

    ``views_at(corners, count)`` gives the views for ``count`` corners per image, one image after the other.
    """
    candidates = _candidates(gradient_energy(surrogate, prey, patch), patch)
    count = candidates.shape[1]
    corners = candidates.flatten(0, 1)
    repeated = Prey(*(getattr(prey, name).repeat_interleave(count, dim=0) for name in Prey.__dataclass_fields__))
    repeated = replace(repeated, corners=corners)
    patches = torch.rand(len(corners), 3, *patch.size, device=surrogate.device, generator=chance)
    _, _, losses = descend(surrogate, repeated, views_at(corners, count), patches, TRIAL, chance)
    best = losses.view(-1, count).argmin(dim=1)
    return candidates[torch.arange(len(candidates), device=candidates.device), best]


def gradient_energy(surrogate: Surrogate, prey: Prey, patch: Patch) -> Tensor:
    """How much the answer on the bare image depends on the pixels under a patch at each location, ``[n, y, x]``."""
    images = prey.images.detach().clone().requires_grad_()
    pairs, wanted = bare_views(len(images), surrogate.device).draw(torch.Generator(surrogate.device))
    losses = attempt_losses(surrogate(images, pairs), wanted, prey.labels, prey.targets, prey.narrow)
    (slope,) = torch.autograd.grad(losses.sum(), images)
    return functional.avg_pool2d(slope.abs().sum(dim=1, keepdim=True), patch.size, stride=1)[:, 0]


def _candidates(energy: Tensor, patch: Patch) -> Tensor:
    """The best location in each of the best cells of a coarse grid, ``[n, candidates, 2]``."""
    cell = [min(max(side // 2, 1), length) for side, length in zip(patch.size, energy.shape[1:], strict=True)]
    best, where = functional.max_pool2d(energy[:, None], cell, ceil_mode=True, return_indices=True)
    best, where = best.flatten(1), where.flatten(1)
    top = best.topk(min(CANDIDATES, best.shape[1]), dim=1).indices
    flat = where.gather(1, top)
    width = energy.shape[2]
    return torch.stack([flat // width, flat % width], dim=-1)
