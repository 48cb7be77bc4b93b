"""Cutout: blank squares during training, so that a masked picture is nothing new to the network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from certmask.training.recipe import Recipe


def blank_square(images: Tensor, top: Tensor, left: Tensor, side: int, fill: Tensor) -> Tensor:
    """Blank one square of ``side`` pixels per image at ``top, left [n]``; it may hang over the border."""
    height, width = images.shape[2:]
    y = torch.arange(height, device=images.device)[None, :, None]
    x = torch.arange(width, device=images.device)[None, None, :]
    top, left = top[:, None, None], left[:, None, None]
    hidden = (y >= top) & (y < top + side) & (x >= left) & (x < left + side)
    return torch.where(hidden[:, None], fill, images)


def random_cutout(images: Tensor, recipe: Recipe, fill: Tensor, chance: torch.Generator) -> Tensor:
    """``squares`` squares per image, their centres anywhere in the picture."""
    height, width = images.shape[2:]
    side = max(1, round(recipe.square_share * min(height, width)))
    for _ in range(recipe.squares):
        y, x = torch.rand(2, len(images), generator=chance).to(images.device)
        images = blank_square(images, (y * height).long() - side // 2, (x * width).long() - side // 2, side, fill)
    return images


@torch.no_grad()
def greedy_cutout(
    images: Tensor, losses: Callable[[Tensor], Tensor], recipe: Recipe, fill: Tensor, chance: torch.Generator
) -> Tensor:
    """Each square where the current model's loss is highest, one after the other (after Saha et al. 2023).

    ``losses`` takes the batch once per candidate place, one copy after the other, and gives one loss per image. The
    size is drawn anew for every batch; candidates form a grid.
    """
    height, width = images.shape[2:]
    share = recipe.greedy_shares[int(torch.randint(len(recipe.greedy_shares), (1,), generator=chance))]
    side = max(1, round(share * min(height, width)))
    tops = torch.linspace(0, max(height - side, 0), recipe.greedy_per_axis).long()
    lefts = torch.linspace(0, max(width - side, 0), recipe.greedy_per_axis).long()
    places = torch.cartesian_prod(tops, lefts).to(images.device)
    for _ in range(recipe.squares):
        top, left = places.repeat_interleave(len(images), dim=0).unbind(1)
        tried = losses(blank_square(images.repeat(len(places), 1, 1, 1), top, left, side, fill))
        worst = places[tried.view(len(places), len(images)).argmax(dim=0)]
        images = blank_square(images, worst[:, 0], worst[:, 1], side, fill)
    return images
