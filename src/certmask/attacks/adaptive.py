"""The gradient patch attack on a whole defence: through the masks that do not cover the patch, and their pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from certmask.attacks.descent import Descent
from certmask.attacks.goals import Goal, goals_against
from certmask.attacks.juries import Juries
from certmask.attacks.patch_attack import PatchAttack
from certmask.attacks.surrogate import Surrogate
from certmask.attacks.views import Views, bare_views, masked_views
from certmask.defences import MaskedDefence
from certmask.errors import AttackError


class AdaptiveAttack(PatchAttack):
    """Knows the defence: masks, rule, and what beats the rule. Image ``i`` is attacked for ``goals[i]``, in turn.

    Every step looks at ``views`` random masked copies of each picture, never at one that hides the whole patch.
    """

    def __init__(
        self,
        surrogate: Surrogate,
        defence: MaskedDefence,
        descent: Descent | None = None,
        *,
        goals: Sequence[Goal] | None = None,
        views: int = 16,
        restarts: int = 1,
        ranks: Sequence[int] = (0,),
        at_once: int = 32,
    ) -> None:
        goals = goals_against(defence.rule) if goals is None else goals
        super().__init__(surrogate, descent, restarts=restarts, ranks=ranks, goals=goals, at_once=at_once)
        if views < 1:
            raise AttackError(f"expected at least 1 view per step, got {views}")
        if len({goal.bare for goal in self.goals}) > 1:
            raise AttackError("expected goals that all look through masks, or all at the bare picture, got both")
        self.defence, self.view_count = defence, views
        self._juries = Juries(defence.cover)
        self._numbers = surrogate.numbers(defence.cover)

    def views(self, corners: Tensor, numbers: Sequence[int], seed: int) -> Views:
        if self.goals[0].bare:
            return bare_views(len(corners), self.surrogate.device)
        where, goals = corners.cpu().numpy(), [self.goal(number) for number in numbers]
        wishes = np.zeros((len(where), len(self.defence.cover)), dtype=np.int8)
        for goal in set(goals):
            rows = np.array([goal is other for other in goals])
            wishes[rows] = goal.wish(self._juries, where[rows], np.random.default_rng(seed))
        aligned = getattr(self.defence.rule, "pairs", "all") == "aligned"
        paired = [goal.pairs for goal in goals]
        return masked_views(
            self.defence.cover, self._numbers, wishes, paired, self.view_count, aligned, self.surrogate.device
        )
