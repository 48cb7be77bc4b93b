"""The gauntlet does not trust the geometry: it notices an engine that was sabotaged, and finds nothing in an honest one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from conftest import tiny_network
from test_attacks import COVERS, smooth_images
from torch import Tensor

from certmask.attacks import AdaptiveAttack, Descent, Job, Surrogate, defence_judge
from certmask.attacks.attempts import PLACES, SEARCHED, Budget, pick_corner, place_for
from certmask.attacks.goals import HIDDEN, TURN, TURN_ALL, WIN_DUELS, Juries, Places, masked_views
from certmask.classifier import Classifier
from certmask.covers import Cover, minimal_cover, spread_cover
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Rule
from certmask.threat import Patch

SINGLE = spread_cover(24, Patch(6, 6), 12)
ATTEMPTS = 30
"""Within so many attempts a sabotaged engine is noticed."""


def shortened(marks: Tensor, pixels: int) -> Tensor:
    """Masks along one axis, ``[masks, length]``, each piece without its last pixels."""
    for _ in range(pixels):
        marks = marks & torch.nn.functional.pad(marks[:, 1:], (0, 1))
    return marks


def engine_with(cover: Cover, short: int) -> Engine:
    """An engine that paints masks so many pixels short at the bottom and on the right."""
    engine = Engine(Classifier(tiny_network(seed=1), 24, batch=16, precision="fp32"), [cover])
    masks = engine.forward.masks
    masks.rows, masks.columns = shortened(masks.rows, short), shortened(masks.columns, short)
    return engine


def certified(engine: Engine, defence: MaskedDefence, count: int) -> tuple[Tensor, Tensor]:
    """Images and labels that this defence, sabotaged or not, has certified."""
    images = smooth_images(60)
    labels = engine.classifier(images).argmax(dim=1)
    found = {f.number: f.value[0].certified for f in examine(engine, images, labels.tolist(), [defence])}
    holds = torch.tensor([bool(found[number]) for number in range(len(images))])
    assert holds.sum() >= count
    return images[holds][:count], labels[holds][:count]


def broken_attempts(engine: Engine, defence: MaskedDefence) -> list[str]:
    """The places of those attempts that broke a certificate, as the default budget picks places for images."""
    budget, juries = Budget(), Juries(defence.cover)
    images, labels = certified(engine, defence, ATTEMPTS // (budget.locations - 1) + 1)
    planned = [(n, place_for(n, m, budget.locations)) for n in range(len(images)) for m in range(1, budget.locations)]
    numbers, places = [n for n, _ in planned[:ATTEMPTS]], [place for _, place in planned[:ATTEMPTS]]
    chance = np.random.default_rng(0)
    corners = torch.from_numpy(np.stack([pick_corner(place, juries, chance) for place in places]))
    attack = AdaptiveAttack(Surrogate(engine.classifier, engine=engine), defence, Descent(steps=20), views=8)
    job = Job(images[numbers], labels[numbers], defence.cover.patch, corners)
    decisions = attack(job, defence_judge(engine, defence)).decisions
    judged = zip(places, decisions, job.labels.tolist(), strict=True)
    return [place for place, decision, label in judged if defence.rule.guarantee.broken_by(decision, label)]


@pytest.mark.parametrize("rule", [JuryDetection(), JuryRecovery(), PatchCleanser()], ids=str)
def test_masks_painted_two_pixels_short_are_noticed(rule: Rule) -> None:
    """The same attempts break nothing where masks are painted as they should be."""
    defence = MaskedDefence(SINGLE, rule, "defence")
    assert "flush" in broken_attempts(engine_with(SINGLE, short=2), defence)
    assert broken_attempts(engine_with(SINGLE, short=0), defence) == []
