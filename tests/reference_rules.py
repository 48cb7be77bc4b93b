"""Every rule once more, in plain Python and from the definitions: slow, exact where numbers allow, no torch, no arrays.

A table maps a pass ``(i, j)`` with ``i <= j`` to its class probabilities; ``(i, i)`` is the single mask ``i`` and
``(-1, -1)`` the image without a mask. A row of zeros is a silent vote. A decision is ``(class, alert)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import fsum, inf, log
from typing import NamedTuple

Row = Sequence[float]
Rows = Sequence[Row]
Table = Mapping[tuple[int, int], Row]
Juries = Sequence[Sequence[int]]
Decision = tuple[int, bool]
Number = float | Fraction

NOBODY = -1
"""The class that silence names."""


def vote(table: Table, i: int, j: int) -> Row:
    """The output under masks ``i`` and ``j`` together."""
    return table[min(i, j), max(i, j)]


def first_class(scores: Sequence[Number]) -> int:
    """The class with the highest score; the smallest of several, and nobody where all are silent."""
    return min(c for c, score in enumerate(scores) if score == max(scores)) if any(scores) else NOBODY


def ahead(scores: Sequence[Number], label: int) -> Number:
    """How far the label is ahead of the best other class."""
    return scores[label] - max(score for c, score in enumerate(scores) if c != label)


def most_frequent(labels: Iterable[int]) -> int:
    """The label that occurs most often; the smallest of several, and nobody only where nobody speaks."""
    counts = Counter(label for label in labels if label != NOBODY)
    return min((c for c in counts if counts[c] == max(counts.values())), default=NOBODY)


# ------------------------------------------------------------------------------------------------- aggregates


class Verdict(NamedTuple):
    """The class of a pool and what its lead, on average over the votes, may be: nothing else is possible."""

    label: int
    low: Number
    high: Number


class MeanProbability:
    """Exact means, as fractions."""

    def scores(self, rows: Rows) -> Sequence[Number]:
        return [sum((Fraction(p) for p in column), Fraction(0)) / len(rows) for column in zip(*rows, strict=True)]

    def verdict(self, rows: Rows, margin: float = 0.0) -> Verdict:
        if not any(map(any, rows)):
            return Verdict(NOBODY, -margin, margin)
        scores = self.scores(rows)
        label = min(c for c, score in enumerate(scores) if score == max(scores))
        lead = ahead(scores, label)
        return Verdict(label, lead - Fraction(margin), lead + Fraction(margin))

    def decided(self, rows: Rows) -> Verdict:
        """As votes are."""
        return self.verdict(rows)


class MeanLogProbability(MeanProbability):
    """Means of logarithms, correctly rounded sums; less than 2⁻²⁴ counts as that, and silence for no class."""

    def scores(self, rows: Rows) -> Sequence[Number]:
        spoken = [[log(max(p, 2.0**-24)) for p in row] if any(row) else [0.0] * len(row) for row in rows]
        return [fsum(column) / len(rows) for column in zip(*spoken, strict=True)]

    def verdict(self, rows: Rows, margin: float = 0.0) -> Verdict:
        label, low, high = super().verdict(rows)
        band = margin + 2.0**-29  # what rounding adds to noise
        return Verdict(label, float(low) - band, float(high) + band)

    def decided(self, rows: Rows) -> Verdict:
        return super().verdict(rows)


class LabelMajority(MeanProbability):
    """Every output has one vote; with a margin, an output that is not sure by more than it may vote for anyone."""

    def verdict(self, rows: Rows, margin: float = 0.0) -> Verdict:
        sure = [first_class(row) for row in rows if any(row) and ahead(row, first_class(row)) > margin]
        unsure = Fraction(len(rows) - len(sure), len(rows))
        _, lead, _ = self._counted(sure, rows)
        label = most_frequent(sure) if sure else 0
        return Verdict(label, lead - unsure, lead + unsure)

    def decided(self, rows: Rows) -> Verdict:
        return self._counted([first_class(row) for row in rows if any(row)], rows)

    @staticmethod
    def _counted(labels: Sequence[int], rows: Rows) -> Verdict:
        counts = Counter(labels)
        most, second = sorted([*counts.values(), 0, 0], reverse=True)[:2]
        lead = Fraction(most - second, len(rows))
        return Verdict(most_frequent(labels), lead, lead)


AGGREGATES: dict[str, MeanProbability] = {
    "mean probability": MeanProbability(),
    "mean log-probability": MeanLogProbability(),
    "label majority": LabelMajority(),
}


# ----------------------------------------------------------------------------------------------------- levels


class Level(NamedTuple):
    """How a place is judged: by each mask of its jury; with another place, by pairs within each of the parts."""

    jury: Sequence[int]
    parts: Juries


Place = Sequence[Level]
"""How a place is judged at every level, coarse to fine."""


class Judge(NamedTuple):
    """What both jury rules are told."""

    aggregate: MeanProbability
    thresholds: Sequence[float] = ()
    pooled: bool = False
    last: float = -inf
    """The lead that settles the last level."""

    def pools(self, levels: Sequence[Rows]) -> Iterator[tuple[Rows, float]]:
        """The votes that each level looks at, and the threshold that a lead must exceed to settle it there."""
        for number, threshold in enumerate([*self.thresholds, self.last]):
            first = 0 if self.pooled else number
            yield [row for rows in levels[first : number + 1] for row in rows], threshold

    def verdict(self, levels: Sequence[Rows]) -> int:
        """The class of the first level whose lead exceeds its threshold."""
        return self.settled(levels)[0]

    def settled(self, levels: Sequence[Rows]) -> tuple[int, bool]:
        """That class, or the last level's, and whether it is settled."""
        found = [(*self.aggregate.decided(rows), bar) for rows, bar in self.pools(levels)]
        return next(((label, True) for label, lead, _, bar in found if lead > bar), (found[-1][0], False))

    def leads(self, levels: Sequence[Rows], label: int, margin: float) -> list[tuple[Number, int]]:
        """By how much the label leads wherever the margin lets a level settle, and at which; not positive: it fails.

        A level whose lead may be on either side of its threshold both settles and goes on.
        """
        found: list[tuple[Number, int]] = []
        for number, (rows, bar) in enumerate(self.pools(levels)):
            winner, low, high = self.aggregate.verdict(rows, margin)
            if high > bar:
                found.append((low if winner == label else -high, number))
            if low > bar:
                break
        else:
            if not any(map(any, rows)):
                found.append((0, number))  # silence proves nothing
        return found


