"""One patch for many images (after Brown et al. 2017): printed once, it should work wherever it is put."""

from __future__ import annotations

import torch
from torch import Tensor

from certmask.attacks.attack import Attack, Job, check_known, random_corners
from certmask.attacks.descent import Descent, Surrogate, attempt_losses
from certmask.attacks.goals import bare_views
from certmask.attacks.pictures import paste
from certmask.errors import AttackError


class UniversalPatch(Attack):
    """Trains one patch on all images of a job and puts it on each of them, at the given corners or at random ones.

    Every step looks at ``at_once`` images, each at its given corner or at a new random one. Where a job has several
    patches, they are trained together, each with a content of its own.
    """

    def __init__(self, surrogate: Surrogate, descent: Descent | None = None, *, at_once: int = 32) -> None:
        if at_once < 1:
            raise AttackError(f"expected at least 1 image at once, got {at_once}")
        self.surrogate, self.descent, self.at_once = surrogate, descent or Descent(steps=200), at_once

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        patch = self.train(job, seed).cpu()
        chance = torch.Generator().manual_seed(seed)
        corners = random_corners(job, len(job), chance) if job.corners is None else job.corners.cpu()
        return paste(job.images.cpu(), patch.expand(len(job), *patch.shape), corners), corners

    def train(self, job: Job, seed: int = 0) -> Tensor:
        """The patch alone, ``[3, h, w]``, or several; it may be tried on other images than those it was trained on."""
        job = job.checked()
        check_known(job, self.surrogate.classes)
        device, chance = self.surrogate.device, torch.Generator().manual_seed(seed)
        patch = torch.rand(*job.several, 3, *job.patch.size, generator=chance).to(device)
        velocity = torch.zeros_like(patch)
        for step in range(self.descent.steps):
            patch = patch.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._loss(job, patch, chance), patch)
            patch, velocity = self.descent.moved(patch, velocity, slope, step)
        return patch

    def _loss(self, job: Job, patch: Tensor, chance: torch.Generator) -> Tensor:
        device = self.surrogate.device
        chosen = torch.randperm(len(job), generator=chance)[: self.at_once]
        corners = random_corners(job, len(chosen), chance) if job.corners is None else job.corners.cpu()[chosen]
        targets = torch.full((len(chosen),), -1) if job.targets is None else job.targets.cpu()[chosen]
        pictures = paste(job.images.cpu()[chosen].to(device), patch.expand(len(chosen), *patch.shape), corners)
        drawn = bare_views(len(chosen), device).draw(torch.Generator(device))
        labels, narrow = job.labels.cpu()[chosen].to(device), torch.zeros(len(chosen), dtype=torch.bool, device=device)
        logits = self.surrogate(pictures, drawn.sets)
        return attempt_losses(logits, drawn, labels, targets.to(device), narrow).mean()
