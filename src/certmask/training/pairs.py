"""Pairs of masks of the very covers that will be deployed: what a certificate looks through is what is learnt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from certmask.covers import Cover, patchcleanser_cover
from certmask.covers.default import Wishes, suited_cover
from certmask.deployed.tokens import on_tokens
from certmask.engine.masking import MaskTable, hidden_by
from certmask.identity import token_side
from certmask.threat import Size, checked_patch
from certmask.training.recipe import Recipe

PER_AXIS = 6
"""PatchCleanser's masks per axis."""


def deployed_covers(recipe: Recipe, model: nn.Module, size: Size) -> list[Cover]:
    """PatchCleanser's 6×6 masks as published, then zoom's levels, on the tokens of the network where it has some."""
    assert recipe.patch is not None
    patch = checked_patch(recipe.patch)
    masks = patchcleanser_cover(size, patch, PER_AXIS)
    if not recipe.levels:
        return [masks]
    wishes = on_tokens(size, patch, Wishes(levels=recipe.levels), token_side(model, size))
    return [masks, *suited_cover(size, patch, wishes).levels]


class MaskPairs:
    """Two masks of one cover for every picture; every cover has the same chance, and so has every pair of its masks."""

    def __init__(self, covers: Sequence[Cover], device: torch.device) -> None:
        table = MaskTable(covers, covers[0].image, device)
        self.rows, self.columns = table.rows, table.columns
        self.covers = [torch.from_numpy(table.index(cover)) for cover in covers]
        self.sizes = torch.tensor([len(masks) for masks in self.covers])
        self.table = nn.utils.rnn.pad_sequence(self.covers, batch_first=True)
        self.count = len(table)

    def drawn(self, pictures: int, chance: torch.Generator, tries: int = 1) -> Tensor:
        """Numbers of masks ``[tries × pictures, 2]``, all tries of a picture from one cover.

        A mask may be drawn twice: certificates look through single ones, too.
        """
        cover = torch.randint(len(self.covers), (pictures, 1), generator=chance).repeat(tries, 1)
        masks = (torch.rand(len(cover), 2, generator=chance) * self.sizes[cover]).long()
        return self.table[cover, masks].to(self.rows.device, non_blocking=True)

    def hidden(self, images: Tensor, pairs: Tensor, fill: Tensor) -> Tensor:
        """The images ``[n, 3, height, width]`` with their masks ``[n, 2]`` painted."""
        return torch.where(hidden_by(self.rows[pairs], self.columns[pairs])[:, None], fill, images)

    def worst(self, pairs: Tensor, losses: Tensor, pictures: int) -> Tensor:
        """Of the pairs ``[tries × pictures, 2]`` tried for each picture, the one of the highest loss."""
        worst = losses.view(-1, pictures).argmax(dim=0)
        return pairs.view(-1, pictures, 2)[worst, torch.arange(pictures, device=pairs.device)]


class Recall:
    """How hard each mask has been for each photo; harder ones are drawn more often, which costs no pass.

    ``sharpness`` 0 draws all alike. A mirrored picture's masks are remembered where they lie on the photo itself.
    """

    KEPT = 0.5
    """The share of what was known that outlives a new loss."""

    def __init__(self, pairs: MaskPairs, photos: int, sharpness: float) -> None:
        self.pairs, self.sharpness = pairs, sharpness
        self.losses = torch.zeros(photos, pairs.count, device=pairs.rows.device)
        self.member = torch.zeros(len(pairs.covers), pairs.count, dtype=torch.bool, device=pairs.rows.device)
        for cover, masks in zip(self.member, pairs.covers, strict=True):
            cover[masks.to(cover.device)] = True
        self.mirror = self._mirror()

    def drawn(self, photos: Tensor, mirrored: Tensor, chance: torch.Generator) -> Tensor:
        """Two different masks of one cover for each picture, ``[pictures, 2]``."""
        cover = torch.randint(len(self.pairs.covers), (len(photos),), generator=chance).to(photos.device)
        luck = -torch.rand(len(photos), self.pairs.count, generator=chance).to(photos.device).log().neg().log()
        weight = torch.where(self.member[cover], self.sharpness * self.losses[photos] + luck, -torch.inf)
        pairs = weight.topk(2, dim=1).indices
        return torch.where(mirrored[:, None], self.mirror[pairs], pairs)

    def remember(self, photos: Tensor, mirrored: Tensor, pairs: Tensor, losses: Tensor) -> None:
        """How hard pairs ``[times × photos, 2]`` were; what comes later in the list is remembered later."""
        for now, loss in zip(torch.split(pairs, len(photos)), torch.split(losses, len(photos)), strict=True):
            own = torch.where(mirrored[:, None], self.mirror[now], now)
            at = photos[:, None].expand_as(own)
            self.losses[at, own] = self.KEPT * self.losses[at, own] + (1 - self.KEPT) * loss[:, None]

    def _mirror(self) -> Tensor:
        """For each mask the one of its cover that lies nearest to its mirror image."""
        centre = torch.stack([_centre(self.pairs.rows), _centre(self.pairs.columns)], dim=1)[: self.pairs.count]
        target = centre.clone()
        target[:, 1] = self.pairs.columns.shape[1] - 1 - centre[:, 1]
        found = torch.arange(self.pairs.count, device=centre.device)
        for own in self.pairs.covers:
            masks = own.to(centre.device)
            found[masks] = masks[torch.cdist(target[masks], centre[masks]).argmin(dim=1)]
        return found


def _centre(hidden: Tensor) -> Tensor:
    """The mean of the rows, or columns, that each mask hides."""
    place = torch.arange(hidden.shape[1], device=hidden.device, dtype=torch.float32)
    return (hidden * place).sum(dim=1) / hidden.sum(dim=1).clamp(min=1)
