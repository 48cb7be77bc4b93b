"""The paper's tables and figures, and more of the same form: declared, run, reported."""

from certmask.experiments.catalogue import COUNTS, EXPERIMENTS, PAPER_MODELS, chosen
from certmask.experiments.experiment import Case, Comparison, Experiment, Plot, Reported, Threat

__all__ = [
    "COUNTS",
    "EXPERIMENTS",
    "PAPER_MODELS",
    "Case",
    "Comparison",
    "Experiment",
    "Plot",
    "Reported",
    "Threat",
    "chosen",
]
