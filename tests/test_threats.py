"""Threats beyond one square: families of boxes, the covers that hide them, what is said about them."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from brute import locations
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import certmask as cm
from certmask.covers import Cover, cover_from, joined_cover, patchcleanser_cover, stacked_cover, zoom_cover
from certmask.covers.default import suited_cover
from certmask.errors import CertmaskError, CoverError, GeometryError
from certmask.geometry.rectangles import bounding_boxes, fewest_masks
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Smoothing, Undefended
from certmask.threat import AnyRectangle, Patch, Size, Threat, UpTo, threat_from

IMAGES = st.tuples(st.integers(2, 12), st.integers(2, 12))


@given(IMAGES, st.integers(1, 40))
def test_boxes_of_an_area_are_all_there_and_none_too_many(image: Size, area: int) -> None:
    """Every rectangle of at most the area lies inside a box; every box is one of them, and inside no other."""
    if area >= image[0] * image[1]:
        with pytest.raises(GeometryError, match=r"expected an area below .*, got"):
            AnyRectangle(area).boxes_on(image)
        return
    boxes = AnyRectangle(area).boxes_on(image)
    for h, w in product(range(1, image[0] + 1), range(1, image[1] + 1)):
        assert (h * w <= area) == any(h <= height and w <= width for height, width in boxes)
    for one, other in product(boxes, boxes):
        assert one == other or one[0] > other[0] or one[1] > other[1]


def test_long_strips_belong_to_two_percent() -> None:
    """PatchCleanser's public list of boxes for 2 % leaves 10×102 out."""
    boxes = AnyRectangle(1024).boxes_on((224, 224))
    assert {(4, 224), (10, 102), (32, 32), (224, 4)} <= set(boxes)
    assert len(boxes) == 57


def hidden(cover: Cover, size: Size, corner: Size) -> bool:
    """Whether some place's masks, of every grid of every level, blank out all of a rectangle, pixel by pixel."""
    pixels = set(product(range(corner[0], corner[0] + size[0]), range(corner[1], corner[1] + size[1])))
    blank = [
        {(y, x) for y in range(*mask.rows(cover.image)[0]) for x in range(*mask.columns(cover.image)[0])}
        if mask.rows(cover.image) and mask.columns(cover.image)
        else set()
        for mask in cover.masks
    ]
    hides = np.array([pixels <= own for own in blank])
    return bool(hides[cover.cells.masks].all(axis=1).any())


def allowed(threat: Threat, image: Size) -> list[Size]:
    """Every size that the threat allows."""
    sizes = product(range(1, image[0] + 1), range(1, image[1] + 1))
    if isinstance(threat, AnyRectangle):
        return [(h, w) for h, w in sizes if h * w <= threat.area]
    return [(side, side) for side in range(1, threat.side + 1)]  # type: ignore[attr-defined]


@st.composite
def families(draw: st.DrawFn) -> tuple[Size, Threat]:
    """A threat of many boxes on a small image."""
    image = draw(IMAGES)
    if draw(st.booleans()):
        return image, AnyRectangle(draw(st.integers(1, image[0] * image[1] - 1)))
    side = draw(st.integers(1, min(image)))
    return image, UpTo(side, tuple({*draw(st.lists(st.integers(1, side), max_size=2)), side}))


