"""What a trained model certifies: one mask and two masks, on held-out photos."""

from __future__ import annotations

from typing import Any

from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover
from certmask.data import Dataset
from certmask.engine import Engine
from certmask.evaluation import Scheme, examine
from certmask.geometry import Patch
from certmask.rules import JuryDetection, PatchCleanser, Undefended

PER_AXIS = 6


def certified_figures(classifier: Classifier, dataset: Dataset, patch: Patch) -> dict[str, Any]:
    """Clean, one-mask (detection) and two-mask (recovery) certified accuracy with PatchCleanser's 6×6 masks."""
    cover = patchcleanser_cover(classifier.size, patch, PER_AXIS)
    schemes = [Scheme(cover, Undefended()), Scheme(cover, JuryDetection()), Scheme(cover, PatchCleanser())]
    labels = [sample.label for sample in dataset.samples]
    engine = Engine(classifier, [cover])
    found = [(labels[f.number], f.value) for f in examine(engine, dataset.tensors(classifier.size), labels, schemes)]
    return {
        "images": len(found),
        "data": dataset.describe(),
        "patch": list(patch.size),
        "mask": list(cover.mask),
        "precision": classifier.precision,
        "clean_accuracy": sum(bare.right(label) for label, (bare, _, _) in found) / len(found),
        "certified_detection_one_mask": sum(bool(one.certified) for _, (_, one, _) in found) / len(found),
        "certified_recovery_two_masks": sum(bool(two.certified) for _, (_, _, two) in found) / len(found),
    }
