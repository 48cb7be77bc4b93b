"""The plain loop that peers run: one mask pair per forward pass, fp32, small batches, gradients on, no early exit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certmask.covers import Cover

BATCH = 16


def keep_table(cover: Cover, device: torch.device) -> Tensor:
    """One boolean picture per mask: True where the image stays, ``[masks, 1, height, width]``."""
    keep = torch.ones(len(cover), 1, *cover.image, dtype=torch.bool, device=device)
    for number, mask in enumerate(cover.masks):
        for top, bottom in mask.rows(cover.image):
            for left, right in mask.columns(cover.image):
                keep[number, 0, top:bottom, left:right] = False
    return keep


def two_mask_labels(model: nn.Module, images: Tensor, cover: Cover, device: torch.device) -> Tensor:
    """Predicted class of every image under every pair of masks, ``[images, masks, masks]``.

    ``images`` are normalized and on the host; a masked pixel becomes 0, which is the mean colour.
    """
    keep = keep_table(cover, device)
    count = len(cover)
    labels = torch.zeros(len(images), count, count, dtype=torch.long)
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH].to(device)
        for i in range(count):
            once = torch.where(keep[i], batch, torch.zeros_like(batch))
            for j in range(i, count):
                twice = torch.where(keep[j], once, torch.zeros_like(once))
                predicted = model(twice).argmax(dim=1).cpu()
                labels[start : start + BATCH, i, j] = predicted
                labels[start : start + BATCH, j, i] = predicted
    return labels


def certified(labels: Tensor, truth: Tensor) -> Tensor:
    """PatchCleanser's two-mask correctness, per image."""
    return (labels == truth[:, None, None]).flatten(1).all(dim=1)