@given(families(), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_every_box_of_a_family_is_hidden_on_every_level(
    family: tuple[Size, Threat], levels: list[int], align: int
) -> None:
    """Pixel by pixel, all shapes and sizes, everywhere; and the cover is rebuilt from its description."""
    image, threat = family
    try:
        cover = zoom_cover(image, threat, sorted(levels), align)
    except CertmaskError as error:
        if not any(known in str(error) for known in ("expected masks that cover every box", "where masks start every")):
            raise
        assume(False)
    for size in allowed(threat, image):
        for corner in locations(image, size):
            assert hidden(cover, size, corner), (size, corner)
    assert cover_from(json.loads(json.dumps(cover.describe()))) == cover


def partitions(count: int) -> list[list[range]]:
    """All ways to cut a row into runs."""
    return [
        [range(a, b) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
        for bits in product((False, True), repeat=count - 1)
        for cuts in [[n + 1 for n, cut in enumerate(bits) if cut]]
    ]


@given(IMAGES, st.integers(1, 30), st.integers(1, 60), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_no_other_runs_of_boxes_take_fewer_masks(image: Size, area: int, budget: int, align: int) -> None:
    """Against all runs, with every shape of masks tried."""
    if area >= image[0] * image[1]:
        return
    boxes = AnyRectangle(area).boxes_on(image)[:7]

    def masks(box: Size) -> float:
        counts = [
            len(patchcleanser_cover(image, Patch(*box), mask=(h, w), align=align))
            for h in (*range(align, image[0], align), image[0])
            for w in (*range(align, image[1], align), image[1])
            if h * w <= budget and _possible(image, box, (h, w), align)
        ]
        found = fewest_masks(image, box, budget, align)
        assert (found.masks if found else None) == min(counts, default=None)
        return min(counts, default=float("inf"))

    known = {(a, b): masks((boxes[b][0], boxes[a][1])) for b in range(len(boxes)) for a in range(b + 1)}
    best = min(sum(known[run[0], run[-1]] for run in runs) for runs in partitions(len(boxes)))
    if best == float("inf"):
        with pytest.raises(GeometryError, match=r"expected masks .*, got none"):
            bounding_boxes(image, boxes, budget, align)
        return
    bounds = bounding_boxes(image, boxes, budget, align)
    assert sum(known[bound.first, bound.last] for bound in bounds) == best
    assert [n for bound in bounds for n in bound.own] == list(range(len(boxes)))


def _possible(image: Size, box: Size, mask: Size, align: int) -> bool:
    try:
        patchcleanser_cover(image, Patch(*box), mask=mask, align=align)
    except CertmaskError:
        return False
    return True


def test_what_does_not_hold_a_threat_is_no_cover() -> None:
    """A box that no patch holds, a size that is not deployed, masks for a smaller patch, parts that do not fit."""
    low, high = (patchcleanser_cover(6, Patch(*size), per_axis=2) for size in ((1, 4), (4, 1)))
    with pytest.raises(CoverError, match=r"expected patches that hold .*, got none that holds 2×2"):
        joined_cover(AnyRectangle(4), [Patch(1, 4), Patch(4, 1)], [low, high])
    square = patchcleanser_cover(6, 3, per_axis=2)
    with pytest.raises(CoverError, match=r"expected a patch of each size .*, got none of 2×2"):
        joined_cover(UpTo(3, (2, 3)), [Patch(3, 3)], [square])
    with pytest.raises(CoverError, match=r"expected grids that cover any 4×1 patch, got"):
        joined_cover(AnyRectangle(3), [Patch(4, 1)], [square])
    with pytest.raises(CoverError, match=r"expected parts of one image"):
        joined_cover(UpTo(3, (2, 3)), [Patch(2, 2), Patch(3, 3)], [patchcleanser_cover(7, 3, per_axis=2), square])
    joined = joined_cover(UpTo(3, (2, 3)), [Patch(2, 2), Patch(3, 3)], [square, square])
    with pytest.raises(CoverError, match=r"expected levels of one image and patch"):
        stacked_cover([joined, square])
    with pytest.raises(GeometryError, match=r"expected a patch of one size, got"):
        _ = joined.patch


@pytest.mark.parametrize(
    ("threat", "said"),
    [
        (Patch(32, 24), "any 32×24 patch"),
        (Patch(32, 32, 2), "any 2 patches of 32×32"),
        (AnyRectangle(1024), "any rectangle of up to 1024 pixels"),
        (UpTo(48), "any patch of up to 48×48"),
    ],
    ids=repr,
)
def test_threats_survive_a_description(threat: Threat, said: str) -> None:
    assert threat_from(json.loads(json.dumps(threat.describe()))) == threat
    assert str(threat).startswith(said)


def test_sizes_are_chosen_where_none_are_given() -> None:
    assert UpTo(48).sizes == (16, 24, 32, 40, 48)
    assert UpTo(1).sizes == (1,)
    assert UpTo(48, (48, 16)).steps == (Patch(16, 16), Patch(48, 48))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Patch(3, 3, 0),
        lambda: Patch(3, 3, 9),
        lambda: Patch(3, 3, True),
        lambda: Patch(3, 3, 1.5),  # type: ignore[arg-type]
        lambda: AnyRectangle(0),
        lambda: AnyRectangle(2.5),  # type: ignore[arg-type]
        lambda: UpTo(0),
        lambda: UpTo(8, (4, 9)),
        lambda: UpTo(8, (4, 6)),
        lambda: UpTo(8, (0, 8)),
        lambda: threat_from({"kind": "up to", "side": 8, "sizes": [3, 9]}),
        lambda: threat_from({"kind": "any rectangle", "volume": 8}),
        lambda: zoom_cover(8, UpTo(9)),
        lambda: zoom_cover(8, AnyRectangle(64)),
        lambda: zoom_cover(8, AnyRectangle(4), ((2, 2),)),
        lambda: zoom_cover(8, Patch(9, 1, 2)),
    ],
)
def test_what_is_no_threat_is_refused_in_one_line(wrong: object) -> None:
    with pytest.raises(CertmaskError, match=r"expected .*, got"):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize("threat", [Patch(4, 4, 2), UpTo(6, (3, 6))], ids=str)
def test_rules_that_know_one_patch_of_one_size_say_so(threat: Threat) -> None:
    """And those that judge level by level ask for levels."""
    cover = zoom_cover(24, threat, (2, 3))
    for rule in (PatchCleanser(), Smoothing()):
        with pytest.raises(CoverError, match=r"expected one patch of a known size for .*, got"):
            rule.check(cover)
    Undefended().check(cover)
    for jury in (JuryRecovery(), JuryDetection()):
        jury.check(cover)
    with pytest.raises(CoverError, match=r"expected a cover of levels against any 2 patches"):
        JuryRecovery().check(patchcleanser_cover(24, Patch(4, 4, 2), per_axis=3))


def test_patchcleanser_takes_rectangles_of_any_shape() -> None:
    """One mask for every place is all that it asks for."""
    cover = suited_cover((24, 24), AnyRectangle(9), suits="single")
    PatchCleanser().check(cover)
    assert len(cover.levels) == 1


def test_too_many_hypotheses_are_refused() -> None:
    with pytest.raises(
        CoverError, match=r"expected levels that leave at most 4,000 hypotheses to jury recovery, got 10,296"
    ):
        JuryRecovery().check(zoom_cover(224, Patch(32, 32, 2), (12,)))
    JuryDetection().check(zoom_cover(224, Patch(32, 32, 2), (12,)))
    with pytest.raises(CoverError, match=r"at most 200,000 hypotheses to jury detection, got 30,260,340"):
        JuryDetection().check(zoom_cover(224, Patch(32, 32, 8), (2, 3, 6)))


@pytest.mark.parametrize("image", [32, 224])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_default_levels_suit_the_rule(image: int, count: int) -> None:
    """Whatever the size of patches, up to a third of the input."""
    for side in sorted({1, 2, *range(image // 28, image // 3, max(image // 16, 1))}):
        for rule, suits in ((JuryRecovery(), "zoom"), (JuryDetection(), "zoom-once")):
            rule.check(suited_cover((image, image), Patch(side, side, count), suits=suits))


@pytest.mark.parametrize(("per_axis", "passes"), [(3, 255), (4, 2_516), (6, 66_711)])
def test_two_patches_cost_what_the_prototype_counted(per_axis: int, passes: int) -> None:
    """One to four masks of one level."""
    cover = zoom_cover(224, Patch(32, 32, 2), (per_axis,), 16)
    assert JuryRecovery().most_passes(cover) == cover.sets(4) == passes


def test_masks_for_any_rectangle_beside_those_for_a_square() -> None:
    """How many masks of the same area more shapes take."""
    square = [len(level) for level in zoom_cover(224, 32, (2, 3, 4, 6)).levels]
    shapes = [len(level) for level in zoom_cover(224, AnyRectangle(1024)).levels]
    assert (square, shapes) == ([4, 9, 16, 36], [10, 38, 84, 302])


def test_a_single_patch_is_told_as_it_always_was() -> None:
    """Files of before are continued."""
    assert Patch(3, 5).describe() == {"kind": "patch", "height": 3, "width": 5}
    assert Patch(3, 5, 2).describe() == {"kind": "patch", "height": 3, "width": 5, "count": 2}
    assert zoom_cover(24, 5).digest != zoom_cover(24, Patch(5, 5, 2)).digest
    assert cm.zoom_cover(24, 5) != cm.zoom_cover(24, Patch(5, 5, 2), (2, 3, 6, 12))
