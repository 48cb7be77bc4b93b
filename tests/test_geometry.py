"""Geometry against pixels: masks, districts, exact counts, the paper's formulas."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import brute
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from certmask.covers import custom_cover, offset_cover
from certmask.errors import CertmaskError, GeometryError
from certmask.geometry import Mask, find_cells, find_districts, minimum_masks, minimum_per_axis, paper, reach
from certmask.threat import Patch, Size


@st.composite
def spans(draw: st.DrawFn, length: int, p: int) -> tuple[int, int]:
    """Start and length of a mask along one axis; three in four can hold the patch and touch the image."""
    if draw(st.integers(0, 3)):
        m = draw(st.integers(p, length + 2))
        return draw(st.integers(1 - m, length)), m
    return draw(st.integers(-40, 40)), draw(st.integers(1, 30))


@st.composite
def scenes(draw: st.DrawFn, most_masks: int = 9) -> tuple[Size, Patch, list[Mask]]:
    """An image, a patch inside it, and masks of any size at any place, clipped, wrapped, or wholly outside."""
    image = draw(st.tuples(st.integers(1, 14), st.integers(1, 14)))
    small = draw(st.integers(0, 3)) > 0
    patch = Patch(*(draw(st.integers(1, 1 + length // 4 if small else length)) for length in image))
    masks = []
    for _ in range(draw(st.integers(1, most_masks))):
        (top, height), (left, width) = draw(spans(image[0], patch.height)), draw(spans(image[1], patch.width))
        masks.append(Mask(top, left, height, width, draw(st.booleans())))
    return image, patch, masks


@settings(max_examples=400, deadline=None)
@given(scenes(most_masks=1))
@example(((5, 5), Patch(2, 2), [Mask(3, 3, 4, 4, wraps=True)]))
@example(((5, 5), Patch(2, 2), [Mask(-1, 4, 5, 6, wraps=True)]))
@example(((3, 3), Patch(3, 3), [Mask(-2, -2, 7, 5)]))
def test_a_mask_covers_exactly_what_its_pixels_cover(scene: tuple[Size, Patch, list[Mask]]) -> None:
    """``Mask.covers`` is "all patch pixels are painted", also for places where the patch would leave the image."""
    image, patch, (mask,) = scene
    canvas = brute.paint(mask, image)
    for location in product(range(-2, image[0] + 2), range(-2, image[1] + 2)):
        assert mask.covers(location, patch, image) == brute.patch_inside(canvas, location, patch.size), location


@settings(max_examples=400, deadline=None)
@given(scenes(most_masks=1))
def test_rows_and_columns_are_the_painted_pixels(scene: tuple[Size, Patch, list[Mask]]) -> None:
    """The footprint is sorted, disjoint, inside the image, and its product is the painted area."""
    image, _, (mask,) = scene
    canvas = np.zeros(image, dtype=bool)
    rows, columns = mask.footprint(image)
    for (top, bottom), (left, right) in product(rows, columns):
        assert 0 <= top < bottom <= image[0]
        assert 0 <= left < right <= image[1]
        assert not canvas[top:bottom, left:right].any()
        canvas[top:bottom, left:right] = True
    assert list(rows) == sorted(rows)
    assert list(columns) == sorted(columns)
    np.testing.assert_array_equal(canvas, brute.paint(mask, image))


def grouped(image: Size, patch: Patch, masks: list[Mask]) -> dict[tuple[int, ...], list[Size]]:
    """The brute-force districts: the locations of every jury, row by row."""
    groups: dict[tuple[int, ...], list[Size]] = {}
    for location, jury in brute.juries(image, patch.size, masks).items():
        groups.setdefault(jury, []).append(location)
    return groups


@settings(max_examples=400, deadline=None)
@given(scenes())
@example(((6, 6), Patch(1, 1), [Mask(4, 4, 4, 4, wraps=True), Mask(0, 0, 2, 2), Mask(0, 0, 2, 2)]))
@example(((1, 1), Patch(1, 1), [Mask(5, 5, 1, 1)]))
def test_districts_partition_the_locations_by_jury(scene: tuple[Size, Patch, list[Mask]]) -> None:
    """Juries, first locations and areas are those of the grouped brute force: no location is lost or misplaced."""
    image, patch, masks = scene
    districts = find_districts(image, patch, masks)
    expected = grouped(image, patch, masks)

    found = [districts.jury(d) for d in range(len(districts))]
    assert len(set(found)) == len(found), "two districts with one jury"
    assert set(found) == set(expected)
    for d, jury in enumerate(found):
        assert tuple(districts.corner[d]) == expected[jury][0]
        assert districts.area[d] == len(expected[jury])
        assert districts.sizes[d] == len(jury)
        assert (districts.juries[d, len(jury) :] == -1).all()
    n_y, n_x = patch.positions(image)
    assert districts.area.sum() == n_y * n_x


@st.composite
def gridded(draw: st.DrawFn) -> tuple[Size, Patch, list[list[Mask]]]:
    """An image, a patch, and one to three grids: on each axis, masks of one size that cover every position."""
    image = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    patch = Patch(*(draw(st.integers(1, length)) for length in image))
    grids = []
    for _ in range(draw(st.integers(1, 3))):
        axes = []
        for length, side in zip(image, patch.size, strict=True):
            mask, start = draw(st.integers(side, length + 2)), -draw(st.integers(0, 2))
            starts = [start if start + mask >= side else 0]
            while starts[-1] + mask < length:
                starts.append(starts[-1] + draw(st.integers(1, mask - side + 1)))
            axes.append((mask, starts))
        (height, tops), (width, lefts) = axes
        grids.append([Mask(top, left, height, width) for top in tops for left in lefts])
    return image, patch, grids


@settings(max_examples=250, deadline=None)
@given(gridded(), st.randoms(use_true_random=False))
@example(((1, 6), Patch(1, 2), [[Mask(0, 0, 1, 4), Mask(0, 3, 1, 4)], [Mask(0, x, 1, 2) for x in range(5)]]), Random(0))
def test_cells_partition_the_locations_and_are_hidden(scene: tuple[Size, Patch, list[list[Mask]]], rng: Random) -> None:
    """Every location in exactly one cell, every patch of a cell inside its mask of every grid, pixel by pixel."""
    image, patch, grids = scene
    grids = [rng.sample(grid, len(grid)) for grid in grids]
    cells = find_cells(image, patch, grids)
    paintings = [[brute.paint(mask, image) for mask in grid] for grid in grids]
    found = []
    for (top, bottom, left, right), masks in zip(cells.boxes.tolist(), cells.masks.tolist(), strict=True):
        inside = list(product(range(top, bottom), range(left, right)))
        found += inside
        for painted, mask in zip(paintings, masks, strict=True):
            assert all(brute.patch_inside(painted[mask], location, patch.size) for location in inside)
    assert sorted(found) == brute.locations(image, patch.size)


@settings(max_examples=100, deadline=None)
@given(gridded())
def test_there_are_no_fewer_cells(scene: tuple[Size, Patch, list[list[Mask]]]) -> None:
    """Along each axis the fewest bands that every grid hides with one mask, found by trying all cuts."""
    image, patch, grids = scene
    cells = find_cells(image, patch, grids)
    counts = []
    for axis, positions in enumerate(patch.positions(image)):
        runs = [{brute.positions(mask, image, patch.size, axis) for mask in grid} for grid in grids]
        counts.append(brute.fewest_bands(runs, positions))
    assert len(cells) == counts[0] * counts[1]


def test_cells_refuse_what_is_no_grid() -> None:
    """Wrapped masks, a grid with a gap in it, and one that leaves a position open."""
    whole = [Mask(top, left, 3, 3) for top in (0, 2) for left in (0, 2)]
    assert len(find_cells((5, 5), Patch(2, 2), [whole])) == 4
    with pytest.raises(GeometryError, match="expected grids of masks that do not wrap, got one that does"):
        find_cells((5, 5), Patch(2, 2), [[Mask(0, 0, 5, 5, wraps=True)]])
    with pytest.raises(GeometryError, match="expected grids of rows and columns of masks, got one with a gap"):
        find_cells((5, 5), Patch(2, 2), [whole[:3]])
    with pytest.raises(GeometryError, match="expected grids that cover every place, got none at 2 along an axis"):
        find_cells((5, 5), Patch(2, 2), [whole, [Mask(0, 0, 3, 5)]])


def test_districts_without_masks_are_one_district_that_nobody_covers() -> None:
    """No mask at all: one district with an empty jury and every location."""
    districts = find_districts((4, 5), Patch(2, 2), [])
    assert [districts.jury(d) for d in range(len(districts))] == [()]
    assert districts.area.tolist() == [12]


def test_districts_of_the_papers_main_setting() -> None:
    """224 × 224, 1,176 wrapped masks: 300 random locations and 100 first locations have the jury they should have."""
    image, patch = (224, 224), Patch(32, 32)
    cover = offset_cover(224, patch, 48, (2, 3))
    assert len(cover) == cover.placed == 1176
    districts = find_districts(image, patch, cover.masks)
    index = {districts.jury(d): d for d in range(len(districts))}
    assert len(index) == len(districts)
    assert districts.area.sum() == 193 * 193

    random = Random(20260101)
    somewhere = random.sample(brute.locations(image, patch.size), 300)
    chosen = random.sample(range(len(districts)), 100)
    first: dict[Size, int] = {(int(districts.corner[d, 0]), int(districts.corner[d, 1])): d for d in chosen}
    truth = brute.juries(image, patch.size, cover.masks, at=[*somewhere, *first])
    for location in somewhere:
        jury = truth[location]
        assert tuple(districts.corner[index[jury]]) <= location
        assert tuple(i for i, m in enumerate(cover.masks) if m.covers(location, patch, image)) == jury
    for location, d in first.items():
        assert truth[location] == districts.jury(d)


def fewest(image: Size, patch: Size, mask: Size, k: int, wraps: bool = False) -> int:
    return len(brute.cheapest_cover(image, patch, mask, k, wraps))


@pytest.mark.parametrize("length", range(1, 11))
def test_one_dimensional_minimum_is_the_integer_programs(length: int) -> None:
    """Every axis up to 10 pixels, every patch, every mask up to two pixels over the axis, k up to 3: no mismatch."""
    for p in range(1, length + 1):
        for m in range(p, length + 3):
            for k in (1, 2, 3):
                exact = minimum_masks((length, 1), Patch(p, 1), (m, 1), k)
                assert exact == fewest((length, 1), (p, 1), (m, 1), k), (p, m, k)
                assert exact == minimum_masks((1, length), Patch(1, p), (1, m), k)


@pytest.mark.parametrize("image", [(h, w) for w in range(1, 6) for h in range(1, w + 1)], ids=str)
def test_two_dimensional_minimum_is_the_integer_programs(image: Size) -> None:
    """Every patch, every mask up to one pixel over the image, k up to 3: the program needs exactly ``N*(k)`` masks."""
    for patch in product(range(1, image[0] + 1), range(1, image[1] + 1)):
        for mask in product(range(patch[0], image[0] + 2), range(patch[1], image[1] + 2)):
            for k in (1, 2, 3):
                exact = minimum_masks(image, Patch(*patch), mask, k)
                assert exact == fewest(image, patch, mask, k), (patch, mask, k)


@given(st.data())
def test_minimum_is_k_times_the_product_of_the_axes(data: st.DataObject) -> None:
    """``reach`` and ``minimum_per_axis`` count the positions that brute force counts."""
    length = data.draw(st.integers(1, 30))
    p = data.draw(st.integers(1, length))
    m = data.draw(st.integers(p, 32))
    k = data.draw(st.integers(1, 9))
    covered = [t for t in range(m) if t + p <= m]
    positions = [t for t in range(length) if t + p <= length]
    blocks = len({t // len(covered) for t in positions})
    assert reach(Patch(p, 1), (m, 1)) == (len(covered), 1)
    assert minimum_per_axis((length, length), Patch(p, p), (m, m)) == (blocks, blocks)
    assert minimum_masks((length, length), Patch(p, p), (m, m), k) == k * blocks * blocks


def test_wrapping_on_one_axis_goes_below_the_minimum_only_when_both_ends_hold_a_patch() -> None:
    """Wrapped masks never beat ``⌈k·n/s⌉``, and beat ``N*`` in some cases, all of them with ``M − p ≥ p``."""
    below = []
    for length in range(2, 9):
        for p in range(1, length + 1):
            for m, k in product(range(p, length + 2), (1, 2, 3)):
                masks = brute.cheapest_cover((length, 1), (p, 1), (m, 1), k, wraps=True)
                (n, _), (s, _) = Patch(p, 1).positions((length, 1)), reach(Patch(p, 1), (m, 1))
                assert len(masks) >= -(-k * n // s), (length, p, m, k)
                if len(masks) < minimum_masks((length, 1), Patch(p, 1), (m, 1), k):
                    below.append((length, p, m, k))
                    assert m - p >= p
    assert (3, 1, 2, 2) in below
    assert {k for *_, k in below} == {2, 3}, "one fold on one axis cannot be beaten"
    assert any(p > 1 for _, p, *_ in below)


@pytest.mark.parametrize(
    ("image", "patch", "mask", "fold"),
    [((3, 1), (1, 1), (2, 1), (2, 1)), ((5, 5), (1, 1), (2, 2), (1, 1))],
    ids=["one axis, twofold", "two axes, onefold"],
)
def test_wrapping_below_the_minimum_is_a_real_cover(image: Size, patch: Size, mask: Size, fold: Size) -> None:
    """The smaller wrapped cover passes certmask's own verification; its masks without wrapping do not."""
    k = fold[0] * fold[1]
    masks = [Mask(*rect) for rect in brute.cheapest_cover(image, patch, mask, k, wraps=True)]
    assert len(masks) < minimum_masks(image, Patch(*patch), mask, k)
    assert custom_cover(image, Patch(*patch), masks, fold).placed == len(masks)
    with pytest.raises(CertmaskError):
        custom_cover(image, Patch(*patch), [Mask(m.top, m.left, *mask) for m in masks], fold)


