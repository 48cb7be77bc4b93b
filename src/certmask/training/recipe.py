"""The training recipe: the paper's is the default."""

from __future__ import annotations

from dataclasses import dataclass

from certmask.errors import CertmaskError

CUTOUTS = ("none", "random", "greedy")


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, the rate divided by 10 every 5 epochs, two Cutout squares of 128 px at 224 (scaled)."""

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

    def __post_init__(self) -> None:
        if self.cutout not in CUTOUTS:
            raise CertmaskError(f"expected cutout to be one of {', '.join(CUTOUTS)}, got {self.cutout!r}")
        if min(self.epochs, self.batch, self.decay_every) < 1 or not self.rate > 0:
            raise CertmaskError(
                f"expected positive epochs, batch and rate, got {self.epochs}, {self.batch}, {self.rate}"
            )


def paper_rate(architecture: str) -> float:
    """0.001 for transformers and MLPs, 0.01 for convolutional networks."""
    return 0.001 if any(word in architecture.lower() for word in ("vit", "deit", "mlp", "mixer")) else 0.01
