"""Guarantees of rules on local evidence, by enumeration: small maps, every place of the patch and every attack.

The attacker may put any number of a palette into each cell that his patch touches, for each class, up to the largest
that the rule allows (for robust masking: more than all clean evidence together). That is more than a real patch can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from certmask.evidence import (
    ClippedBagNet,
    EvidenceMaps,
    EvidenceRule,
    Field,
    Hypotheses,
    RobustMasking,
    band_fields,
    hypotheses,
    touched,
)
from certmask.evidence.maps import ONE
from certmask.geometry import IntArray

torch.set_num_threads(1)

Fields = tuple[Field, Field]
Tables = npt.NDArray[np.int64]
"""Evidence in halves, ``[tables, rows, columns, classes]``."""

ROW = Field.regular(1, 1, 1, 0, 1)
CLIPPED = (-2, 0, 2)
"""In halves: no evidence, and all that a clipped cell can say, for and against."""
POSITIVE = (0, 1, 4)
FLOOD = 200
"""More than all clean evidence of a small map."""


def pixels(length: int) -> Field:
    """Cells that see one pixel each."""
    return Field.regular(length, 1, 1, 0, length)


def every(palette: Sequence[int], cells: int, classes: int) -> Tables:
    """All ways to fill so many cells, ``[ways, cells, classes]``."""
    numbers = cells * classes
    digits = np.arange(len(palette) ** numbers)[:, None] // len(palette) ** np.arange(numbers) % len(palette)
    return np.array(palette, dtype=np.int64)[digits].reshape(len(digits), cells, classes)


def judged(rule: EvidenceRule, fields: Fields, tables: Tables, label: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    maps = EvidenceMaps(torch.from_numpy(tables) * (ONE // 2), fields)
    return rule.answers(maps), rule.holds(maps, np.full(len(tables), label))


def places(rule: EvidenceRule, fields: Fields) -> list[IntArray]:
    """The cells that the patch touches, place by place, in the order of the flattened map; each set once."""
    rows, columns = touched(rule.patch, fields)
    sets = {tuple(np.flatnonzero(np.outer(row, column)).tolist()) for row in rows for column in columns}
    return [np.array(one, dtype=np.int64) for one in sorted(sets)]


def attacked(tables: Tables, cells: IntArray, palette: Sequence[int], many: int) -> Iterator[tuple[IntArray, Tables]]:
    """Every table with every content of these cells, and the numbers of the tables; so many pictures at a time."""
    contents = every(palette, len(cells), tables.shape[3])
    step = max(many // len(contents), 1)
    for start in range(0, len(tables), step):
        part = tables[start : start + step]
        pictures = np.repeat(part, len(contents), axis=0).reshape(
            -1, tables.shape[1] * tables.shape[2], tables.shape[3]
        )
        pictures[:, cells] = np.tile(contents, (len(part), 1, 1))
        numbers = np.repeat(np.arange(start, start + len(part)), len(contents))
        yield numbers, pictures.reshape(-1, *tables.shape[1:])


def broken(
    rule: EvidenceRule, fields: Fields, tables: Tables, label: int, palette: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Which tables some attack turns to another answer."""
    lost = np.zeros(len(tables), dtype=bool)
    for cells in places(rule, fields):
        for numbers, pictures in attacked(tables, cells, palette, 20_000):
            answers = rule.answers(EvidenceMaps(torch.from_numpy(pictures) * (ONE // 2), fields))
            lost[numbers[answers != label]] = True
    return lost


def every_attack(
    rule: EvidenceRule, fields: Fields, tables: Tables, label: int, palette: Sequence[int]
) -> Counter[str]:
    """Try all attacks on all tables that are certified for the label; fails as soon as one of them is lost."""
    answers, holds = judged(rule, fields, tables, label)
    if (answers[holds] != label).any():
        pytest.fail(f"{rule.name} certifies class {label} and answers otherwise on the clean map")
    lost = broken(rule, fields, tables[holds], label, palette)
    if lost.any():
        pytest.fail(f"{rule.name} is certified for class {label} and broken:\n{tables[holds][lost][0].tolist()}")
    return Counter(tables=len(tables), certified=int(holds.sum()))


def line_tables(cells: int, classes: int, palette: Sequence[int]) -> Tables:
    return every(palette, cells, classes)[:, None]


def some_tables(shape: tuple[int, int, int], palette: Sequence[int], label: int, many: int, seed: int) -> Tables:
    """Seeded: the label has the largest number of the palette nearly everywhere, others the smallest, in degrees."""
    rng = np.random.default_rng(seed)
    tables = np.full((many, *shape), min(palette))
    tables[..., label] = max(palette)
    odd = rng.random(tables.shape) < rng.choice([0.02, 0.1, 0.3], (many, 1, 1, 1))
    return np.where(odd, rng.choice(palette, tables.shape), tables)


class AlsoSmallerSets(RobustMasking):
    """Asks its inequality of every set of cells that a patch touches, be it inside another one."""

    def hypotheses(self, fields: Fields) -> Hypotheses:
        found, (rows, columns) = super().hypotheses(fields), touched(self.patch, fields)
        every_row, every_column = np.unique(rows, axis=0), np.unique(columns, axis=0)
        return Hypotheses(every_row, every_column, found.window_rows, found.window_columns)


CLIPPED_ON_LINES = [
    ("one of four", (1, 1), (ROW, pixels(4))),
    ("two of five", (1, 2), (ROW, pixels(5))),
    ("padded, one or two of five", (1, 1), (ROW, Field.regular(6, 2, 1, -1, 5))),
    ("dilated, a gap between", (1, 1), (ROW, Field(3, 1, 0, np.eye(5, 7, dtype=bool) | np.eye(5, 7, 2, dtype=bool)))),
    ("bands that wrap", (1, 1), band_fields((1, 5), 2)),
]


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(
    ("name", "patch", "fields"), CLIPPED_ON_LINES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_every_attack_on_clipped_lines(name: str, patch: tuple[int, int], fields: Fields, label: int) -> None:
    """Exhaustive: every table of −1, 0 and 1 for two classes, the one that wins and the one that loses ties."""
    tables = line_tables(fields[1].cells, 2, CLIPPED)
    seen = every_attack(ClippedBagNet(patch), fields, tables, label, CLIPPED)
    assert 0 < seen["certified"] < seen["tables"] / 4


@pytest.mark.parametrize("label", [0, 2])
def test_every_attack_on_three_classes_clipped(label: int) -> None:
    fields = (ROW, pixels(4))
    seen = every_attack(ClippedBagNet((1, 1)), fields, line_tables(4, 3, CLIPPED), label, CLIPPED)
    assert seen["certified"] > 500


@pytest.mark.parametrize("label", [0, 1])
def test_every_attack_on_sampled_clipped_squares(label: int) -> None:
    """Seeded tables of 3×3 and 4×4 cells, every attack on all that are certified: blocks of 1 and of 2×2 cells."""
    for side, patch in ((3, 1), (4, (2, 2))):
        fields = pixels(side), pixels(side)
        tables = some_tables((side, side, 2), CLIPPED, label, 600, side)
        seen = every_attack(ClippedBagNet(patch), fields, tables, label, CLIPPED if side == 3 else (-2, 2))
        assert seen["certified"] > 50


@pytest.mark.parametrize(
    ("name", "patch", "fields"), CLIPPED_ON_LINES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_clipped_certificates_are_exact_but_for_ties(name: str, patch: tuple[int, int], fields: Fields) -> None:
    """What is not certified can be broken, for the class that loses ties; the other one also survives a lead of 0."""
    tables, rule = line_tables(fields[1].cells, 2, CLIPPED), ClippedBagNet(patch)
    for label in (0, 1):
        holds, lost = judged(rule, fields, tables, label)[1], broken(rule, fields, tables, label, (-2, 2))
        sets = hypotheses(patch, fields)
        lead = tables[:, 0, :, label] - tables[:, 0, :, 1 - label]
        left = (lead @ ~sets.columns.T - 4 * sets.sizes).min(axis=1)
        assert (holds == (left > 0)).all()
        assert (lost == (left < 0 if label == 0 else left <= 0)).all()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(
    ("rule", "palette", "contents"),
    [
        (ClippedBagNet(1), (-2, 2), CLIPPED),
        (RobustMasking(1), (0, 1), (0, 1, FLOOD)),
        (RobustMasking(1, 0.25), (0, 1), (0, 1, 2, FLOOD)),
    ],
    ids=["clipped", "masked", "masked above a share"],
)
def test_every_attack_on_squares(
    rule: EvidenceRule, palette: tuple[int, ...], contents: tuple[int, ...], label: int
) -> None:
    """Exhaustive: 3×3 cells, two classes, every table of two numbers."""
    tables = every(palette, 9, 2).reshape(-1, 3, 3, 2)
    seen = every_attack(rule, (pixels(3), pixels(3)), tables, label, contents)
    assert seen["tables"] == 2**18
    assert seen["certified"] > 1000


MASKED_ON_LINES = [
    ("one of five", (1, 1), (ROW, pixels(5))),
    ("two of five", (1, 2), (ROW, pixels(5))),
    ("padded, one or two of five", (1, 1), (ROW, Field.regular(6, 2, 1, -1, 5))),
    ("dilated, a gap between", (1, 1), (ROW, Field(3, 1, 0, np.eye(5, 7, dtype=bool) | np.eye(5, 7, 2, dtype=bool)))),
    ("bands that wrap", (1, 1), band_fields((1, 5), 2)),
    ("strided bands", (1, 1), band_fields((1, 9), 3, 2)),
]


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("threshold", [0, 0.25, 0.5])
@pytest.mark.parametrize(
    ("name", "patch", "fields"), MASKED_ON_LINES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_every_attack_on_masked_lines(
    name: str, patch: tuple[int, int], fields: Fields, threshold: float, label: int
) -> None:
    """Exhaustive: every table of three numbers for two classes, the one that wins and the one that loses ties."""
    tables = line_tables(fields[1].cells, 2, POSITIVE)
    seen = every_attack(RobustMasking(patch, threshold), fields, tables, label, (*POSITIVE, 9, FLOOD))
    assert 0 < seen["certified"] < seen["tables"] / 2


@pytest.mark.parametrize("label", [0, 2])
@pytest.mark.parametrize("threshold", [0, 0.25])
def test_every_attack_on_three_classes_masked(threshold: float, label: int) -> None:
    tables = line_tables(4, 3, POSITIVE)
    seen = every_attack(RobustMasking((1, 1), threshold), (ROW, pixels(4)), tables, label, (*POSITIVE, FLOOD))
    assert seen["certified"] > 500


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("threshold", [0, 0.3])
def test_every_attack_on_sampled_masked_squares(threshold: float, label: int) -> None:
    """Seeded tables of 3×3 and 4×4 cells, every attack on all that are certified: blocks of 1 and of 2×2 cells."""
    for side, patch in ((3, 1), (4, (2, 2))):
        fields = pixels(side), pixels(side)
        tables = some_tables((side, side, 2), POSITIVE, label, 600, side)
        palette = (*POSITIVE, 9, FLOOD) if side == 3 else (0, FLOOD)
        seen = every_attack(RobustMasking(patch, threshold), fields, tables, label, palette)
        assert seen["certified"] > 50


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("name", ["one of five", "two of five", "padded, one or two of five", "bands that wrap"])
def test_certificates_are_exact_where_the_strongest_window_is_always_masked(name: str, label: int) -> None:
    """Where the largest sets of touched cells are windows, every table that is not certified can be broken."""
    patch, fields = next((patch, fields) for own, patch, fields in MASKED_ON_LINES if own == name)
    tables, rule = line_tables(fields[1].cells, 2, POSITIVE), RobustMasking(patch)
    _, holds = judged(rule, fields, tables, label)
    assert (broken(rule, fields, tables, label, (0, FLOOD)) == ~holds).all()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("threshold", [0, 0.25])
def test_sets_inside_others_are_rightly_left_out(threshold: float, label: int) -> None:
    """The inequality for a set inside another one may fail where that for the larger one holds: it is too careful.

    No attack on the smaller set gets through then, for it is one on the larger set, too.
    """
    _, patch, fields = MASKED_ON_LINES[2]
    rule, tables = RobustMasking(patch, threshold), line_tables(5, 2, POSITIVE)
    asked = AlsoSmallerSets(patch, threshold)
    assert len(asked.hypotheses(fields).columns) > len(hypotheses(patch, fields).columns)
    holds, carefully = judged(rule, fields, tables, label)[1], judged(asked, fields, tables, label)[1]
    gained = holds & ~carefully
    assert not (carefully & ~holds).any()
    assert gained.sum() >= 10
    assert not broken(rule, fields, tables[gained], label, (*POSITIVE, 9, FLOOD)).any()


def test_an_attack_at_the_bound_of_a_share() -> None:
    """With T = 1/2 a class that has 10 outside, in two cells, can be brought to 20 with no window above its half."""
    fields, rule = (ROW, pixels(6)), RobustMasking((1, 1), 0.5)

    def table(own: int) -> Tables:
        """Class 1 has the same everywhere, class 0 twice 5."""
        return np.array([[[[0, own]] * 4 + [[5, own]] * 2]], dtype=np.int64)

    for own, proved in ((4, False), (5, True)):
        answers, holds = judged(rule, fields, table(own), 1)
        assert (answers.tolist(), holds.tolist()) == ([1], [proved])
        attack = table(own)
        attack[0, 0, 0] = 10, 0
        assert judged(rule, fields, attack, 1)[0].tolist() == [int(proved)]


@pytest.mark.parametrize(("threshold", "palette"), [(0, (1, 6, 12)), (0.5, (1, 6, 12, 24))])
def test_every_attack_with_every_noise_within_the_margin(threshold: float, palette: tuple[int, ...]) -> None:
    """Every number moves by half a one, up or down; a difference of sums over the three cells outside by 3 at most."""
    fields, rule = (ROW, pixels(4)), RobustMasking((1, 1), threshold, margin=3.0)
    tables = line_tables(4, 2, palette)
    certified = tables[judged(rule, fields, tables, 1)[1]]
    assert 10 < len(certified) < len(tables) / 4
    noisy = (certified[:, None] + line_tables(4, 2, (-1, 1))).reshape(-1, 1, 4, 2)
    assert not broken(rule, fields, noisy, 1, (0, 6, FLOOD)).any()


# ------------------------------------------------------------------------------- the enumeration can find mistakes


class RunnerUpOnly(ClippedBagNet):
    """Compares the label with the runner-up of the clean map alone, as a public implementation does."""

    def holds(self, maps: EvidenceMaps, labels: IntArray) -> npt.NDArray[np.bool_]:
        values = maps.values.numpy()
        scores = values.sum(axis=(1, 2))
        scores[np.arange(len(labels)), labels] = scores.min() - 1
        pairs = np.stack([labels, scores.argmax(axis=1)], axis=1)[:, None, None]
        two = EvidenceMaps(torch.from_numpy(np.take_along_axis(values, pairs, axis=3)), maps.fields)
        right = self.answers(maps) == labels
        return np.asarray(right & super().holds(two, np.zeros_like(labels)))


class TiesAreWon(ClippedBagNet):
    """Takes a lead of exactly what the patch can take away for enough."""

    @property
    def units(self) -> int:
        return -1


class ShareOfTheCleanTotal(RobustMasking):
    """Compares windows with a share of all clean evidence, of which the patch can take its part away."""

    def most_masked(self, own: Tensor, outside: Tensor, sets: Hypotheses) -> Tensor:
        return super().most_masked(own, own.sum(dim=(1, 2))[:, None, None].expand_as(outside), sets)


class NoDivision(RobustMasking):
    """Forgets that a class may keep a share of what the patch adds to it: takes ``(1 − T)`` back."""

    def most_masked(self, own: Tensor, outside: Tensor, sets: Hypotheses) -> Tensor:
        least = outside - super().most_masked(own, outside, sets)
        return (outside - least / float(1 - self.threshold)).long()


class WindowsTooSmall(RobustMasking):
    """Windows of one cell, whatever the patch touches."""

    def hypotheses(self, fields: Fields) -> Hypotheses:
        found = super().hypotheses(fields)
        object.__setattr__(found, "window_columns", np.eye(found.columns.shape[1], dtype=bool))
        return found


class NothingLost(RobustMasking):
    """Forgets that the label loses its strongest window, too."""

    def most_masked(self, own: Tensor, outside: Tensor, sets: Hypotheses) -> Tensor:
        return torch.zeros_like(outside)


@pytest.mark.parametrize(
    ("rule", "cells", "classes"),
    [
        (RunnerUpOnly((1, 1)), 4, 3),
        (TiesAreWon((1, 1)), 4, 2),
        (ShareOfTheCleanTotal((1, 1), 0.5), 5, 2),
        (NoDivision((1, 1), 0.5), 5, 2),
        (WindowsTooSmall((1, 2)), 5, 2),
        (WindowsTooSmall((1, 2), 0.25), 5, 2),
        (NothingLost((1, 1)), 5, 2),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, EvidenceRule) else "",
)
def test_unsound_rules_are_caught(rule: EvidenceRule, cells: int, classes: int) -> None:
    """The same enumeration breaks rules whose certificates prove too little."""
    clipped = isinstance(rule, ClippedBagNet)
    tables = line_tables(cells, classes, CLIPPED if clipped else POSITIVE)
    palette = CLIPPED if clipped else (*POSITIVE, 9, FLOOD)
    with pytest.raises(pytest.fail.Exception, match=r"is certified for class .* and broken"):
        every_attack(rule, (ROW, pixels(cells)), tables, classes - 1, palette)
