"""The masked views of a patched picture that an attacker can influence, drawn anew in every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certmask.attacks.goals import HIDDEN, KEEP, TURN, Wishes
from certmask.covers import Cover
from certmask.geometry import IntArray

BARE_VIEW = -1


@dataclass(frozen=True)
class Views:
    """For each attempt, what is wanted of each mask's vote; ``draw`` picks some masks, and pairs where ``paired``.

    Masks that hide the patch are never drawn: a patch cannot influence them. ``wishes`` is ``[n, masks]``, ``numbers``
    ``[masks]`` says how the surrogate calls each mask, ``together`` ``[masks, masks]`` which two the rule combines.
    """

    wishes: Tensor
    numbers: Tensor
    together: Tensor
    paired: Tensor
    count: int

    def __len__(self) -> int:
        return len(self.wishes)

    def draw(self, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pairs of the surrogate's mask numbers ``[n, views, 2]`` and what is wanted of each view ``[n, views]``."""
        keys = self._weights().log() - self._noise(self.wishes.shape, chance)
        first = keys.topk(min(self.count, self.wishes.shape[1]), dim=1).indices
        second = self._partners(first, chance)
        wish = torch.stack([self.wishes.gather(1, first), self.wishes.gather(1, second)])
        wanted = torch.where((wish == HIDDEN).any(dim=0), HIDDEN, wish.amax(dim=0))
        return self.numbers[torch.stack([first, second], dim=-1)], wanted

    def _partners(self, first: Tensor, chance: torch.Generator) -> Tensor:
        """A second mask for every other view of the attempts that look at pairs; elsewhere the mask itself."""
        allowed = self.together[first] & (self.wishes == TURN)[:, None, :]
        keys = torch.where(allowed, torch.rand(allowed.shape, device=first.device, generator=chance), -1.0)
        best = keys.max(dim=2)
        pairing = self.paired[:, None] & (torch.arange(first.shape[1], device=first.device) % 2 == 1)
        return torch.where(pairing & (best.values >= 0), best.indices, first)

    def _weights(self) -> Tensor:
        """Masks to turn and masks to keep both get their turn, whichever are fewer."""
        weights = torch.zeros_like(self.wishes, dtype=torch.float32)
        for wish in (TURN, KEEP):
            has = self.wishes == wish
            weights += has / has.sum(dim=1, keepdim=True).clamp(min=1).sqrt()
        return weights

    @staticmethod
    def _noise(shape: torch.Size, chance: torch.Generator) -> Tensor:
        """With these, the largest keys are a draw without replacement in proportion to the weights."""
        uniform = torch.rand(shape, device=chance.device, generator=chance).clamp(min=1e-12, max=1 - 1e-7)
        return (-uniform.log()).log()


def bare_views(count: int, device: torch.device) -> Views:
    """The picture without masks, for ``count`` attempts."""
    one = torch.ones(1, 1, dtype=torch.bool, device=device)
    wishes = torch.full((count, 1), TURN, dtype=torch.int8, device=device)
    return Views(wishes, torch.tensor([BARE_VIEW], device=device), one, one[0].expand(count), 1)


def masked_views(
    cover: Cover, numbers: IntArray, wishes: Wishes, paired: list[bool], count: int, aligned: bool, device: torch.device
) -> Views:
    """``count`` masked views per attempt and step; ``aligned`` combines only masks of one grid."""
    return Views(
        torch.from_numpy(wishes).to(device),
        torch.from_numpy(numbers).to(device),
        torch.from_numpy(_together(cover, aligned)).to(device),
        torch.tensor(paired, device=device),
        count,
    )


def _together(cover: Cover, aligned: bool) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    together = np.full((len(cover), len(cover)), not aligned)
    for grid in cover.grids if aligned else ():
        together[np.ix_(grid, grid)] = True
    return together
