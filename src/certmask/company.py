"""Company: an answer about a picture must not depend on its place in a batch, its neighbours, or what came before.

An attacker controls the neighbours, which are other masked views of the attacked picture. Nobody can prove of a given
program that it is a function of one picture; this is where certmask tries hard to see that it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import expm1, log, nan, pi

import torch
from torch import Tensor

from certmask.errors import ClassifierError
from certmask.threat import Size

ROUNDING = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3}
"""By how much of the scale of a picture's logits one of them may change, where kernels sum in another order in another
place. That is what margins are for; more than this is no rounding."""
SAME = 1e-3
"""By how much of itself a probability may change in a later batch if it did not change at all when it was tried."""
REACH = 24 * log(2)
"""A class further behind in logits has no vote."""
NO_NUMBER = 1e30


def probes(size: Size) -> Tensor:
    """Three pictures ``[3, 3, height, width]``, the same on every machine: dim noise, waves of colour, bright noise."""
    height, width = size
    chance = torch.Generator().manual_seed(0)
    dim, bright = (torch.randint(*ends, (3, height, width), generator=chance) / 255 for ends in ((0, 128), (192, 256)))
    y, x = torch.arange(height)[:, None] / height, torch.arange(width)[None] / width
    waves = torch.stack([torch.sin(2 * pi * (turns * y + x + turns / 3)) for turns in (1, 2, 3)])
    return torch.stack([dim, ((waves + 1) * 127.5).round() / 255, bright])


def company_change(logits: Callable[[Tensor], Tensor], pictures: Tensor, batch: int) -> float:
    """The largest change of a logit, as a share of its scale, that place, neighbours or time bring about.

    Every picture fills a batch alone; then each stands once in every place, in an order that each place has for itself;
    then once more at random; then the first batch is asked again. NaN where the model gives no numbers at all.
    """
    alone = [picture.expand(batch, -1, -1, -1) for picture in pictures]
    answers = [logits(full) for full in alone]
    own = torch.stack([answer[0] for answer in answers])
    if not own.isfinite().any():
        return nan
    change = max(_apart(answer, own[n].expand_as(answer)) for n, answer in enumerate(answers))
    chance = torch.Generator().manual_seed(1)
    orders = torch.rand(batch, len(pictures), generator=chance).argsort(dim=1)
    for who in torch.cat([orders.T, torch.randint(len(pictures), (1, batch), generator=chance)]).to(pictures.device):
        change = max(change, _apart(logits(pictures[who]), own[who]))
    return max(change, _apart(logits(alone[0]), own[0].expand_as(answers[0])))


def swayed_by_company(got: str) -> ClassifierError:
    """What to raise where an answer was seen to depend on company."""
    return ClassifierError(
        "expected a model whose answer for an image does not depend on the rest of its batch, on chance or on earlier "
        f"images, got {got}"
    )


def rounding_of(precision: str) -> float:
    """By how much of itself a probability may change where logits of up to 30 change by what rounding allows."""
    return expm1(2 * 30 * ROUNDING[precision])


def _apart(answers: Tensor, own: Tensor) -> float:
    """How far logits ``[n, classes]`` are from their own, at most: by the scale of all classes, and of the likely ones.

    The former tells where one class is so far ahead that no probability moves; the latter where one is far behind.
    """
    answers, own = _numbers(answers), _numbers(own)
    finite = own.abs() < NO_NUMBER
    likely = finite & (own >= torch.where(finite, own, -NO_NUMBER).amax(dim=1, keepdim=True) - REACH)
    change = (answers - own).abs()
    shares = [(torch.where(some, change, 0.0) / _scale(own, some)).amax() for some in (finite, likely)]
    odd = torch.where(finite, 0.0, change).amax()
    return float(torch.stack([*shares, odd]).amax())


def _scale(own: Tensor, some: Tensor) -> Tensor:
    """The largest of some logits by amount, or their spread if that is larger, ``[n, 1]``."""
    high, low = torch.where(some, own, -torch.inf).amax(dim=1), torch.where(some, own, torch.inf).amin(dim=1)
    scale = torch.stack([high.abs(), low.abs(), high - low]).amax(dim=0)
    return torch.nan_to_num(scale, posinf=1.0).clamp(min=torch.finfo(torch.float32).tiny)[:, None]


def _numbers(logits: Tensor) -> Tensor:
    """Logits in float64; what is no number is the same as itself."""
    return torch.nan_to_num(logits.double(), nan=2 * NO_NUMBER, posinf=NO_NUMBER, neginf=-NO_NUMBER)
