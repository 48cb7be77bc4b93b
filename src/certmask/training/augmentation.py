"""What a training batch goes through, on its device: random windows, shifts, and Cutout.

Cutout blanks squares, or all but a band, so that a masked picture is nothing new to the network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from certmask.training.recipe import Recipe


def random_window(images: Tensor, smallest: float, chance: torch.Generator) -> Tensor:
    """One square of ``smallest`` to 1 times the side per image, anywhere inside it, stretched to the full size."""
    side, right, down = torch.rand(3, len(images), generator=chance)
    side = smallest + (1 - smallest) * side
    shift = torch.stack([(2 * right - 1) * (1 - side), (2 * down - 1) * (1 - side)], dim=1)
    window = torch.cat([torch.diag_embed(side[:, None].expand(-1, 2)), shift[:, :, None]], dim=2)
    grid = nn.functional.affine_grid(window.to(images.device), list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def random_shift(images: Tensor, most: int, chance: torch.Generator) -> Tensor:
    """Each image moved by up to ``most`` whole pixels along both axes; what comes in mirrors the border."""
    height, width = images.shape[2:]
    padded = nn.functional.pad(images, (most,) * 4, mode="reflect")
    down, right = torch.randint(2 * most + 1, (2, len(images), 1), generator=chance).to(images.device)
    rows = (down + torch.arange(height, device=images.device))[:, None, :, None]
    columns = (right + torch.arange(width, device=images.device))[:, None, None, :]
    each = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[each, channel, rows, columns]


def random_colours(images: Tensor, most: float, chance: torch.Generator) -> Tensor:
    """Brightness, contrast and saturation of each image changed by a factor of ``1 ± most`` at most."""
    bright, sharp, vivid = 1 + most * (2 * torch.rand(3, len(images), 1, 1, 1, generator=chance) - 1).to(images.device)
    images = images * bright
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    images = middle + sharp * (images - middle)
    grey = images.mean(dim=1, keepdim=True)
    changed: Tensor = (grey + vivid * (images - grey)).clamp(0, 1)
    return changed


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


def random_band(images: Tensor, band: int, fill: Tensor, chance: torch.Generator) -> Tensor:
    """All but one column band of each image blanked, wherever it is; a band goes on at the opposite border."""
    width = images.shape[3]
    left = torch.randint(width, (len(images), 1), generator=chance).to(images.device)
    shown = (torch.arange(width, device=images.device) - left) % width < band
    return torch.where(shown[:, None, None], images, fill)


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
