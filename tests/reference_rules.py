"""Every rule once more, in plain Python and from the definitions: slow, exact where numbers allow, no torch, no arrays.

A table maps a pass ``(i, j)`` with ``i <= j`` to its class probabilities; ``(i, i)`` is the single mask ``i`` and
``(-1, -1)`` the image without a mask. A decision is ``(class, alert)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import fsum, log

Row = Sequence[float]
Rows = Sequence[Row]
Table = Mapping[tuple[int, int], Row]
Juries = Sequence[Sequence[int]]
Decision = tuple[int, bool]


def vote(table: Table, i: int, j: int) -> Row:
    """The output under masks ``i`` and ``j`` together."""
    return table[min(i, j), max(i, j)]


def first_class(scores: Sequence[float | Fraction]) -> int:
    """The class with the highest score; the smallest of several."""
    return min(c for c, score in enumerate(scores) if score == max(scores))


def ahead(scores: Sequence[float | Fraction], label: int) -> float | Fraction:
    """How far the label is ahead of the best other class."""
    return scores[label] - max(score for c, score in enumerate(scores) if c != label)


def most_frequent(labels: Iterable[int]) -> int:
    """The label that occurs most often; the smallest of several."""
    counts = Counter(labels)
    return min(c for c in counts if counts[c] == max(counts.values()))


# ------------------------------------------------------------------------------------------------- aggregates


class MeanProbability:
    """Exact means, as fractions."""

    def verdict(self, rows: Rows) -> int:
        return first_class(self.scores(rows))

    def wins(self, rows: Rows, label: int, margin: float) -> bool:
        return ahead(self.scores(rows), label) > margin

    def scores(self, rows: Rows) -> Sequence[float | Fraction]:
        return [sum((Fraction(p) for p in column), Fraction(0)) / len(rows) for column in zip(*rows, strict=True)]


class MeanLogProbability(MeanProbability):
    """Means of logarithms, correctly rounded sums; probabilities below 1e-30 count as 1e-30."""

    def scores(self, rows: Rows) -> Sequence[float | Fraction]:
        return [fsum(log(max(p, 1e-30)) for p in column) / len(rows) for column in zip(*rows, strict=True)]


class LabelMajority:
    """Every output has one vote; with a margin, an output that is not sure by more than it may vote for any rival."""

    def verdict(self, rows: Rows) -> int:
        return most_frequent(first_class(row) for row in rows)

    def wins(self, rows: Rows, label: int, margin: float) -> bool:
        sure = Counter(first_class(row) for row in rows if ahead(row, first_class(row)) > margin)
        unsure = len(rows) - sum(sure.values())
        return all(sure[label] > sure[rival] + unsure for rival in range(len(rows[0])) if rival != label)


Aggregate = MeanProbability | LabelMajority
AGGREGATES: dict[str, Aggregate] = {
    "mean probability": MeanProbability(),
    "mean log-probability": MeanLogProbability(),
    "label majority": LabelMajority(),
}


# ------------------------------------------------------------------------------------------------- one round


def undefended(table: Table) -> Decision:
    """The class of the bare image."""
    return first_class(table[-1, -1]), False


def published(masks: int, table: Table, copies: Sequence[int], k: int) -> Decision:
    """All agree; or one class has exactly k of the placed masks; or the majority of the placed masks."""
    cast = [first_class(table[i, i]) for i in range(masks) for _ in range(copies[i])]
    counts = Counter(cast)
    if len(counts) == 1:
        return cast[0], False
    exactly_k = [c for c in counts if counts[c] == k]
    return (min(exactly_k) if exactly_k else most_frequent(cast)), False


def published_test(masks: int, table: Table, label: int, margin: float) -> bool:
    """Every mask votes for the label."""
    return all(ahead(table[i, i], label) > margin for i in range(masks))


def jury_detection(juries: Juries, table: Table, aggregate: Aggregate) -> Decision:
    """The class that all districts name; an alert if they do not agree."""
    verdicts = [aggregate.verdict([table[i, i] for i in jury]) for jury in juries]
    return most_frequent(verdicts), len(set(verdicts)) > 1


def jury_detection_certifies(juries: Juries, table: Table, aggregate: Aggregate, label: int, margin: float) -> bool:
    """Every district's verdict is the label."""
    return all(aggregate.wins([table[i, i] for i in jury], label, margin) for jury in juries)


