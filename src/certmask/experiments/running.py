"""Running: votes are computed once and shared by all defences of a run. Reporting is elsewhere."""

from __future__ import annotations

from pathlib import Path

from certmask.certify import Progress, certify_run
from certmask.classifier import Classifier
from certmask.data import Dataset
from certmask.defences import engine_covers
from certmask.engine import Engine
from certmask.experiments.energy import energy_counter
from certmask.experiments.meter import Meter, add_session
from certmask.experiments.plan import Run


def perform(
    run: Run, classifier: Classifier, dataset: Dataset, folder: Path, progress: Progress, margin: float, *, given: bool
) -> None:
    """Do, or continue, one run; ``given`` says that the user chose the margin, so that it may be one in logarithms."""
    path = run.path(folder)
    meter = Meter(progress, energy_counter(classifier.device))
    try:
        defences = run.defences(margin, logarithms=given)
        engine = Engine(classifier, engine_covers(defences))
        certify_run(engine, dataset.spread(run.images), defences, path, progress=meter)
    finally:
        add_session(path, meter.session())