def claim_levels(table: Table, place: Place) -> list[Rows]:
    """What votes about a place, level by level."""
    return [[table[i, i] for i in level.jury] for level in place]


def duel_levels(table: Table, one: Place, other: Place) -> list[Rows]:
    """What votes about two places, level by level: every vote hides both."""
    return [
        [vote(table, i, j) for a, b in zip(mine.parts, yours.parts, strict=True) for i in a for j in b]
        for mine, yours in zip(one, other, strict=True)
    ]


class Judges(NamedTuple):
    """Who judges places, and who judges pairs of them, for a rule that asks."""

    claims: Judge
    duels: Judge | None

    def leads(
        self, places: Sequence[Place], table: Table, label: int, margin: float
    ) -> dict[tuple[int, ...], list[tuple[Number, int]]]:
        """Of every place, and pair of places, all leads with which it may be settled."""
        found: dict[tuple[int, ...], list[tuple[Number, int]]]
        found = {(t,): self.claims.leads(claim_levels(table, place), label, margin) for t, place in enumerate(places)}
        for t, u in combinations(range(len(places)), 2) if self.duels else ():
            found[t, u] = self.duels.leads(duel_levels(table, places[t], places[u]), label, margin)  # type: ignore[union-attr]
        return found


def proved(places: Sequence[Place], table: Table, judges: Judges, label: int, margin: float) -> bool:
    """Every answer is the label, whatever the margin allows."""
    return all(lead > 0 for leads in judges.leads(places, table, label, margin).values() for lead, _ in leads)


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


def jury_detection(places: Sequence[Place], table: Table, judges: Judges) -> Decision:
    """The class that all places name; an alert, with any of the classes they name, if they do not or one is silent."""
    found = [judges.claims.settled(claim_levels(table, place)) for place in places]
    verdicts = [label for label, _ in found]
    return most_frequent(verdicts), len(set(verdicts)) > 1 or NOBODY in verdicts or not all(sure for _, sure in found)


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


def hicert(masks: int, table: Table, copies: Sequence[int], threshold: float) -> Decision:
    """The majority of the placed masks; an alert if a mask disagrees or has a confidence below the threshold."""
    labels = [first_class(table[i, i]) for i in range(masks)]
    answer = most_frequent(labels[i] for i in range(masks) for _ in range(copies[i]))
    return answer, any(labels[i] != answer or max(table[i, i]) < threshold for i in range(masks))