def test_wrapping_on_two_axes_beats_the_product_of_the_axes() -> None:
    """Eight wrapped 2 × 2 masks cover a 5 × 5 torus, although each axis alone needs three: only area binds in 2-D."""
    wrapped = fewest((5, 5), (1, 1), (2, 2), 1, wraps=True)
    assert wrapped == 8 < minimum_masks((5, 5), Patch(1, 1), (2, 2)) == 9
    assert wrapped >= -(-5 * 5 // (2 * 2))


def test_theorem4_fails_for_a_mask_larger_than_the_image() -> None:
    """A mask ten times as wide as the image makes the paper's "at most 2" a 10."""
    assert paper.theorem4_ratio((10, 10), Patch(1, 1), (2, 101)) == 10.0
    assert paper.theorem4_ratio((224, 224), Patch(32, 32), (48, 2272)) == 7.0


def test_theorem4_holds_while_the_mask_fits_into_the_image() -> None:
    """Every image, patch and mask up to 9 pixels, mask inside image: the ratio is at most 2, and reaches it."""
    coverages = {
        (length, paper.effective_coverage(Patch(p, p), (m, m))[0])
        for length in range(2, 10)
        for p in range(1, length)
        for m in range(p + 1, length + 1)
    }
    ratios = [
        paper.theorem4_ratio((height, width), Patch(1, 1), (1 + e_y, 1 + e_x))
        for (height, e_y), (width, e_x) in product(coverages, repeat=2)
    ]
    assert max(ratios) == 2.0
    assert min(ratios) >= 1.0


@pytest.mark.parametrize(
    ("patch", "mask", "paper_once", "exact_once", "paper_offset", "paper_bound", "exact_six"),
    [
        (23, 32, 625, 441, 3750, 3720, 2646),
        (32, 48, 196, 144, 1176, 1176, 864),
        (35, 56, 121, 81, 704, 684, 486),
        (39, 56, 196, 121, 1080, 1044, 726),
    ],
)
def test_table_of_counts(
    patch: int, mask: int, paper_once: int, exact_once: int, paper_offset: int, paper_bound: int, exact_six: int
) -> None:
    """The table "How many masks" for 224 × 224, from the paper's formulas and from the exact count."""
    image, square, size = (224, 224), Patch(patch, patch), (mask, mask)
    assert paper.replicated_count(image, square, size, 1) == paper_once
    assert paper.theorem2_bound(224, patch, mask) ** 2 == paper_once
    assert minimum_masks(image, square, size) == exact_once
    assert paper.offset_count(image, square, size, (2, 3)) == paper_offset
    assert paper.theorem3_bound(image, square, size, 6) == paper_bound
    assert minimum_masks(image, square, size, 6) == exact_six
    assert exact_six < paper_bound


@given(st.data())
def test_the_papers_count_is_never_below_the_exact_one(data: st.DataObject) -> None:
    """Replicated Tiling's count is at least ``N*``, so it wastes masks but never promises too much."""
    image = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    patch = Patch(data.draw(st.integers(1, image[0])), data.draw(st.integers(1, image[1])))
    mask = data.draw(st.tuples(st.integers(patch.height + 1, 45), st.integers(patch.width + 1, 45)))
    k = data.draw(st.integers(1, 6))
    assert paper.replicated_count(image, patch, mask, k) >= minimum_masks(image, patch, mask, k)


def anything(value: object) -> Any:
    """A value that the type checker lets through, for calls that must be refused at run time."""
    return value


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Patch(0, 3),
        lambda: Patch(3, -1),
        lambda: Patch(anything(True), 3),
        lambda: Patch(anything(2.0), 3),
        lambda: Mask(0, 0, 0, 3),
        lambda: Mask(0, 0, 3, anything(2.5)),
        lambda: Patch(6, 2).positions((5, 5)),
        lambda: Patch(2, 6).positions((5, 5)),
        lambda: find_districts((5, 5), Patch(6, 6), [Mask(0, 0, 9, 9)]),
        lambda: reach(Patch(4, 4), (3, 9)),
        lambda: reach(Patch(4, 4), (9, 3)),
        lambda: minimum_masks((9, 9), Patch(4, 4), (5, 3)),
        lambda: minimum_masks((9, 9), Patch(2, 2), (3, 3), 0),
        lambda: minimum_masks((9, 9), Patch(2, 2), (3, 3), -1),
        lambda: paper.effective_coverage(Patch(4, 4), (4, 5)),
        lambda: paper.replicated_count((9, 9), Patch(4, 4), (5, 4), 1),
        lambda: paper.theorem2_bound(9, 4, 4),
    ],
)
def test_senseless_sizes_are_refused(wrong: Callable[[], object]) -> None:
    """A size that makes no sense is a ``GeometryError`` that says what was expected and what came."""
    with pytest.raises(GeometryError, match=r"expected .*got ") as caught:
        wrong()
    assert isinstance(caught.value, CertmaskError)
    assert isinstance(caught.value, ValueError)
