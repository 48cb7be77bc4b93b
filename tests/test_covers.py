"""Covers against pixels: every tiling keeps the fold it promises, with the number of masks it promises."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any, TypeAlias

import brute
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from certmask.covers import (
    TILINGS,
    Cover,
    cover_from,
    custom_cover,
    default_cover,
    minimal_cover,
    offset_cover,
    patchcleanser_cover,
    replicated_cover,
    spread_cover,
    stacked_cover,
    zoom_cover,
)
from certmask.covers.tilings import minimal_starts, spread_starts
from certmask.errors import CertmaskError, CoverError, GeometryError
from certmask.geometry import Mask, minimum_masks, minimum_per_axis, paper, reach
from certmask.threat import Patch, Size

Scene: TypeAlias = tuple[Size, Patch, Size, Size]


@st.composite
def axes(draw: st.DrawFn, spare: int, most: int) -> tuple[int, int, int, int]:
    """Image, patch, mask and fold along one axis; three in four have room for several masks."""
    fold = draw(st.integers(1, 3))
    if draw(st.integers(0, 3)):
        length = draw(st.integers(3 + spare, most))
        p = draw(st.integers(1, length // 2))
        return length, p, draw(st.integers(p + spare, length - 1)), fold
    length = draw(st.integers(1, most))
    p = draw(st.integers(1, length))
    return length, p, draw(st.integers(p + spare, length + spare + 3)), fold


@st.composite
def scenes(draw: st.DrawFn, spare: int = 0, most: int = 12) -> Scene:
    """An image, a patch inside it, a mask at least ``spare`` pixels larger (also larger than the image), a fold."""
    y, x = draw(axes(spare, most)), draw(axes(spare, most))
    return (y[0], x[0]), Patch(y[1], x[1]), (y[2], x[2]), (y[3], x[3])


def pixels(mask: Mask, image: Size) -> bytes:
    return brute.paint(mask, image).tobytes()


def painted(cover: Cover) -> list[bytes]:
    return [pixels(mask, cover.image) for mask in cover.masks]


def profiles(cover: Cover) -> Size:
    """How many different sets of rows, and of columns, the masks blank out."""
    canvases = [brute.paint(mask, cover.image) for mask in cover.masks]
    return len({c.any(axis=1).tobytes() for c in canvases}), len({c.any(axis=0).tobytes() for c in canvases})


def assert_verified(cover: Cover) -> None:
    """What the cover says about itself is what its pixels say, and each of its grids covers everything alone."""
    image, patch = cover.image, cover.patch.size
    folds = brute.folds(image, patch, cover.masks, cover.copies).values()
    juries = brute.juries(image, patch, cover.masks)
    assert cover.min_fold == min(folds) >= cover.fold[0] * cover.fold[1] == cover.k
    assert cover.max_fold == max(folds)
    assert cover.min_jury == min(len(jury) for jury in juries.values()) >= 1
    assert {cover.districts.jury(d) for d in range(len(cover.districts))} == set(juries.values())
    assert cover.placed == sum(cover.copies) >= len(cover) == len(cover.masks) == len(cover.copies)
    assert min(cover.copies) >= 1
    for grid in cover.grids:
        assert len(set(grid)) == len(grid)
        assert all(set(grid) & set(jury) for jury in juries.values()), "a grid with a hole"


def fits(mask: Size, image: Size) -> bool:
    return mask[0] < image[0] and mask[1] < image[1]


@settings(max_examples=600, deadline=None)
@given(scenes())
@example(((7, 7), Patch(1, 1), (3, 3), (3, 3)))
@example(((4, 9), Patch(4, 2), (4, 3), (2, 3)))
def test_minimal_has_exactly_the_minimum(scene: Scene) -> None:
    """``N*(k)`` placed masks, ``k`` of them on every location, one different mask per start where the slack allows."""
    image, patch, mask, fold = scene
    cover = minimal_cover(image, patch, mask, fold)
    assert_verified(cover)
    assert len(set(painted(cover))) == len(cover)
    assert cover.placed == minimum_masks(image, patch, mask, fold[0] * fold[1])
    assert set().union(*cover.grids) == set(range(len(cover)))

    positions, spans, counts = patch.positions(image), reach(patch, mask), minimum_per_axis(image, patch, mask)
    for axis, different in enumerate(profiles(cover)):
        slack = counts[axis] * spans[axis] - positions[axis]
        starts = [start for grid in minimal_starts(positions[axis], spans[axis], fold[axis]) for start in grid]
        assert len(starts) == fold[axis] * counts[axis]
        if fold[axis] - 1 <= slack:
            assert len(set(starts)) == len(starts)
        if mask[axis] >= image[axis]:
            assert different == 1, "a mask over the whole axis blanks out the same pixels wherever it starts"
        elif fold[axis] - 1 <= slack:
            assert different == fold[axis] * counts[axis]


@settings(max_examples=600, deadline=None)
@given(scenes())
@example(((7, 7), Patch(1, 1), (3, 3), (3, 3)))
@example(((10, 3), Patch(2, 1), (4, 3), (3, 2)))
def test_spread_is_made_of_complete_grids(scene: Scene) -> None:
    """``k`` grids that each cover alone, at most ``fold − 1`` starts per axis over the minimum, no mask repeated."""
    image, patch, mask, fold = scene
    spans = reach(patch, mask)
    fold = min(fold[0], spans[0]), min(fold[1], spans[1])
    cover = spread_cover(image, patch, mask, fold)
    assert_verified(cover)
    assert len(set(painted(cover))) == len(cover)
    assert set().union(*cover.grids) == set(range(len(cover)))
    if fits(mask, image):
        assert set(cover.copies) == {1}
        assert len(cover.grids) == cover.k
        assert cover.min_jury == cover.min_fold

    positions, counts, different = patch.positions(image), minimum_per_axis(image, patch, mask), profiles(cover)
    for axis in (0, 1):
        grids = spread_starts(positions[axis], spans[axis], fold[axis])
        starts = [start for grid in grids for start in grid]
        assert len(set(starts)) == len(starts) <= fold[axis] * counts[axis] + fold[axis] - 1
        assert different[axis] <= len(starts)
    assert cover.placed <= (fold[0] * (counts[0] + 1) - 1) * (fold[1] * (counts[1] + 1) - 1)


def effective_starts(image: Size, patch: Patch, mask: Size, axis: int) -> list[int]:
    """Masks whose effective areas (the mask less half a patch on either side) lie side by side from pixel 0 on."""
    half, effective = patch.size[axis] // 2, mask[axis] - patch.size[axis]
    return [area - half for area in range(image[axis]) if area % effective == 0]


@settings(max_examples=400, deadline=None)
@given(scenes(spare=1))
@example(((9, 9), Patch(9, 9), (11, 11), (2, 3)))
def test_replicated_places_the_papers_count(scene: Scene) -> None:
    """As many masks as the paper counts, each placed ``k`` times: the juries are those of ``k = 1``."""
    image, patch, mask, fold = scene
    cover = replicated_cover(image, patch, mask, fold)
    once = replicated_cover(image, patch, mask)
    assert_verified(cover)
    assert len(set(painted(cover))) == len(cover)
    assert cover.placed == paper.replicated_count(image, patch, mask, cover.k)
    definition = [
        Mask(top, left, *mask)
        for top in effective_starts(image, patch, mask, 0)
        for left in effective_starts(image, patch, mask, 1)
    ]
    assert dict(zip(painted(once), once.copies, strict=True)) == Counter(pixels(m, image) for m in definition)
    assert cover.masks == once.masks
    assert cover.copies == tuple(cover.k * times for times in once.copies)
    assert cover.min_fold == cover.k * once.min_fold
    if fits(mask, image):
        assert set(cover.copies) == {cover.k}


def offset_by_definition(image: Size, patch: Patch, mask: Size, fold: Size) -> list[Mask]:
    """Offset Tiling from the paper's text: real-valued strides ``(M − 2r)/m``, floored to pixels, wrapped."""
    starts = []
    for axis, (length, p, m) in enumerate(zip(image, patch.size, mask, strict=True)):
        stride = Fraction(m - p, fold[axis])
        starts.append([floor(i * stride) - m // 2 for i in range(ceil(length / stride))])
    return [Mask(top, left, *mask, wraps=True) for top in starts[0] for left in starts[1]]


@settings(max_examples=400, deadline=None)
@given(scenes(spare=1, most=10))
@example(((10, 10), Patch(1, 1), (30, 30), (2, 2)))
@example(((6, 7), Patch(3, 2), (4, 3), (2, 3)))
def test_offset_places_the_papers_count(scene: Scene) -> None:
    """The paper's masks, each kept once with its copies; an error exactly if a giant mask makes the paper place < k."""
    image, patch, mask, fold = scene
    k = fold[0] * fold[1]
    placed = offset_by_definition(image, patch, mask, fold)
    assert len(placed) == paper.offset_count(image, patch, mask, fold)
    if min(brute.folds(image, patch.size, placed, [1] * len(placed)).values()) < k:
        assert not fits(mask, image)
        with pytest.raises(CoverError, match=r"expected .*got "):
            offset_cover(image, patch, mask, fold)
        return
    cover = offset_cover(image, patch, mask, fold)
    assert_verified(cover)
    assert cover.placed == len(placed)
    assert cover.grids == ((tuple(range(len(cover))),) if k == 1 else ())
    assert len(set(painted(cover))) == len(cover)
    counted = Counter(pixels(m, image) for m in placed)
    assert dict(zip(painted(cover), cover.copies, strict=True)) == counted


@settings(max_examples=400, deadline=None)
@given(scenes(most=14), st.tuples(st.integers(1, 16), st.integers(1, 16)))
def test_patchcleanser_keeps_every_mask_inside(scene: Scene, asked: Size) -> None:
    """At most the masks per axis that were asked for, none outside, and the smallest mask that such a grid can have."""
    image, patch, *_ = scene
    cover = patchcleanser_cover(image, patch, per_axis=asked)
    assert_verified(cover)
    assert set(cover.copies) == {1}
    for mask in cover.masks:
        assert 0 <= mask.top <= mask.top + mask.height <= image[0]
        assert 0 <= mask.left <= mask.left + mask.width <= image[1]
    for axis, different in enumerate(profiles(cover)):
        assert different <= asked[axis]
        smaller = cover.mask[axis] - 1
        if smaller >= patch.size[axis]:
            assert -(-patch.positions(image)[axis] // (smaller - patch.size[axis] + 1)) > asked[axis]


@settings(max_examples=400, deadline=None)
@given(scenes(most=14))
def test_patchcleanser_with_a_given_mask_is_minimal(scene: Scene) -> None:
    """A grid of masks of a given size has the minimum number of masks, and none outside if the mask fits."""
    image, patch, mask, _ = scene
    cover = patchcleanser_cover(image, patch, mask=mask)
    assert_verified(cover)
    assert cover.mask == mask
    assert len(cover) == cover.placed == minimum_masks(image, patch, mask)
    for axis in (0, 1):
        starts = [(m.top, m.left)[axis] for m in cover.masks]
        assert 0 <= min(starts) <= max(starts) <= max(image[axis] - mask[axis], 0)


MASKS = st.builds(
    Mask,
    top=st.integers(-12, 9),
    left=st.integers(-12, 9),
    height=st.integers(3, 14),
    width=st.integers(3, 14),
    wraps=st.booleans(),
)


def assert_names_the_hole(message: str, image: Size, patch: Patch, masks: list[Mask], k: int) -> None:
    """The message gives the fold asked for, the worst fold found, and a location that really has it."""
    said = re.search(r"expected .* at least (\d+) times, got (\d+) at \((\d+), (\d+)\)", message)
    assert said is not None, message
    asked, got, y, x = map(int, said.groups())
    folds = brute.folds(image, patch.size, masks, [1] * len(masks))
    assert asked == k
    assert got == folds[y, x] == min(folds.values()) < k


@settings(max_examples=500, deadline=None)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(MASKS, min_size=1, max_size=9),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
@example((4, 4), (2, 2), [Mask(0, 0, 4, 4), Mask(-3, -3, 9, 9), Mask(2, 1, 5, 5, wraps=True)], (1, 2))
def test_custom_is_a_cover_or_an_error(image: Size, patch_size: Size, masks: list[Mask], fold: Size) -> None:
    """Any masks at all: accepted exactly if the pixels say that every location is covered ``k`` times."""
    assume(patch_size[0] <= image[0] and patch_size[1] <= image[1])
    patch, k = Patch(*patch_size), fold[0] * fold[1]
    folds = brute.folds(image, patch.size, masks, [1] * len(masks)).values()
    if min(folds) < k:
        with pytest.raises(CoverError) as caught:
            custom_cover(image, patch, masks, fold)
        assert_names_the_hole(str(caught.value), image, patch, masks, k)
        return
    cover = custom_cover(image, patch, masks, fold)
    assert_verified(cover)
    assert (cover.placed, cover.min_fold, cover.max_fold) == (len(masks), min(folds), max(folds))
    assert cover.grids == (tuple(range(len(cover))),)
    visible = [canvas for canvas in painted(cover) if any(canvas)]
    assert len(set(visible)) == len(visible)


@settings(max_examples=200, deadline=None)
@given(scenes(most=9))
def test_removing_any_mask_of_a_minimal_cover_leaves_a_hole(scene: Scene) -> None:
    """A minimal 1-fold cover has no mask to spare, and the verification notices each one that is missing."""
    image, patch, mask, _ = scene
    cover = minimal_cover(image, patch, mask)
    for number in range(len(cover)):
        rest = [*cover.masks[:number], *cover.masks[number + 1 :]]
        with pytest.raises(CoverError, match=r"expected .*got "):
            custom_cover(image, patch, rest)


@settings(max_examples=400, deadline=None)
@given(scenes(most=10), st.tuples(st.integers(1, 10), st.integers(1, 10)))
def test_masks_held_against_another_patch_are_verified_again(scene: Scene, other: Size) -> None:
    """``for_patch`` recounts for the new patch; a patch that the masks cannot hide is an error."""
    image, patch, mask, fold = scene
    assume(other[0] <= image[0] and other[1] <= image[1])
    cover = minimal_cover(image, patch, mask, fold)
    if min(brute.folds(image, other, cover.masks, cover.copies).values()) < 1:
        with pytest.raises(CoverError, match=r"expected .*got 0 at "):
            cover.for_patch(Patch(*other))
        return
    again = cover.for_patch(Patch(*other))
    assert_verified(again)
    assert (again.masks, again.copies, again.patch.size) == (cover.masks, cover.copies, other)


@settings(max_examples=200, deadline=None)
@given(scenes(most=8))
def test_pairs_are_counted_once_each(scene: Scene) -> None:
    """``pairs`` counts unordered pairs of different masks: all of them, or those inside one grid."""
    image, patch, mask, fold = scene
    cover = minimal_cover(image, patch, mask, fold)
    every = {frozenset((i, j)) for i in range(len(cover)) for j in range(i)}
    aligned = {pair for pair in every if any(pair <= set(grid) for grid in cover.grids)}
    assert cover.pairs() == cover.pairs("all") == len(every)
    assert cover.pairs("aligned") == len(aligned)


def test_offset_below_one_pixel_repeats_masks() -> None:
    """14 px patch, 16 px mask on 224: 75,264 placed, 224 × 224 different, the repeated ones kept once and counted."""
    image, patch, mask = (224, 224), Patch(14, 14), (16, 16)
    cover = offset_cover(image, patch, mask, (2, 3))
    assert cover.placed == paper.offset_count(image, patch, mask, (2, 3)) == 75264
    assert len(cover) == len({m.footprint(image) for m in cover.masks}) == 224 * 224
    assert Counter(cover.copies) == {1: 224 * 112, 2: 224 * 112}
    assert cover.min_fold >= 6
    assert cover.min_jury == 9, "a reach of three pixels each way, a mask at every pixel"
    assert (cover.districts.sizes == 9).all()
    assert len(cover.districts) == 211 * 211


def test_replicated_at_full_size_copies_every_mask_k_times() -> None:
    """The paper's k = 6 has 196 different masks, each placed six times, and juries no larger than those of k = 1."""
    cover = replicated_cover(224, Patch(32, 32), 48, (2, 3))
    assert cover.placed == 1176
    assert cover.copies == (6,) * 196
    assert cover.min_fold == 6 * cover.min_jury == 6
    assert cover.min_jury == replicated_cover(224, Patch(32, 32), 48).min_jury


def test_spread_at_full_size_has_thirteen_starts() -> None:
    """Fold 2 with 64 px masks against 32 px: 13 starts per axis, in grids of 6 and 7."""
    cover = spread_cover(224, Patch(32, 32), 64, 2)
    assert profiles(cover) == (13, 13)
    assert len(cover) == 169
    assert sorted(len(grid) for grid in cover.grids) == [36, 42, 42, 49]
    assert cover.min_jury >= 4


def test_digest_tells_covers_apart() -> None:
    """The digest depends on image, patch, footprints, copies and grids alone; former ones leave the grids out."""
    base = minimal_cover(20, Patch(3, 3), 6, (2, 1))
    same = replace(base, tiling="custom", mask=(5, 5), fold=(1, 1))
    loose = custom_cover(20, Patch(3, 3), [m for m, c in zip(base.masks, base.copies, strict=True) for _ in range(c)])
    others = [
        minimal_cover(20, Patch(3, 3), 6, (1, 2)),
        minimal_cover(20, Patch(3, 3), 6),
        minimal_cover((20, 21), Patch(3, 3), 6, (2, 1)),
        base.for_patch(Patch(2, 2)),
        replicated_cover(20, Patch(3, 3), 6),
        replicated_cover(20, Patch(3, 3), 6, 2),
        loose,
    ]
    assert base.digest == same.digest
    former = "0123456789abcdef"
    assert base.digest_as(former) == loose.digest_as(former) == same.digest_as(former)
    assert base.digest_as(base.digest) == base.digest != base.digest_as(former)
    assert len({base.digest, *(cover.digest for cover in others)}) == 1 + len(others)


def test_the_register_of_tilings_names_them_as_they_name_themselves() -> None:
    """Every registered tiling builds a cover under its own name."""
    for name, build in TILINGS.items():
        options: dict[str, dict[str, Any]] = {"patchcleanser": {"per_axis": 3}, "zoom": {"levels": (2, 3)}}
        options |= {"bands": {"band": 2}, "blocks": {"band": 2}}
        option = options.get(name, {"mask": 5})
        cover = build(12, Patch(3, 3), **option)
        assert cover.tiling == name == cover.describe()["tiling"]
        assert name in str(cover)


def anything(value: object) -> Any:
    """A value that the type checker lets through, for calls that must be refused at run time."""
    return value


def assert_refused(kind: type[CertmaskError], call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=r"expected .*got ") as caught:
        call()
    assert isinstance(caught.value, ValueError)


FOLD_TILINGS = [minimal_cover, spread_cover, replicated_cover, offset_cover]


@pytest.mark.parametrize("tiling", FOLD_TILINGS)
@pytest.mark.parametrize(
    "fold", [0, -1, True, False, 1.5, 2.0, (1, 0), (-2, 1), (1, True), (1.0, 2), (1, 2, 3), (1,), "2"]
)
def test_senseless_folds_are_refused(tiling: Callable[..., Cover], fold: object) -> None:
    """Zero, negative, boolean, fractional or misshapen folds are a ``GeometryError`` in every tiling."""
    assert_refused(GeometryError, lambda: tiling(12, Patch(2, 2), 4, fold))


@pytest.mark.parametrize("fold", [0, -1, True, 1.5, (1, 0), (1, True), (1.0, 2)])
def test_senseless_folds_of_custom_covers_are_refused(fold: object) -> None:
    """A custom cover checks its fold like any tiling."""
    assert_refused(GeometryError, lambda: custom_cover(4, Patch(2, 2), [Mask(0, 0, 4, 4)], anything(fold)))


@pytest.mark.parametrize("tiling", FOLD_TILINGS)
def test_senseless_sizes_are_refused(tiling: Callable[..., Cover]) -> None:
    """A mask smaller than the patch, a patch larger than the image, and sizes that are no sizes."""
    assert_refused(GeometryError, lambda: tiling(12, Patch(4, 4), 3))
    assert_refused(GeometryError, lambda: tiling(12, Patch(4, 4), (9, 3)))
    assert_refused(GeometryError, lambda: tiling(12, Patch(4, 4), (3, 9)))
    assert_refused(GeometryError, lambda: tiling(12, Patch(13, 2), 20))
    assert_refused(GeometryError, lambda: tiling((12, 5), Patch(2, 6), 20))
    assert_refused(GeometryError, lambda: tiling(0, Patch(1, 1), 2))
    assert_refused(GeometryError, lambda: tiling((12, -1), Patch(1, 1), 2))
    assert_refused(GeometryError, lambda: tiling(12, Patch(1, 1), (0, 2)))


@pytest.mark.parametrize("tiling", FOLD_TILINGS)
def test_fractional_sizes_are_refused(tiling: Callable[..., Cover]) -> None:
    """A float is never a size, not even a whole one."""
    assert_refused(GeometryError, lambda: tiling((12.0, 12), Patch(1, 1), 2))
    assert_refused(GeometryError, lambda: tiling(12, Patch(1, 1), (2, 2.5)))
    assert_refused(GeometryError, lambda: tiling(12.0, Patch(1, 1), 2))
    assert_refused(GeometryError, lambda: tiling(12, Patch(1, 1), 2.0))


@pytest.mark.parametrize("tiling", [replicated_cover, offset_cover])
def test_the_papers_tilings_need_a_mask_larger_than_the_patch(tiling: Callable[..., Cover]) -> None:
    """Mask equal to patch: the paper divides by zero, certmask says so."""
    assert_refused(GeometryError, lambda: tiling(12, Patch(4, 4), 4))
    assert_refused(GeometryError, lambda: tiling(12, Patch(4, 4), (5, 4)))


def test_patchcleanser_wants_exactly_one_option() -> None:
    """Both or neither of ``per_axis`` and ``mask`` is a ``CoverError``."""
    assert_refused(CoverError, lambda: patchcleanser_cover(12, Patch(3, 3)))
    assert_refused(CoverError, lambda: patchcleanser_cover(12, Patch(3, 3), per_axis=3, mask=5))
    assert_refused(GeometryError, lambda: patchcleanser_cover(12, Patch(3, 3), mask=2))
    assert_refused(GeometryError, lambda: patchcleanser_cover(12, Patch(13, 3), per_axis=3))


def test_the_default_cover_against_32_pixels_on_224() -> None:
    """128, 96, 64 and 48 px, 144 cells."""
    cover = default_cover(224, Patch(32, 32))
    assert [(level.mask[0], len(level)) for level in cover.levels] == [(128, 4), (96, 9), (64, 36), (48, 144)]
    assert len(cover.cells) == 144


def assert_zooms(cover: Cover, align: int) -> None:
    """Every location in a cell inside masks of every level, pixel by pixel; masks on the grid; rebuilt alike."""
    places = brute.locations(cover.image, cover.patch.size)
    for level in cover.levels:
        assert {mask.top % align for mask in level.masks} == {mask.left % align for mask in level.masks} == {0}
        for start, length, side in ((0, level.mask[0], cover.image[0]), (1, level.mask[1], cover.image[1])):
            assert length % align == 0 or length == side, (start, level)
    by_level = [list(cover.cells.masks[:, columns].T) for columns in cover.level_columns]
    hidden = 0
    for cell, (top, bottom, left, right) in enumerate(cover.cells.boxes.tolist()):
        corners = {(y, x) for y in (top, bottom - 1) for x in (left, right - 1)}
        hidden += (bottom - top) * (right - left)
        for level, columns in zip(cover.levels, by_level, strict=True):
            own = {mask.footprint(cover.image) for mask in level.masks}
            for masks in columns:
                mask = cover.masks[int(masks[cell])]
                assert mask.footprint(cover.image) in own
                assert all(
                    mask.top <= y
                    and mask.left <= x
                    and y + cover.patch.height <= mask.top + mask.height
                    and x + cover.patch.width <= mask.left + mask.width
                    for y, x in corners
                )
    assert hidden == len(places)
    assert cover_from(json.loads(json.dumps(cover.describe()))) == cover


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_zoom_covers_at_every_level(data: st.DataObject) -> None:
    """Images from 4 to 40 px, any patch, any grid, levels with and without a small jury."""
    image = data.draw(st.tuples(st.integers(4, 40), st.integers(4, 40)))
    patch = Patch(*(data.draw(st.integers(1, length)) for length in image))
    levels = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    align = data.draw(st.sampled_from([1, 2, 4, 5]))
    cover = zoom_cover(image, patch, levels, align)
    assert len(cover.levels) == len(levels)
    for level, per_axis in zip(cover.levels, levels, strict=True):
        assert len(level) <= max(per_axis, -(-max(patch.positions(image)) // align)) ** 2
    assert_zooms(cover, align)


@pytest.mark.parametrize(
    ("image", "patch", "levels", "align"),
    [
        (32, 5, None, None),
        (32, 5, (2, (3, 2)), 2),
        (64, (8, 20), None, None),
        (224, 32, None, 16),
        (224, 32, (3, (6, 2)), 16),
        (224, 7, (3, 6, 12), 14),
        ((256, 192), (40, 23), None, 16),
        (384, 54, None, 16),
    ],
)
def test_zoom_covers_of_usual_sizes(image: Any, patch: Any, levels: Any, align: int | None) -> None:
    cover = zoom_cover(image, patch, levels, align)
    assert_zooms(cover, align or cover.align)
    counts = [len(level) for level in cover.levels]
    assert counts == sorted(set(counts)), "from few masks to many"


@given(st.integers(1, 40), st.integers(1, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_the_default_cover_exists_for_every_patch(height: int, width: int, data: st.DataObject) -> None:
    patch = Patch(data.draw(st.integers(1, height)), data.draw(st.integers(1, width)))
    assert_zooms(default_cover((height, width), patch), 1)


def test_levels_belong_together() -> None:
    """One image and patch, complete grids that do not wrap, no levels within levels, at least one."""
    level, finer = patchcleanser_cover(12, 3, per_axis=2), patchcleanser_cover(12, 3, per_axis=3)
    assert stacked_cover([level, finer]).level_columns == (slice(0, 1), slice(1, 2))
    twice = stacked_cover([level, level]).cells.masks
    assert (twice[:, 0] == twice[:, 1]).all()
    for wrong in (
        [],
        [level, patchcleanser_cover(12, 4, per_axis=3)],
        [level, patchcleanser_cover(13, 3, per_axis=3)],
        [level, stacked_cover([finer])],
        [level, offset_cover(12, 3, 6, 2)],
        [level, finer.for_patch(Patch(3, 3))],
    ):
        assert_refused(CoverError, lambda wrong=wrong: stacked_cover(wrong))  # type: ignore[misc]
    assert_refused(GeometryError, lambda: stacked_cover([offset_cover(12, 3, 6)]))
    for levels in (2.5, (0,), ((3, 0),), (True,)):
        assert_refused(CertmaskError, lambda levels=levels: zoom_cover(12, 3, (levels,)))  # type: ignore[misc]
    assert stacked_cover([level, finer]).digest != stacked_cover([finer, level]).digest


@pytest.mark.parametrize("per_axis", [0, -1, True, (3, 0), 2.5])
def test_patchcleanser_refuses_senseless_counts(per_axis: object) -> None:
    """The number of masks per axis is a positive integer."""
    assert_refused(GeometryError, lambda: patchcleanser_cover(12, Patch(3, 3), per_axis=anything(per_axis)))


@pytest.mark.parametrize("fold", [4, (4, 1), (1, 4), (2, 9)])
def test_spread_refuses_a_fold_above_the_reach(fold: Size | int) -> None:
    """More grids than positions under one mask would repeat masks: refused, with the reach in the message."""
    assert_refused(CoverError, lambda: spread_cover(12, Patch(2, 2), 4, fold))
    with pytest.raises(CoverError, match="at most 3 per axis"):
        spread_cover(12, Patch(2, 2), 4, fold)
    assert spread_cover(12, Patch(2, 2), 4, 3).min_jury >= 9


def test_a_custom_cover_with_a_hole_names_it() -> None:
    """Three quarters of a grid: the error names the one count and the first location of the uncovered quarter."""
    quarters = [Mask(0, 0, 5, 5), Mask(0, 4, 5, 5), Mask(4, 0, 5, 5), Mask(4, 4, 5, 5)]
    assert custom_cover(9, Patch(2, 2), quarters).min_fold == 1
    assert_refused(CoverError, lambda: custom_cover(9, Patch(2, 2), quarters[:3]))
    with pytest.raises(CoverError, match=r"at least 1 times, got 0 at \(4, 4\)"):
        custom_cover(9, Patch(2, 2), quarters[:3])
    with pytest.raises(CoverError, match=r"at least 2 times, got 1 at \(0, 0\)"):
        custom_cover(9, Patch(2, 2), quarters, (2, 1))


def test_a_custom_cover_needs_masks() -> None:
    """No masks, no cover."""
    assert_refused(CoverError, lambda: custom_cover(9, Patch(2, 2), []))
    assert_refused(GeometryError, lambda: custom_cover(9, Patch(10, 2), [Mask(0, 0, 20, 20)]))
