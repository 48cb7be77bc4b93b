"""Rules that are broken on purpose, for attacks to break."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from certmask.geometry import IntArray
from certmask.rules import JuryRecovery
from certmask.rules.jury import Verdicts
from certmask.rules.levels import PoolsOf
from certmask.rules.rule import Asking, Proofs
from certmask.rules.verdicts import Pools, settled
from certmask.votes import Votes

SURE = 0.5


class TakenAtItsWord(JuryRecovery):
    """Certifies what it claims itself about the clean picture, and how it would judge every pair there."""

    def proving(self, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        opponents = self.levels(votes).opponents
        claims = yield from self.claims(votes)
        pairs = np.tile(opponents, (len(labels), 1))
        duels = yield from self.duels(votes, np.repeat(votes.everyone, len(opponents)), pairs)
        said = np.concatenate([claims, duels.reshape(len(labels), -1)], axis=1)
        return Proofs(np.asarray((said == labels[:, None]).all(axis=1)), [None] * len(labels))


class BareGate(TakenAtItsWord):
    """Unsound on purpose: the bare picture's lead, which a patch may change, says which level judges every place.

    Where the clean picture is sure, the finest level is proved right; a patch makes it unsure, and the coarsest
    decides.
    """

    def _verdicts(
        self, votes: Votes, pictures: IntArray, things: IntArray, pools_of: PoolsOf, bars: Sequence[float]
    ) -> Asking[Verdicts]:
        bare = votes.ballot.bare[None]
        yield votes.ask(bare, np.unique(pictures))
        sure = votes.heads(bare, pictures).lead[:, 0] > SURE
        found = Verdicts.empty(len(things))
        found.levels[:] = np.where(sure, len(bars), 0)
        for level, some in ((len(bars), sure), (0, ~sure)):
            if some.any():
                pools = Pools(pictures[some], pools_of(things[some], level))
                yield votes.ask(pools.passes, pools.pictures)
                found.labels[some], _, found.leads[some] = settled(self.aggregate, votes, pools)
        return found
