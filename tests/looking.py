"""What an engine says about images under given sets of masks: what many tests ask for."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from certmask.covers import Cover
from certmask.engine import Engine
from certmask.geometry import IntArray
from certmask.passes import Ask
from certmask.rules.rule import Asking
from certmask.votes import VoteStore


def singles_of(cover: Cover) -> IntArray:
    """Every mask alone, ``[masks, 1]``."""
    return np.arange(len(cover))[:, None]


def outputs_under(engine: Engine, cover: Cover, images: Tensor, sets: list[IntArray]) -> list[Tensor]:
    """The probabilities of each image under its own sets of the cover's masks, all images in work together."""

    def program(numbers: list[int], store: VoteStore) -> Asking[list[Tensor]]:
        votes = engine.votes(cover, store)
        asks = []
        for place, number in enumerate(numbers):
            passes = votes.ballot.numbers(sets[number])
            asks.append(Ask(np.full(len(passes), place), passes))
        yield Ask.joined(asks)
        return [votes.of(sets[number], place) for place, number in enumerate(numbers)]

    findings = sorted(engine.run(images, program), key=lambda finding: finding.number)
    assert len(findings) == len(images)
    return [finding.value for finding in findings]
