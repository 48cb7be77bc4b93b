"""The patches of the paper: shares of the pixels, and their sides on a 224×224 input."""

from __future__ import annotations

from certmask.experiments.experiment import Threat

SIDES = {"0.4 %": 14, "1 %": 23, "2 %": 32, "2.4 %": 35, "3 %": 39}
"""1, 2 and 3 % rounded up to pixels; CIFAR-10's 0.4 and 2.4 % are 2 and 5 of its 32 pixels, enlarged sevenfold."""

MASKS = {"0.4 %": 16, "1 %": 32, "2 %": 48, "2.4 %": 56, "3 %": 56}
"""Mask sides of the paper's Table 1."""

PAPER_FOLD = (2, 3)
"""k = 3 × 2 with three masks along the x axis, as (height, width)."""


def share(label: str) -> Threat:
    return Threat(label, SIDES[label])


PHOTO_SHARES = (share("1 %"), share("2 %"), share("3 %"))
SHARES = {
    "imagenette": PHOTO_SHARES,
    "imagenet": PHOTO_SHARES,
    "cifar10": (share("0.4 %"), share("2.4 %")),
}
LARGEST = {"imagenette": (share("3 %"),), "imagenet": (share("3 %"),), "cifar10": (share("2.4 %"),)}
TWO_PERCENT = {"imagenet": (share("2 %"),)}
