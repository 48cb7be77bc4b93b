"""Company: an answer about a picture must not depend on its place in a batch, its neighbours, or what came before.

An attacker controls the neighbours, which are other masked views of the attacked picture. Nobody can prove of a given
program that it is a function of one picture; this is where certmask tries hard to see that it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor

from certmask.threat import Size

ROUNDING = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3}
"""By how much of a picture's spread of logits one of them may change, where kernels sum in another order in another
place. That is what margins are for; more than this is no rounding."""


def probes(size: Size) -> Tensor:
    """Three fixed pictures ``[3, 3, height, width]``, the same on every machine: dim noise, waves of colour, white."""
    height, width = size
    chance = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 128, (3, height, width), generator=chance) / 255
    y, x = torch.arange(height)[:, None] / height, torch.arange(width)[None] / width
    waves = torch.stack([torch.sin(2 * pi * (turns * y + x + turns / 3)) for turns in (1, 2, 3)])
    return torch.stack([noise, ((waves + 1) * 127.5).round() / 255, torch.ones(3, height, width)])


def company_change(logits: Callable[[Tensor], Tensor], pictures: Tensor, batch: int) -> float:
    """The largest change of a logit, as a share of its picture's spread, that place, neighbours or time bring about.

    Every picture fills a batch alone; then each stands once in every place, among the others at random; then the first
    batch is asked again.
    """
    alone = [picture.expand(batch, -1, -1, -1) for picture in pictures]
    answers = [_numbers(logits(full)) for full in alone]
    own = torch.stack([answer[0] for answer in answers])
    spread = (own.amax(dim=1) - own.amin(dim=1)).clamp(min=torch.finfo(torch.float32).tiny)
    change = max(float(_apart(answer, own[n], spread[n])) for n, answer in enumerate(answers))
    places = torch.randint(len(pictures), (batch,), generator=torch.Generator().manual_seed(1)).to(pictures.device)
    for turn in range(len(pictures)):
        who = (places + turn) % len(pictures)
        change = max(change, float(_apart(_numbers(logits(pictures[who])), own[who], spread[who])))
    return max(change, float(_apart(_numbers(logits(alone[0])), own[0], spread[0])))


def _numbers(logits: Tensor) -> Tensor:
    """Logits in float64; what is no number is the same as itself."""
    return torch.nan_to_num(logits.double(), nan=0.0, posinf=1e30, neginf=-1e30)


def _apart(answers: Tensor, own: Tensor, spread: Tensor) -> Tensor:
    return ((answers - own).abs().amax(dim=1) / spread).amax()
