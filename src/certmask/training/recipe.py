"""The training recipe: the paper's is the default."""

from __future__ import annotations

import math
from dataclasses import dataclass

from certmask.covers.zoom import Level
from certmask.errors import CertmaskError
from certmask.threat import Size, checked_patch, checked_size

BANDS = "bands"
PAIRS = "pairs"
CUTOUTS = ("none", "random", "greedy", BANDS, PAIRS)
PROVABLE = "provable"
LOSSES = ("plain", PROVABLE)
FILLS = ("mean", "random")
ALLOWED = {
    "cutout": CUTOUTS, "loss": LOSSES, "fill": FILLS, "optimizer": ("sgd", "adamw"), "schedule": ("steps", "cosine"),
}  # fmt: skip
LEARNING = 3
"""What a view that is learnt costs, in passes: one forward, and one backward that counts as two."""


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum, the rate divided by 10 every 5 epochs, two Cutout squares of 128 px at 224 (scaled).

    ``zoom`` is the smallest share of a side that a random window keeps (1: all of it), ``shift`` the most pixels by
    which a photo is moved, ``colour`` how far its colours are changed, ``warm_up`` counts epochs. With
    ``cutout="bands"`` every picture shows one column band of ``band`` pixels; ``loss="provable"`` is PatchGuard's,
    against a ``patch``.

    With ``cutout="pairs"`` two masks of the deployed covers against a ``patch`` are hidden: PatchCleanser's 6×6, and
    those of zoom's ``levels``. ``views`` of a picture are learnt in one batch, the ``whole`` picture beside them if so
    wished; for each view the worst of so many ``tries`` is taken, all of ``one_cover`` if so wished (else large masks,
    which are worse, leave small ones unlearnt); masks that were hard for this photo before are drawn more often the
    larger ``recall`` is. ``agreement`` is how much of a view's target is the answer about the whole
    picture. ``average`` is the decay of a running average of the weights, which then gives these answers and is what
    is kept; 0 is none. ``fill="random"`` paints masks in any colour, not in that of deployment.

    ``taught`` is how much of every target is the answer of teachers, other networks, about the same view.
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
    levels: tuple[Level, ...] = ()
    views: int = 1
    whole: bool = False
    tries: int = 1
    recall: float = 0.0
    agreement: float = 0.0
    average: float = 0.0
    colour: float = 0.0
    fill: str = "mean"
    one_cover: bool = False
    taught: float = 0.0

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
        self._check_views()

    def _check_band(self) -> None:
        if (self.cutout == BANDS) != (self.band is not None):
            raise CertmaskError(
                f"expected a band for the cutout {BANDS}, and for no other, got {self.band} for {self.cutout}"
            )
        if self.band is not None:
            checked_size((1, self.band), "band")

    def _check_patch(self) -> None:
        if (self.loss == PROVABLE or self.cutout == PAIRS) != (self.patch is not None):
            raise CertmaskError(
                f"expected a patch for the {PROVABLE} loss and for {PAIRS}, and for nothing else, got {self.patch} for "
                f"the {self.loss} loss and the cutout {self.cutout}"
            )
        if self.patch is not None:
            checked_patch(self.patch)
        if self.loss == PROVABLE and self.cutout in (BANDS, PAIRS):
            raise CertmaskError(f"expected the {PROVABLE} loss on pictures, got it on the cutout {self.cutout}")

    def _check_views(self) -> None:
        """What only pairs of masks have is not asked of anything else."""
        if min(self.views, self.tries) < 1 or self.recall < 0 or self.colour < 0:
            raise CertmaskError(
                "expected at least one view and one try, recall and colour of at least 0, "
                f"got {self.views}, {self.tries}, {self.recall} and {self.colour}"
            )
        if not (0 <= self.agreement <= 1 and 0 <= self.taught <= 1 and 0 <= self.average < 1):
            raise CertmaskError(
                "expected agreement and what is taught in [0, 1] and average in [0, 1), "
                f"got {self.agreement}, {self.taught} and {self.average}"
            )
        if self.taught and self.loss == PROVABLE:
            raise CertmaskError(f"expected no teachers for the {PROVABLE} loss, got {self.taught} of the target taught")
        plain = (self.levels, self.views, self.whole, self.tries, self.recall, self.agreement, self.fill)
        if self.cutout != PAIRS and plain != ((), 1, False, 1, 0.0, 0.0, "mean"):
            raise CertmaskError(
                "expected levels, views, the whole picture, tries, recall, agreement and fill for the cutout "
                f"{PAIRS} alone, got some for {self.cutout}"
            )
        if self.one_cover and (self.tries == 1 or self.recall > 0):
            raise CertmaskError(
                "expected several tries, and no recall, where they are of one cover, "
                f"got {self.tries} and recall {self.recall}"
            )
        if self.agreement > 0 and not (self.whole or self.average > 0):
            raise CertmaskError("expected the whole picture or an average beside agreement, got neither")

    @property
    def shown(self) -> int:
        """Views of a photo that are learnt in one epoch."""
        return self.views + self.whole

    @property
    def passes(self) -> int:
        """What a photo costs in one epoch, in forward passes of the network; a backward pass counts as two."""
        searched = self.views * self.tries if self.tries > 1 else 0
        if self.cutout == "greedy":
            searched = self.squares * self.greedy_per_axis**2
        asked = self.agreement > 0 and self.average > 0
        return searched + LEARNING * self.shown + asked

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
