"""Augmentation: random windows and shifts of a training batch, on its device."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
