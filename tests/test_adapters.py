"""A defence as foolbox and ART call a model; both libraries' real attacks run in examples/black_box.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import certmask as cm

COVER = cm.patchcleanser_cover(24, 5, 2)


def brightest(images: Tensor) -> Tensor:
    """Names the channel with the brightest pixel."""
    return 20 * images.amax(dim=(2, 3))


def reddish() -> Tensor:
    picture = torch.full((3, 24, 24), 0.2)
    picture[0] = 0.5
    return picture


def test_scores_are_the_defences_own_answers(images: Tensor) -> None:
    shield = cm.Defence(brightest, COVER, "jury-detection", batch=8)
    box, answer = cm.BlackBox(shield), shield(images)
    assert (box.shape, box.classes, box.alert, box.training) == ((3, 24, 24), 4, 3, False)
    scores = box(images)
    assert torch.equal(scores.sum(dim=1), torch.ones(len(images)))
    assert torch.equal(scores.argmax(dim=1), torch.where(answer.alerts, 3, answer.labels))
    assert answer.alerts.any()
    assert np.array_equal(box.predict(images.double().numpy()), scores.numpy())


def test_an_alert_fools_nobody() -> None:
    green = reddish()
    green[1, 2:7, 2:7] = 1
    attacked, truth = green[None], torch.tensor([0])
    for rule, fooled in (("undefended", True), ("jury-detection", False), ("jury-recovery", False)):
        box = cm.BlackBox(cm.Defence(brightest, COVER, rule, batch=8))
        assert box.fooled(attacked, truth).tolist() == [fooled]


def test_patches_are_put_on_the_picture_and_nowhere_else() -> None:
    box = cm.BlackBox(cm.Defence(brightest, COVER, "undefended", batch=8), reddish(), corner=(4, 7))
    patches = torch.rand(3, 3, 5, 5) * 3 - 1  # as attacks overshoot; a camera sees what lies in [0, 1]
    seen = box.pictures(patches)
    assert box.shape == (3, 5, 5)
    assert torch.equal(seen[:, :, 4:9, 7:12], patches.clamp(0, 1))
    seen[:, :, 4:9, 7:12] = reddish()[:, :5, :5]
    assert torch.equal(seen, reddish().expand_as(seen))


def test_a_black_box_search_beats_the_network_and_not_its_defence() -> None:
    """As a decision-based attack does: noise, and the bisection of what changed the answer; only scores are seen."""
    chance, truth = torch.Generator().manual_seed(0), torch.tensor([0])
    grey, tried = torch.full((1, 3, 5, 5), 0.4), torch.rand(8, 3, 5, 5, generator=chance)
    shields = {rule: cm.Defence(brightest, COVER, rule, batch=8) for rule in ("undefended", "jury-recovery")}
    assert shields["jury-recovery"].certify(reddish()[None], truth).certificates[0].holds
    for rule, shield in shields.items():
        box = cm.BlackBox(shield, reddish(), corner=(0, 19))
        wrong = tried[box(tried).argmax(dim=1) != 0]
        assert bool(len(wrong)) == (rule == "undefended")
        if len(wrong):
            near = min(
                (0.5 + 0.1 * n for n in range(6)), key=lambda w: (not box.fooled(grey.lerp(wrong[:1], w), truth), w)
            )
            assert box.fooled(grey.lerp(wrong[:1], near), truth).all()


def test_wrong_inputs_are_told() -> None:
    shield = cm.Defence(brightest, COVER, batch=8)
    with pytest.raises(cm.CertmaskError, match=r"expected inputs of shape \[n, 3, 24, 24\], got \[1, 3, 5, 5\]"):
        cm.BlackBox(shield)(torch.zeros(1, 3, 5, 5))
    with pytest.raises(cm.CertmaskError, match="wholly inside 24×24, got corners outside"):
        cm.BlackBox(shield, reddish(), corner=(20, 0))
    with pytest.raises(cm.CertmaskError, match="expected images of shape"):
        cm.BlackBox(shield, reddish()[:, :20])