def hicert_certifies(juries: Juries, table: Table, threshold: float, label: int, margin: float) -> bool:
    """Each jury has a mask that names the label, or anyone with a confidence below the threshold."""

    def warns(row: Sequence[float]) -> bool:
        return any(row) and (ahead(row, label) > margin or max(row) < threshold - margin)

    return all(any(warns(table[i, i]) for i in jury) for jury in juries)


def _counts(row: Sequence[float], theta: float | None) -> set[int]:
    """The classes that a view counts for."""
    if not any(row):
        return set()
    return {first_class(row)} if theta is None else {c for c, p in enumerate(row) if p >= theta}


def smoothing(views: Sequence[Sequence[float]], theta: float | None) -> Decision:
    """The class that most views count for; nobody, with an alert, where none counts."""
    said = [c for row in views for c in sorted(_counts(row, theta))]
    answer = most_frequent(said) if said else NOBODY
    return answer, answer == NOBODY


def smoothing_certifies(
    views: Sequence[Sequence[float]], touched: Sequence[set[int]], theta: float | None, label: int, exact: bool
) -> bool:
    """No place overturns the label if all views that it touches leave the label for one other class (margin 0)."""
    counted, most = [_counts(view, theta) for view in views], max(map(len, touched))
    for own in touched:
        left = [i for i in range(len(views)) if i not in own] if exact else range(len(views))
        lost = len(own) if exact else 2 * most
        for other in set(range(len(views[0]))) - {label}:
            mine, yours = (sum(c in counted[i] for i in left) for c in (label, other))
            if mine < yours + lost or (mine == yours + lost and other < label):
                return False
    return True


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


class Recovered(NamedTuple):
    """An answer and what it rests on."""

    decision: Decision
    basis: str


def recovered(claims: Sequence[int], duel: Callable[[int, int], int], last_resort: str, bare: int) -> Recovered:
    """What someone claims who wins against every other claim; the last resort where there is nobody.

    An answer that the last resort gives in any case is said to rest on it.
    """
    spoken = [t for t, claim in enumerate(claims) if claim != NOBODY]
    if len({claims[t] for t in spoken}) == 1:
        return Recovered((claims[spoken[0]], False), "unanimous")
    resort, answer = (
        (last_resort, bare) if last_resort == "bare" and bare != NOBODY else ("majority", most_frequent(claims))
    )
    unbeaten = {claims[t] for t in spoken if all(duel(t, u) == claims[t] for u in spoken if claims[u] != claims[t])}
    assert len(unbeaten) <= 1
    if unbeaten and unbeaten != {answer}:
        return Recovered((unbeaten.pop(), False), "unbeaten")
    return Recovered((answer, answer == NOBODY), resort)


def jury_recovery(places: Sequence[Place], table: Table, judges: Judges, last_resort: str) -> Recovered:
    """Places claim their verdicts and duel by the verdict of votes that hide both."""
    assert judges.duels
    claims = [judges.claims.verdict(claim_levels(table, place)) for place in places]
    between = judges.duels.verdict
    return recovered(
        claims,
        lambda t, u: between(duel_levels(table, places[t], places[u])),
        last_resort,
        first_class(table[-1, -1]),
    )


def patchcleanser(masks: int, table: Table, challenger: bool, last_resort: str) -> Recovered:
    """Double masking: a minority mask wins if every second mask agrees with it; or masks duel as challengers.

    With the bare picture as last resort, an unbeaten mask is looked for among all.
    """
    labels = [first_class(table[i, i]) for i in range(masks)]

    def duel(i: int, j: int) -> int:
        return first_class(vote(table, i, j))

    if last_resort == "bare":
        return recovered(labels, duel, last_resort, first_class(table[-1, -1]))
    if challenger:
        return Recovered(tournament(labels, duel), "")
    answer = most_frequent(labels)
    for i, label in enumerate(labels):
        if label != answer and all(duel(i, j) == label for j in range(masks)):
            return Recovered((label, False), "")
    return Recovered((answer, False), "")


def two_mask_correct(masks: int, table: Table, label: int, margin: float) -> bool:
    """Every mask and every pair of masks votes for the label."""
    return all(ahead(table[i, j], label) > margin for j in range(masks) for i in range(j + 1))
