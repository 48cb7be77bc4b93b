"""The training recipe: the paper's is the default."""

from __future__ import annotations

import math
from dataclasses import dataclass

from certmask.errors import CertmaskError
from certmask.threat import Size, checked_patch, checked_size

BANDS = "bands"
CUTOUTS = ("none", "random", "greedy", BANDS)
PROVABLE = "provable"
LOSSES = ("plain", PROVABLE)
ALLOWED = {"cutout": CUTOUTS, "loss": LOSSES, "optimizer": ("sgd", "adamw"), "schedule": ("steps", "cosine")}


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, the rate divided by 10 every 5 epochs, two Cutout squares of 128 px at 224 (scaled).

    ``zoom`` is the smallest share of a side that a random window keeps (1: all of it), ``shift`` the most pixels by
    which a photo is moved, ``warm_up`` counts epochs. With ``cutout="bands"`` every picture shows one column band of
    ``band`` pixels; ``loss="provable"`` is PatchGuard's, against a ``patch``.
    """

    epochs: int = 10
    batch: int = 64
    rate: float = 0.01
    momentum: float = 0.9
    decay_every: int = 5
    decay: float = 0.1
    weight_decay: float = 0.0
    cutout: str = "random"
    squares: int = 2
    square_share: float = 128 / 224
    greedy_shares: tuple[float, ...] = (64 / 224, 96 / 224, 128 / 224)
    greedy_per_axis: int = 3
    flip: bool = True
    seed: int = 0
    optimizer: str = "sgd"
    schedule: str = "steps"
    warm_up: float = 0.0
    smoothing: float = 0.0
    zoom: float = 1.0
    shift: int = 0
    band: int | None = None
    loss: str = "plain"
    patch: Size | int | None = None

    def __post_init__(self) -> None:
        for name, known in ALLOWED.items():
            if getattr(self, name) not in known:
                raise CertmaskError(f"expected {name} to be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if min(self.epochs, self.batch, self.decay_every) < 1 or not self.rate > 0:
            raise CertmaskError(
                f"expected positive epochs, batch and rate, got {self.epochs}, {self.batch}, {self.rate}"
            )
        if not (
            0 < self.zoom <= 1 and 0 <= self.smoothing < 1 and 0 <= self.warm_up <= self.epochs and self.shift >= 0
        ):
            raise CertmaskError(
                "expected zoom in (0, 1], smoothing in [0, 1), warm-up of at most all epochs and shift of at least 0, "
                f"got {self.zoom}, {self.smoothing}, {self.warm_up} and {self.shift}"
            )
        self._check_band()
        self._check_patch()

    def _check_band(self) -> None:
        if (self.cutout == BANDS) != (self.band is not None):
            raise CertmaskError(
                f"expected a band for the cutout {BANDS}, and for no other, got {self.band} for {self.cutout}"
            )
        if self.band is not None:
            checked_size((1, self.band), "band")

    def _check_patch(self) -> None:
        if (self.loss == PROVABLE) != (self.patch is not None):
            raise CertmaskError(
                f"expected a patch for the {PROVABLE} loss, and for no other, got {self.patch} for the {self.loss} loss"
            )
        if self.patch is not None:
            checked_patch(self.patch)
            if self.cutout == BANDS:
                raise CertmaskError(f"expected the {PROVABLE} loss on pictures, got it on the cutout {BANDS}")

    def rate_at(self, epoch: float) -> float:
        """The rate after so many epochs, a fraction of one included."""
        if epoch < self.warm_up:
            return self.rate * (epoch + 1e-3) / self.warm_up
        if self.schedule == "steps":
            return self.rate * self.decay ** (int(epoch) // self.decay_every)
        done = (epoch - self.warm_up) / max(self.epochs - self.warm_up, 1e-9)
        return self.rate * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def paper_rate(architecture: str) -> float:
    """0.001 for transformers and MLPs, 0.01 for convolutional networks."""
    return 0.001 if any(word in architecture.lower() for word in ("vit", "deit", "mlp", "mixer")) else 0.01
