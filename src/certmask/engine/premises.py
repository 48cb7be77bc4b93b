"""What certificates rest on, looked at before and after an engine is used: one picture, one answer, now as at first."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import inf

import numpy as np
import torch
from torch import Tensor

from certmask.classifier import Classifier
from certmask.company import rounding_of, swayed_by_company
from certmask.engine import Engine
from certmask.errors import ChangedModelError
from certmask.passes import NONE
from certmask.votes import UNIT, Margin, lead_changes


def check_company(engine: Engine, images: Sequence[Tensor]) -> None:
    """Refuse a model whose votes about masked views of these images depend on strangers in the same batch.

    And one with cells of which these images show that they see more than their field. Once for each shape of batch.
    """
    if engine.batch in engine.tried:
        return
    forward, chance = engine.forward, np.random.default_rng(0)
    with engine.alone():
        forward.warm_up()
        forward.put(np.arange(len(images)), images)
        for image in range(len(images)):
            slots = np.full(engine.batch, image)
            sets = chance.integers(NONE, len(forward.masks), (engine.batch, 2))
            own = forward.unpadded(slots, sets)[0]
            for stranger in (forward.slots, forward.slots + 1):
                away = chance.random(engine.batch) < 0.5
                mixed = np.where(away, stranger, slots), np.where(away[:, None], NONE, sets)
                stayed = torch.from_numpy(~away).to(own.device)
                told = forward.unpadded(*mixed)[0]
                change = _swayed(engine.classifier, own[stayed], told[stayed])
                if not change <= 2 * forward.tolerance:
                    raise swayed_by_company(f"a lead that changed by {change:.2g} among strangers")
        if forward.strayed(images):
            warnings.warn(
                f"{engine.classifier.name} rounds otherwise where a picture changes outside of a cell's field: certify "
                "with a measured margin (auto), not with 0",
                stacklevel=3,
            )
    engine.tried.add(engine.batch)


def _swayed(classifier: Classifier, own: Tensor, told: Tensor) -> float:
    """The most by which a lead changed; where passes give local evidence, by which one of its numbers did, if more.

    As a share of the largest of them.
    """
    change = lead_changes(classifier.summary(own), classifier.summary(told)).probability
    if not (classifier.piecewise and own.numel()):
        return change
    return max(change, 2 * float((own - told).abs().amax() / own.abs().amax().clamp(min=UNIT)))


def check_unchanged(engine: Engine, margin: Margin) -> None:
    """An error if leads on the fixed pictures differ from what they were at first, by more than the margin.

    By more than rounding in any case; by less, where the model is known to round otherwise in another place.
    """
    classifier = engine.classifier
    rounding = 2 * rounding_of(classifier.precision)
    allowed = Margin(min(margin.probability, margin.evidence, rounding), margin.logarithm, margin.evidence)
    if classifier.company:
        allowed = Margin(rounding, inf, inf)
    changed = engine.forward.fingerprint().changes(engine.fingerprint())
    if not all(change <= most for change, most in zip(changed, allowed, strict=True)):
        raise ChangedModelError(
            f"expected {classifier.name} to answer as it did at first, got a lead on a fixed picture that "
            f"changed by {max(changed):.2g}: it keeps state or was changed, and what it certified since is void"
        )
