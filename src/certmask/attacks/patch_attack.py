"""Gradient patch attacks: on a classifier, and on a whole defence through every mask that shows some of the patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from certmask.attacks.attack import Attack, Job, check_known
from certmask.attacks.descent import Descent, Prey, Surrogate, attempt_losses, descend
from certmask.attacks.goals import BARE_PICTURE, Goal, Juries, Places, Views, bare_views, goals_against, masked_views
from certmask.attacks.pictures import paste
from certmask.attacks.scene import Lens, painted, snapped
from certmask.defences import LocalDefence, MaskedDefence
from certmask.errors import AttackError
from certmask.geometry import IntArray
from certmask.threat import Patch

CANDIDATES, TRIAL = 4, Descent(steps=6, explore=1.0)
"""Places that are tried, and how long each."""


class PatchAttack(Attack):
    """Descends on the patch's pixels through the bare picture; of several restarts the one with the lowest loss stays.

    Without given corners it looks for good ones first. Image ``i`` settles on its ``ranks[i]``-th best wrong class,
    in turn. ``at_once`` images (times restarts) are in work together; where memory is short, fewer. Several patches
    are descended on together. Patches in photos are sought through the resampling, and then really written into them.
    """

    in_photos = True

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

    def views(self, patch: Patch, corners: Tensor, numbers: Sequence[int], seed: int) -> Views:
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
        scenes = [] if job.scenes is None else [job.scenes[number] for number in tries.tolist()]
        prey = replace(prey, corners=snapped(scenes, prey.corners)) if scenes else prey
        lens = Lens.of(scenes, prey.corners) if scenes else None
        size = lens.size if lens else job.patch.size
        patches = torch.rand(len(tries), *job.several, 3, *size, device=device, generator=chance)
        views = self.views(job.patch, prey.corners, tries.tolist(), seed)
        patches, _, losses = descend(self.surrogate, prey, views, patches, self.descent, chance, lens)
        best = losses.view(self.restarts, count).argmin(dim=0) * count + torch.arange(count, device=device)
        corners = prey.corners[best].cpu()
        if scenes:
            return painted([scenes[number] for number in best.tolist()], patches[best], corners), corners
        return paste(prey.images[:count], patches[best], prey.corners[best]).cpu(), corners

    def _searched(self, job: Job, prey: Prey, numbers: list[int], seed: int, chance: torch.Generator) -> Tensor:
        def views_at(corners: Tensor, each: int) -> Views:
            views = self.views(job.patch, corners, [n for n in numbers for _ in range(each)], seed)
            return replace(views, count=max(views.count // each, 1))

        return search_corners(self.surrogate, prey, job.patch, views_at, chance)

    def _prey(self, job: Job, numbers: Tensor) -> Prey:
        targets = torch.full((len(job),), -1) if job.targets is None else job.targets.cpu()
        nowhere = torch.zeros(len(job), *job.several, 2, dtype=torch.long)
        corners = nowhere if job.corners is None else job.corners.cpu()
        ranks = torch.tensor([self.ranks[n % len(self.ranks)] for n in numbers.tolist()])
        narrow = torch.tensor([self.goal(n).narrow for n in numbers.tolist()])
        chosen = (job.images.cpu(), job.labels.cpu(), corners, targets)
        return Prey(*(part.to(self.surrogate.device) for part in (*(c[numbers] for c in chosen), ranks, narrow)))


class AdaptiveAttack(PatchAttack):
    """Knows the defence: masks, rule, and what beats the rule. Image ``i`` is attacked for ``goals[i]``, in turn.

    Every step looks at ``views`` random masked copies of each picture, at those of the jury too if the surrogate sees
    anything of the patch in them: then always. What shows nothing of it has no gradient and is passed over. Against
    several patches, as the rule looks: under as many masks at once, or twice as many.
    """

    def __init__(
        self,
        surrogate: Surrogate,
        defence: MaskedDefence,
        descent: Descent | None = None,
        *,
        goals: Sequence[Goal] | None = None,
        views: int = 16,
        restarts: int = 1,
        ranks: Sequence[int] = (0,),
        at_once: int = 32,
    ) -> None:
        goals = goals_against(defence) if goals is None else goals
        super().__init__(surrogate, descent, restarts=restarts, ranks=ranks, goals=goals, at_once=at_once)
        if views < 1:
            raise AttackError(f"expected at least 1 view per step, got {views}")
        if len({goal.bare for goal in self.goals}) > 1:
            raise AttackError("expected goals that all look through masks, or all at the bare picture, got both")
        self.defence, self.view_count = defence, views
        self._juries: dict[Patch, Juries] = {}
        self._numbers = surrogate.numbers(defence.cover)

    def views(self, patch: Patch, corners: Tensor, numbers: Sequence[int], seed: int) -> Views:
        if self.goals[0].bare:
            return bare_views(len(corners), self.surrogate.device)
        places, goals = self._places(patch, corners.cpu().numpy()), [self.goal(number) for number in numbers]
        wishes = np.zeros(places.leaks.shape, dtype=np.int8)
        for goal in set(goals):
            rows = np.array([goal is other for other in goals])
            wishes[rows] = goal.wish(places.chosen(rows), np.random.default_rng(seed))
        device = self.surrogate.device
        return masked_views(self.defence, places, self._numbers, wishes, goals, self.view_count, device)

    def _searched(self, job: Job, prey: Prey, numbers: list[int], seed: int, chance: torch.Generator) -> Tensor:
        """Where masks that should hide the patch leak, if they do anywhere; else where the network is weakest."""
        found = self.surrogate.leaking_corners(self.defence.cover, job.patch)
        if not len(found) or self.goals[0].bare:
            return super()._searched(job, prey, numbers, seed, chance)
        leaking = torch.from_numpy(found).to(self.surrogate.device)
        drawn = (len(numbers), *job.several)
        return leaking[torch.randint(len(leaking), drawn, generator=chance, device=chance.device)]

    def _places(self, patch: Patch, corners: IntArray) -> Places:
        """The corners, with what the surrogate sees through the masks that should hide a patch there."""
        if patch not in self._juries:
            self._juries[patch] = Juries(self.defence.cover, patch)
        juries = self._juries[patch]
        covered = juries.members(corners)
        flat = corners.reshape(-1, 2), covered.reshape(-1, covered.shape[-1])
        return Places(juries, corners, self.surrogate.leaks(self.defence.cover, *flat, patch).reshape(covered.shape))


class EvidenceAttack(PatchAttack):
    """Knows a defence on local evidence: it descends through the scores from which the rule takes its answer."""

    def __init__(
        self, surrogate: Surrogate, defence: LocalDefence, descent: Descent | None = None, **options: Any
    ) -> None:
        def scores(maps: Tensor) -> Tensor:
            return defence.rule.scores(maps.permute(0, 2, 3, 1), defence.fields)

        super().__init__(surrogate.reading(scores), descent, **{"goals": goals_against(defence), **options})


def search_corners(
    surrogate: Surrogate, prey: Prey, patch: Patch, views_at: Callable[[Tensor, int], Views], chance: torch.Generator
) -> Tensor:
    """A promising corner for each image, ``[n, 2]``, or several; the corners of ``prey`` are not looked at.

    ``views_at(corners, count)`` gives the views for ``count`` corners per image, one image after the other.
    """
    candidates = _candidates(gradient_energy(surrogate, prey, patch), patch)
    count = candidates.shape[1]
    corners = candidates.flatten(0, 1)
    repeated = Prey(*(getattr(prey, name).repeat_interleave(count, dim=0) for name in Prey.__dataclass_fields__))
    repeated = replace(repeated, corners=corners)
    patches = torch.rand(*corners.shape[:-1], 3, *patch.size, device=surrogate.device, generator=chance)
    _, _, losses = descend(surrogate, repeated, views_at(corners, count), patches, TRIAL, chance)
    best = losses.view(-1, count).argmin(dim=1)
    return candidates[torch.arange(len(candidates), device=candidates.device), best]


def gradient_energy(surrogate: Surrogate, prey: Prey, patch: Patch) -> Tensor:
    """How much the answer on the bare image depends on the pixels under a patch at each location, ``[n, y, x]``."""
    images = prey.images.detach().clone().requires_grad_()
    drawn = bare_views(len(images), surrogate.device).draw(torch.Generator(surrogate.device))
    losses = attempt_losses(surrogate(images, drawn.sets), drawn, prey.labels, prey.targets, prey.narrow)
    (slope,) = torch.autograd.grad(losses.sum(), images)
    return functional.avg_pool2d(slope.abs().sum(dim=1, keepdim=True), patch.size, stride=1)[:, 0]


def _candidates(energy: Tensor, patch: Patch) -> Tensor:
    """The best location in each of the best cells of a coarse grid, ``[n, candidates, 2]``.

    For several patches, ``[n, candidates, count, 2]``, the first is one of these.
    """
    cell = [min(max(side // 2, 1), length) for side, length in zip(patch.size, energy.shape[1:], strict=True)]
    best, where = functional.max_pool2d(energy[:, None], cell, ceil_mode=True, return_indices=True)
    best, where = best.flatten(1), where.flatten(1)
    top = best.topk(min(CANDIDATES, best.shape[1]), dim=1).indices
    flat = where.gather(1, top)
    first = _unravelled(flat, energy)
    return first if patch.count == 1 else _with_next_best(energy, patch, first)


def _with_next_best(energy: Tensor, patch: Patch, first: Tensor) -> Tensor:
    """Beside each first corner ``[n, candidates, 2]`` the best ones that overlap none before: ``[…, count, 2]``."""
    left = energy.repeat_interleave(first.shape[1], dim=0)
    chosen = [first.flatten(0, 1)]
    for _ in range(patch.count - 1):
        near = [
            (torch.arange(length, device=left.device) - chosen[-1][:, axis, None]).abs() < side
            for axis, (length, side) in enumerate(zip(left.shape[1:], patch.size, strict=True))
        ]
        left = left.masked_fill(near[0][:, :, None] & near[1][:, None, :], -1.0)
        chosen.append(_unravelled(left.flatten(1).argmax(dim=1), energy))
    return torch.stack(chosen, dim=1).view(*first.shape[:2], patch.count, 2)


def _unravelled(flat: Tensor, energy: Tensor) -> Tensor:
    """Corners ``[…, 2]`` from the numbers of places ``[…]`` of ``energy [n, y, x]``."""
    width = energy.shape[2]
    return torch.stack([flat // width, flat % width], dim=-1)
