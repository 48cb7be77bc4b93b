"""All experiments by name."""

from __future__ import annotations

from certmask.errors import CertmaskError
from certmask.experiments.appendix_d import APPENDIX_D
from certmask.experiments.experiment import Experiment
from certmask.experiments.figure_mask_size import FIGURE_MASK_SIZE
from certmask.experiments.figure_patch_size import FIGURE_PATCH_SIZE
from certmask.experiments.fold import FOLD
from certmask.experiments.pareto import PARETO
from certmask.experiments.table1 import TABLE1
from certmask.experiments.table2 import TABLE2
from certmask.experiments.table3 import TABLE3
from certmask.experiments.table4 import TABLE4

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        TABLE1, TABLE2, TABLE3, TABLE4, FIGURE_MASK_SIZE, FIGURE_PATCH_SIZE, APPENDIX_D, FOLD, PARETO,
    )
}  # fmt: skip

COUNTS = "counts"
"""The one experiment that is arithmetic alone."""

PAPER_MODELS = ("resnetv2_50x1_bit.goog_distilled_in1k", "vit_base_patch16_224", "resmlp_24_224.fb_distilled_in1k")
"""ResNetV2-50, ViT-B/16 and ResMLP-S24; which of timm's checkpoints the paper took is our reading."""


def chosen(name: str) -> tuple[Experiment, ...]:
    """The experiments that a name stands for; none for ``counts``, which measures nothing."""
    if name == "all":
        return tuple(EXPERIMENTS.values())
    if name == COUNTS:
        return ()
    if name not in EXPERIMENTS:
        raise CertmaskError(f"expected {', '.join(EXPERIMENTS)}, {COUNTS} or all, got {name!r}")
    return (EXPERIMENTS[name],)
