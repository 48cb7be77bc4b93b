"""The exam: what a trained model certifies with one mask and with two, on held-out photos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certmask.backends.devices import device_name
from certmask.certify import certify_run, photo_margin
from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover
from certmask.data import Dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, PatchCleanser, Undefended
from certmask.threat import Patch

PER_AXIS = 6
CLEAN, ONE, TWO = "undefended", "jury-detection", "patchcleanser"


@dataclass(frozen=True)
class Exam:
    """A patch, on so many held-out photos, in one precision."""

    patch: Patch
    images: int = 500
    precision: str = "auto"


def card_metrics(classifier: Classifier, dataset: Dataset, patch: Patch, path: Path) -> dict[str, Any]:
    """Clean, one-mask (detection) and two-mask (recovery) certified accuracy with PatchCleanser's 6×6 masks.

    The rows at ``path`` are those of ``certmask certify --tiling patchcleanser`` with the same three rules.
    """
    cover = patchcleanser_cover(classifier.size, patch, PER_AXIS)
    engine = Engine(classifier, [cover])
    margin = photo_margin(engine, dataset)
    rules = {CLEAN: Undefended(), ONE: JuryDetection(margin=margin), TWO: PatchCleanser(margin=margin)}
    defences = [MaskedDefence(cover, rule, name) for name, rule in rules.items()]
    path.unlink(missing_ok=True)
    certify_run(engine, dataset, defences, path)
    found = {line.defence: line for line in figures(read_run(path))}
    return {
        "images": found[CLEAN].images,
        "data": dataset.describe(),
        "patch": list(patch.size),
        "mask": list(cover.mask),
        "margin": margin,
        "precision": classifier.precision,
        "compiled": classifier.compiled,
        "batch": classifier.batch,
        "device": device_name(classifier.device),
        "clean_accuracy": found[CLEAN].clean.value,
        "certified_detection_one_mask": _certified(found[ONE]),
        "certified_recovery_two_masks": _certified(found[TWO]),
    }


def _certified(found: Figures) -> float | None:
    return found.certified.value if found.certified else None
