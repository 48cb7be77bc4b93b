"""The gradient patch attack on a classifier: any number of images, places and restarts, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from certmask.attacks.attack import Attack, Job, check_known
from certmask.attacks.descent import Descent, Prey, descend
from certmask.attacks.goals import BARE_PICTURE, Goal
from certmask.attacks.pasting import paste
from certmask.attacks.search import search_corners
from certmask.attacks.surrogate import Surrogate
from certmask.attacks.views import Views, bare_views
from certmask.errors import AttackError


class PatchAttack(Attack):
    """Descends on the patch's pixels through the bare picture; of several restarts the one with the lowest loss stays.

    Without given corners it looks for good ones first. Image ``i`` settles on its ``ranks[i]``-th best wrong class,
    in turn. ``at_once`` images (times restarts) are in work together; where memory is short, fewer.
    """

    def __init__(
        self,
        surrogate: Surrogate,
        descent: Descent | None = None,
        *,
        restarts: int = 1,
        ranks: Sequence[int] = (0,),
        goals: Sequence[Goal] = (BARE_PICTURE,),
        at_once: int = 32,
    ) -> None:
        if min(restarts, at_once) < 1 or not ranks or not goals:
            raise AttackError(
                "expected at least 1 restart, image at once, rank and goal, "
                f"got {restarts}, {at_once}, {len(ranks)} and {len(goals)}"
            )
        self.surrogate, self.descent = surrogate, descent or Descent()
        self.restarts, self.at_once = restarts, at_once
        self.ranks, self.goals = tuple(ranks), tuple(goals)

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        check_known(job, self.surrogate.classes)
        pictures, corners = [], []
        waiting = list(torch.split(torch.arange(len(job)), self.at_once))
        while waiting:
            numbers = waiting.pop(0)
            try:
                found = self._part(job, numbers, seed + int(numbers[0]))
            except torch.OutOfMemoryError:
                if len(numbers) == 1:
                    raise AttackError("expected memory for one attempt, got too little: take fewer views") from None
                torch.cuda.empty_cache()
                waiting[:0] = torch.split(numbers, -(-len(numbers) // 2))
                continue
            pictures.append(found[0])
            corners.append(found[1])
        return torch.cat(pictures), torch.cat(corners)

    def views(self, corners: Tensor, numbers: Sequence[int], seed: int) -> Views:
        """What a patch on image ``numbers[i]`` at ``corners[i]`` should change."""
        return bare_views(len(corners), self.surrogate.device)

    def goal(self, number: int) -> Goal:
        """What image ``number`` is attacked for."""
        return self.goals[number % len(self.goals)]

    def _part(self, job: Job, numbers: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Pictures and corners of some of the job's images, on the host."""
        device, count = self.surrogate.device, len(numbers)
        chance = torch.Generator(device).manual_seed(seed)
        tries = numbers.repeat(self.restarts)
        prey = self._prey(job, tries)
        if job.corners is None:
            prey = replace(prey, corners=self._searched(job, prey, tries.tolist(), seed, chance))
        patches = torch.rand(len(tries), 3, *job.patch.size, device=device, generator=chance)
        views = self.views(prey.corners, tries.tolist(), seed)
        patches, _, losses = descend(self.surrogate, prey, views, patches, self.descent, chance)
        best = losses.view(self.restarts, count).argmin(dim=0) * count + torch.arange(count, device=device)
        return paste(prey.images[:count], patches[best], prey.corners[best]).cpu(), prey.corners[best].cpu()

    def _searched(self, job: Job, prey: Prey, numbers: list[int], seed: int, chance: torch.Generator) -> Tensor:
        def views_at(corners: Tensor, each: int) -> Views:
            views = self.views(corners, [n for n in numbers for _ in range(each)], seed)
            return replace(views, count=max(views.count // each, 1))

        return search_corners(self.surrogate, prey, job.patch, views_at, chance)

    def _prey(self, job: Job, numbers: Tensor) -> Prey:
        targets = torch.full((len(job),), -1) if job.targets is None else job.targets.cpu()
        corners = torch.zeros(len(job), 2, dtype=torch.long) if job.corners is None else job.corners.cpu()
        ranks = torch.tensor([self.ranks[n % len(self.ranks)] for n in numbers.tolist()])
        narrow = torch.tensor([self.goal(n).narrow for n in numbers.tolist()])
        chosen = (job.images.cpu(), job.labels.cpu(), corners, targets)
        return Prey(*(part.to(self.surrogate.device) for part in (*(c[numbers] for c in chosen), ranks, narrow)))
