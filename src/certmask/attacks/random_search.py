"""A patch attack without gradients (after Croce et al. 2022): stripes at first, then squares of random colour."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from certmask.attacks.attack import Attack, Job, check_known, random_corners
from certmask.attacks.pictures import paste
from certmask.errors import AttackError

Scores = Callable[[Tensor], Tensor]
"""Pictures ``[n, 3, H, W]`` to class probabilities ``[n, classes]``; a ``Classifier``, or any callable."""

MOVE_EVERY = 5


class RandomSearch(Attack):
    """Keeps a random change of a patch where it lowers the true class's lead (or raises the target's probability).

    Needs nothing but scores. Every fifth query moves the patch instead, unless the corners are given. Several patches
    are changed together.
    """

    def __init__(self, scores: Scores, queries: int = 500) -> None:
        if queries < 1:
            raise AttackError(f"expected at least 1 query, got {queries}")
        self.scores, self.queries = scores, queries

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(seed)
        images = job.images.cpu()
        corners = random_corners(job, len(job), chance) if job.corners is None else job.corners.cpu()
        stripes = torch.rand(len(job), *job.several, 3, 1, job.patch.width, generator=chance).round()
        patches = stripes.expand(*stripes.shape[:-2], job.patch.height, -1).clone()
        best = self._loss(job, paste(images, patches, corners))
        for query in range(1, self.queries):
            left = 1 - query / self.queries
            new_patches, new_corners = patches, corners
            if job.corners is None and query % MOVE_EVERY == 0:
                new_corners = _moved(job, corners, left, chance)
            else:
                new_patches = _with_square(patches, left, chance)
            loss = self._loss(job, paste(images, new_patches, new_corners))
            better = loss < best
            best = torch.where(better, loss, best)
            patches = torch.where(better.view(-1, *[1] * (patches.ndim - 1)), new_patches, patches)
            corners = torch.where(better.view(-1, *[1] * (corners.ndim - 1)), new_corners, corners)
        return paste(images, patches, corners), corners

    def _loss(self, job: Job, pictures: Tensor) -> Tensor:
        scores = self.scores(pictures).detach().float().cpu()
        if scores.ndim != 2 or len(scores) != len(job):
            raise AttackError(f"expected scores of shape [{len(job)}, classes], got {list(scores.shape)}")
        check_known(job, scores.shape[1])
        if job.targets is not None:
            return -scores.gather(1, job.targets.cpu()[:, None])[:, 0]
        labels = job.labels.cpu()[:, None]
        return scores.gather(1, labels)[:, 0] - scores.scatter(1, labels, -torch.inf).amax(dim=1)


def _with_square(patches: Tensor, left: float, chance: torch.Generator) -> Tensor:
    """Each patch with one square of one random extreme colour; squares shrink as the queries are used up."""
    *each, _, height, width = patches.shape
    side = max(round(0.8 * left**1.5 * min(height, width)), 1)
    top = torch.randint(height - side + 1, (*each, 1, 1, 1), generator=chance)
    start = torch.randint(width - side + 1, (*each, 1, 1, 1), generator=chance)
    rows, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    inside = (rows >= top) & (rows < top + side) & (columns >= start) & (columns < start + side)
    return torch.where(inside, torch.rand(*each, 3, 1, 1, generator=chance).round(), patches)


def _moved(job: Job, corners: Tensor, left: float, chance: torch.Generator) -> Tensor:
    """Corners shifted at random, less and less far."""
    last = torch.tensor(job.patch.positions(job.size)) - 1
    reach = (0.5 * left * last).ceil()
    shift = (2 * torch.rand(corners.shape, generator=chance) - 1) * reach
    return (corners + shift.round().long()).clamp(min=0).minimum(last)
