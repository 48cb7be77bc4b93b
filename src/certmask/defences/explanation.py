"""Why a defence answers as it does, picture by picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from certmask.certificate import Certificate, class_name
from certmask.defences.masked import MaskedDefence
from certmask.defences.protocol import asked_marks, noted
from certmask.engine import Engine
from certmask.engine.premises import check_company, check_unchanged
from certmask.passes import Ask
from certmask.rules.rule import Asking
from certmask.votes import Margin, VoteStore


@dataclass(frozen=True)
class Explanation:
    """Why a defence answered as it did about one picture.

    ``votes`` has the class and the confidence of every single mask; ``claims`` the class that each hypothesis about the
    patch's place claims, ``hypotheses`` the masks that speak for it; ``duels`` counts the two-mask passes that were
    asked for to decide between them. ``certificate`` is about the answer, should the picture be clean.
    """

    label: int
    alert: bool
    passes: int
    certificate: Certificate
    votes: tuple[tuple[int, float], ...]
    hypotheses: tuple[tuple[int, ...], ...]
    claims: tuple[int, ...]
    duels: int

    def why(self, names: Sequence[str] | None = None) -> str:
        """The reason in one sentence."""
        counts = Counter(self.claims).most_common()
        said = [f"{n} {'claims' if n == 1 else 'claim'} {class_name(c, names or ())}" for c, n in counts]
        if len(said) == 1:
            return f"all {len(self.claims)} places agree"
        duels = f"; {self.duels} passes with two masks decided between them" if self.duels else ""
        return f"of {len(self.claims)} places {', '.join(said)}{duels}"


def explain(engine: Engine, images: Iterable[Tensor], defence: MaskedDefence) -> list[Explanation]:
    """Why a defence answers as it does, picture by picture, clean or attacked."""

    def program(_: list[int], store: VoteStore) -> Asking[list[Explanation]]:
        votes, asked = engine.votes(defence.cover, store), list[Ask]()
        decisions = yield from noted(defence.deciding(engine, store), asked)
        labels = np.array([decision.label for decision in decisions])
        marks = asked_marks(store, asked)
        duels = (marks & (store.passes.sizes > 1)).sum(axis=1)
        holds = yield from defence.certifying(engine, store, np.maximum(labels, 0))  # where all is silent, none does
        claims = yield from defence.rule.claims(votes)
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        heads, function = votes.heads(singles), engine.describe()
        return [
            Explanation(
                decision.label,
                decision.alert,
                int(marks[n].sum()),
                defence.certificate(decision.label, bool(holds[n]), function),
                tuple(zip(heads.labels[n].tolist(), heads.confidence[n].tolist(), strict=True)),
                tuple(defence.rule.hypotheses(defence.cover)),
                tuple(claims[n].tolist()),
                int(duels[n]),
            )
            for n, decision in enumerate(decisions)
        ]

    pictures = list(images)
    check_company(engine, pictures[:2])
    findings = sorted(engine.run(pictures, program), key=lambda finding: finding.number)
    check_unchanged(engine, Margin(defence.rule.margin, defence.rule.margin))
    return [finding.value for finding in findings]