def minority_reports(masks: int, table: Table, copies: Sequence[int], threshold: float) -> Decision:
    """The majority of the placed masks; an alert if a mask disagrees with a confidence above the threshold."""
    labels = [first_class(table[i, i]) for i in range(masks)]
    answer = most_frequent(labels[i] for i in range(masks) for _ in range(copies[i]))
    return answer, any(labels[i] != answer and max(table[i, i]) > threshold for i in range(masks))


def minority_reports_certifies(juries: Juries, table: Table, threshold: float, label: int, margin: float) -> bool:
    """Each jury has a mask that names the label with a confidence above the threshold."""
    return all(
        any(ahead(table[i, i], label) > margin and table[i, i][label] > threshold + margin for i in jury)
        for jury in juries
    )


# ------------------------------------------------------------------------------------------------- two rounds


def tournament(claims: Sequence[int], duel: Callable[[int, int], int]) -> Decision:
    """Hypotheses that disagree duel until the survivors agree; if none survives, the majority with an alert.

    A survivors' claim that is not the majority's is answered only if one of them is unbeaten by every other claim.

    The first hypothesis of the rarest claim fights the first 1, 2, 4, … others, from 1 again after it has lost.
    """
    alive, size = set(range(len(claims))), 1
    while len({claims[t] for t in alive}) > 1:
        counts = Counter(claims[t] for t in alive)
        claim = min(counts, key=lambda c: (counts[c], c))
        champion = min(t for t in alive if claims[t] == claim)
        rivals = sorted(t for t in alive if claims[t] != claim)[:size]
        outcomes = [duel(champion, rival) for rival in rivals]
        alive -= {rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome != claims[rival]}
        size *= 2
        if any(outcome != claim for outcome in outcomes):
            alive.remove(champion)
            size = 1
    favourite = most_frequent(claims)
    if not alive:
        return favourite, True
    claim = claims[min(alive)]
    rivals = [u for u in range(len(claims)) if claims[u] != claim]
    unbeaten = any(all(duel(t, u) == claim for u in rivals) for t in alive)
    return (claim if unbeaten else favourite), False


def common(table: Table, one: Sequence[int], other: Sequence[int], grids: Juries | None) -> list[Row]:
    """The outputs with one mask of each jury: of any masks, or of masks of one grid."""
    groups = [range(max(*one, *other) + 1)] if grids is None else grids
    return [vote(table, i, j) for grid in groups for i in one if i in grid for j in other if j in grid]


def jury_recovery(juries: Juries, table: Table, aggregate: Aggregate, grids: Juries | None) -> Decision:
    """Districts claim their juries' verdicts and duel by the verdict of both juries together."""
    claims = [aggregate.verdict([table[i, i] for i in jury]) for jury in juries]
    return tournament(claims, lambda t, u: aggregate.verdict(common(table, juries[t], juries[u], grids)))


def jury_recovery_certifies(
    juries: Juries, table: Table, aggregate: Aggregate, grids: Juries | None, label: int, margin: float
) -> bool:
    """Every district's and every pair of districts' verdict is the label."""
    return jury_detection_certifies(juries, table, aggregate, label, margin) and all(
        aggregate.wins(common(table, one, other, grids), label, margin)
        for t, one in enumerate(juries)
        for other in juries[:t]
    )


def patchcleanser(masks: int, table: Table, challenger: bool) -> Decision:
    """Double masking: a minority mask wins if every second mask agrees with it; or masks duel as challengers."""
    labels = [first_class(table[i, i]) for i in range(masks)]
    if challenger:
        return tournament(labels, lambda i, j: first_class(vote(table, i, j)))
    answer = most_frequent(labels)
    for i, label in enumerate(labels):
        if label != answer and all(first_class(vote(table, i, j)) == label for j in range(masks)):
            return label, False
    return answer, False


def two_mask_correct(masks: int, table: Table, label: int, margin: float) -> bool:
    """Every mask and every pair of masks votes for the label."""
    return all(ahead(table[i, j], label) > margin for j in range(masks) for i in range(j + 1))
