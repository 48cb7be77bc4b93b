"""Differences over runs that share photos: photos are what varies, however many runs look at each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certmask.errors import ResultsError
from certmask.results.clusters import difference, is_right, split
from certmask.results.run import Run


def run(first: list[bool], second: list[bool], images: list[str]) -> Run:
    """Two defences with these certificates; both answer rightly where they certify."""
    rows: list[dict[str, Any]] = [
        {"image": image, "label": 1, "defences": {
            name: {"certified": holds, "label": int(holds), "alert": False} for name, holds in (("a", a), ("b", b))}}
        for image, a, b in zip(images, first, second, strict=True)
    ]  # fmt: skip
    return Run("run", Path("run.jsonl"), "0", {}, tuple(rows))


RANDOM = np.random.default_rng(0)
NAMES = [f"photo {number}" for number in range(200)]
ONE = run([bool(v) for v in RANDOM.random(200) < 0.6], [bool(v) for v in RANDOM.random(200) < 0.5], NAMES)


def test_one_run_is_the_paired_normal_interval() -> None:
    apart = [int(row["defences"]["a"]["certified"]) - int(row["defences"]["b"]["certified"]) for row in ONE.rows]
    found = difference([ONE], "a", "b")
    assert found.points == pytest.approx(100 * np.mean(apart))
    assert found.half == pytest.approx(196 * np.std(apart) / np.sqrt(200))
    gained, lost = split(ONE, "a", "b")
    assert found.points == pytest.approx((gained - lost) / 2)
    assert difference([ONE], "a", "b", is_right) == found


def test_the_same_run_again_is_no_new_evidence() -> None:
    thrice, once = difference([ONE, ONE, ONE], "a", "b"), difference([ONE], "a", "b")
    assert (thrice.points, thrice.half) == pytest.approx((once.points, once.half))
    assert thrice.photos == once.photos == 200


def test_other_photos_are() -> None:
    other = replace(ONE, rows=tuple({**row, "image": f"another {row['image']}"} for row in ONE.rows))
    both = difference([ONE, other], "a", "b")
    assert both.photos == 400
    assert both.half == pytest.approx(difference([ONE], "a", "b").half / np.sqrt(2))


def test_runs_of_different_size_weigh_by_their_rows() -> None:
    few = run([True] * 20, [False] * 20, NAMES[:20])
    apart = {name: [int(r["defences"]["a"]["certified"]) - int(r["defences"]["b"]["certified"])]
             for name, r in zip(NAMES, ONE.rows, strict=True)}  # fmt: skip
    for name in NAMES[:20]:
        apart[name].append(1)
    every = np.concatenate(list(apart.values()))
    spread = [sum(value - every.mean() for value in values) for values in apart.values()]
    found = difference([ONE, few], "a", "b")
    assert found.points == pytest.approx(100 * every.mean())
    assert found.half == pytest.approx(196 * np.sqrt(np.sum(np.square(spread))) / len(every))


def test_photos_can_be_left_out_but_not_all() -> None:
    assert difference([ONE], "a", "b", unless=frozenset(NAMES[:50])).photos == 150
    with pytest.raises(ResultsError, match="expected photos on which 'a' and 'b' can be compared, got none"):
        difference([ONE], "a", "b", unless=frozenset(NAMES))


def test_it_prints_with_a_true_minus() -> None:
    assert str(difference([ONE], "b", "a")).startswith("−")
    assert " ± " in str(difference([ONE], "a", "b"))
