"""The paper's tables and figures, and more of the same form: declared, run, reported.

An experiment is one declaration and one row here; the row drives the command line, its help, the pages and the tests.
"""

from certmask.errors import CertmaskError
from certmask.experiments.experiment import Experiment
from certmask.experiments.paper_tables import PAPER_MODELS, TABLE1, TABLE1_PHOTO, TABLE2, TABLE3, TABLE4
from certmask.experiments.reaching import REACH, TWO_PATCHES
from certmask.experiments.sweeps import APPENDIX_D, FIGURE_MASK_SIZE, FIGURE_PATCH_SIZE, FOLD, PARETO
from certmask.experiments.zooming import SIZES, ZOOM

COUNTS = Experiment("counts", "Masks needed, exactly, and as the paper counts them", "beyond the paper")

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        TABLE1, TABLE1_PHOTO, TABLE2, TABLE3, TABLE4, FIGURE_MASK_SIZE, FIGURE_PATCH_SIZE, APPENDIX_D, FOLD, PARETO,
        ZOOM, SIZES, REACH, TWO_PATCHES, COUNTS,
    )
}  # fmt: skip


def chosen(name: str) -> tuple[Experiment, ...]:
    """The experiments that a name stands for."""
    if name != "all" and name not in EXPERIMENTS:
        raise CertmaskError(f"expected {', '.join(EXPERIMENTS)} or all, got {name!r}")
    return tuple(EXPERIMENTS.values()) if name == "all" else (EXPERIMENTS[name],)


__all__ = ["COUNTS", "EXPERIMENTS", "PAPER_MODELS", "Experiment", "chosen"]
