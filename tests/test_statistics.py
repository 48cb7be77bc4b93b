"""Intervals and paired tests against scipy, their own definitions and brute force."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from certmask.errors import ResultsError
from certmask.results.statistics import Share, holm, mcnemar, wilson

CASES = [(count, of) for of in (*range(1, 31), 100, 999) for count in {0, 1, of // 3, of // 2, of - 1, of}]


@pytest.mark.parametrize(("count", "of"), CASES)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_is_scipys(count: int, of: int, confidence: float) -> None:
    reference = binomtest(count, of).proportion_ci(confidence, method="wilson")
    assert wilson(count, of, confidence) == pytest.approx((reference.low, reference.high), abs=1e-12)


@pytest.mark.parametrize(("count", "of"), [(0, 5), (3, 20), (10, 20), (19, 20), (7, 7), (350, 1000)])
def test_wilson_holds_exactly_the_shares_that_the_score_test_allows(count: int, of: int) -> None:
    low, high = wilson(count, of)
    z = norm.ppf(0.975)
    for step in range(10_001):
        p = step / 10_000
        if min(abs(p - low), abs(p - high)) > 1e-9:
            assert (low < p < high) == (abs(count / of - p) < z * sqrt(p * (1 - p) / of))


@given(st.integers(1, 5000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_a_share_lies_in_its_interval_and_the_interval_in_0_to_1(drawn: tuple[int, int]) -> None:
    share = Share(*drawn)
    low, high = share.interval
    assert 0 <= low <= share.value <= high <= 1
    assert low < high
    mirrored = wilson(share.of - share.count, share.of)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@given(st.integers(1, 3000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_percent_is_rounded_half_up_from_the_counts(drawn: tuple[int, int]) -> None:
    exact = Decimal(100 * drawn[0]) / Decimal(drawn[1])
    assert Share(*drawn).percent == str(exact.quantize(Decimal("0.1"), ROUND_HALF_UP))


@pytest.mark.parametrize(
    ("count", "of", "words"), [(9, 400, "2.3"), (66, 160, "41.3"), (1, 3, "33.3"), (0, 7, "0.0"), (7, 7, "100.0")]
)
def test_halves_are_rounded_up(count: int, of: int, words: str) -> None:
    assert Share(count, of).percent == words


def test_mcnemar_is_scipys_sign_test() -> None:
    for gained, lost in product(range(31), repeat=2):
        reference = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert mcnemar(gained, lost) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize(("gained", "lost"), [(15, 1), (400, 300), (0, 900), (1500, 1501)])
def test_mcnemar_with_many_images(gained: int, lost: int) -> None:
    assert mcnemar(gained, lost) == pytest.approx(binomtest(gained, gained + lost).pvalue, rel=1e-6)
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_mcnemar_by_throwing_every_coin() -> None:
    for thrown in range(11):
        tosses = [sum(toss) for toss in product((0, 1), repeat=thrown)]
        for gained in range(thrown + 1):
            uneven = abs(2 * gained - thrown)
            share = sum(abs(2 * heads - thrown) >= uneven for heads in tosses) / len(tosses)
            assert mcnemar(gained, thrown - gained) == pytest.approx(share)


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_the_step_down_procedure_rejects(chances: list[float], level: float) -> None:
    """Holm's own description: go up the sorted list while p ≤ level/(those left), and reject until the first miss."""
    rejected = set()
    order = sorted(range(len(chances)), key=lambda n: chances[n])
    for rank, number in enumerate(order):
        if chances[number] * (len(chances) - rank) > level:
            break
        rejected.add(number)
    assert {n for n, p in enumerate(holm(chances)) if p <= level} == rejected
    assert all(adjusted >= p for adjusted, p in zip(holm(chances), chances, strict=True))


@pytest.mark.parametrize(("count", "of"), [(1, 0), (0, 0), (-1, 4), (5, 4)])
def test_impossible_shares(count: int, of: int) -> None:
    with pytest.raises(ResultsError, match=f"expected a share of at least one image, got {count} of {of}"):
        wilson(count, of)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, float("nan")])
def test_impossible_confidence(confidence: float) -> None:
    with pytest.raises(ResultsError, match="expected a confidence between 0 and 1"):
        wilson(1, 2, confidence)


def test_impossible_counts() -> None:
    with pytest.raises(ResultsError, match="expected counts of at least 0, got -1 and 3"):
        mcnemar(-1, 3)
