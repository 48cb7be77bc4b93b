"""The attack game on votes: a rule asks for passes, and an attacker answers those that the patch can influence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from certmask.certificate import Decision
from certmask.geometry import IntArray
from certmask.rules import Rule
from certmask.votes import Votes, VoteStore

CLEAN = -1
"""Answer of an attacker who leaves a vote as it was."""

Strategy = Callable[[IntArray], IntArray]
"""Given free passes ``[n, 2]``, a row of the palette for each, or ``CLEAN``."""

Turned = dict[tuple[int, int], Tensor]
"""The passes that the attacker answered, with the probabilities that came of it."""


class VoteGame:
    """Clean votes under attack in one district: a pass with a mask of its jury keeps its vote, all others are free.

    That is more than a real patch can do, so a rule that survives this game survives every patch in the district.
    ``palette`` ``[rows, classes]`` lists the outputs that the attacker chooses from.
    """

    def __init__(self, votes: Votes, rule: Rule, district: int, palette: Tensor) -> None:
        rule.check(votes.cover)
        self.votes, self.rule, self.palette = votes, rule, palette.to(votes.outputs)
        self.jury = np.array(votes.cover.districts.jury(district), dtype=np.int64)
        self.free_masks = np.setdiff1d(np.arange(len(votes.cover)), self.jury)

    def play(self, strategy: Strategy) -> tuple[Decision, Turned]:
        """What the rule decides when the attacker follows a strategy, and the votes that the attacker cast."""
        cover = self.votes.cover
        attacked = Votes(cover, VoteStore(len(cover), self.palette.shape[1], self.palette.device))
        turned: Turned = {}
        asking = self.rule.deciding(attacked)
        while True:
            try:
                asked = next(asking)
            except StopIteration as stop:
                return stop.value, turned
            new = attacked.store.missing(asked)
            if len(new):
                outputs = self._answers(new, strategy, turned)
                attacked.store.add(new, outputs)

    def _answers(self, passes: IntArray, strategy: Strategy, turned: Turned) -> Tensor:
        free = ~np.isin(passes, self.jury).any(axis=1)
        outputs = self.palette.new_empty(len(passes), self.palette.shape[1])
        outputs[torch.from_numpy(~free)] = self.votes.of(passes[~free])
        picks = strategy(passes[free])
        answers = self.palette[torch.from_numpy(picks)].clone()
        left = picks == CLEAN
        if left.any():
            answers[torch.from_numpy(left)] = self.votes.of(passes[free][left])
        outputs[torch.from_numpy(free)] = answers
        turned.update(zip(map(tuple, passes[free][~left].tolist()), answers[torch.from_numpy(~left)], strict=True))
        return outputs

    def every_play(self) -> Iterator[tuple[Decision, Turned]]:
        """All games, over every row of the palette for every free pass that the rule comes to ask for."""
        picks: list[int] = []
        while True:
            used = 0

            def strategy(passes: IntArray) -> IntArray:
                nonlocal used
                begin, used = used, used + len(passes)
                picks.extend([0] * (used - len(picks)))
                return np.array(picks[begin:used], dtype=np.int64)

            yield self.play(strategy)
            del picks[used:]
            while picks and picks[-1] == len(self.palette) - 1:
                picks.pop()
            if not picks:
                return
            picks[-1] += 1


def outputs_for(classes: Sequence[int], count: int) -> Tensor:
    """Certain answers for the given classes, then answers that lean to them as little as can be: ``[rows, count]``."""
    certain = torch.eye(count)[list(classes)]
    return torch.cat([certain, (0.01 * certain).softmax(dim=1)])
