"""The map of an answer: every location in its place, places as the rule judges them, frames where a proof is weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_network
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

import certmask as cm
from certmask.certificate import NO_CLASS, Place, Weakest
from certmask.classifier import Classifier
from certmask.covers import Cover, zoom_cover
from certmask.defences import Explanation, MaskedDefence, examine, explain
from certmask.engine import Engine
from certmask.report.drawing import RED, patches_in
from certmask.report.map import COLOURS, Map, draw_map
from certmask.report.reasons import weak_point
from certmask.rules import Rule
from certmask.rules.rule import answer
from certmask.threat import Patch
from certmask.votes import Votes

SIZE, PATCH = 24, Patch(4, 5)
ZOOM = zoom_cover(SIZE, PATCH, (2, 3, 5), align=1)
FOURFOLD = cm.spread_cover(SIZE, PATCH, 11, 2)
DEFENCES: list[tuple[Cover, Rule]] = [
    (ZOOM, cm.JuryRecovery(claim_thresholds=0.005)),
    (ZOOM, cm.JuryRecovery(claim_thresholds=0.005, pooled=True)),
    (ZOOM, cm.JuryRecovery(aggregate="mean-log-probability", claim_thresholds=0.025)),
    (ZOOM, cm.JuryDetection(thresholds=0.005)),
    (FOURFOLD, cm.JuryRecovery()),
    (cm.offset_cover(SIZE, PATCH, 9, (2, 3)), cm.JuryDetection()),
    (cm.patchcleanser_cover(SIZE, PATCH, 3), cm.PatchCleanser()),
    (FOURFOLD, cm.Published()),
]
IDS = [f"{rule.name} {cover.tiling} {number}" for number, (cover, rule) in enumerate(DEFENCES)]


def explained(cover: Cover, rule: Rule, images: Tensor, views: tuple[str, ...] = ("plain",)) -> list[Explanation]:
    classifier = Classifier(tiny_network(), SIZE, batch=16, precision="fp32", views=views)
    return explain(Engine(classifier, [cover]), images, MaskedDefence(cover, rule, "own"))


def map_of(cover: Cover, rule: Rule, one: Explanation) -> Map:
    return Map(cover, one.places, one.label, rule.unit, one.certificate.holds, one.weakest)


@pytest.mark.parametrize(("cover", "rule"), DEFENCES, ids=IDS)
def test_every_location_is_in_a_place_whose_masks_hide_it(cover: Cover, rule: Rule, images: Tensor) -> None:
    """By brute force: in its own cell or district or, where masks are places, under the least sure one."""
    one = explained(cover, rule, images[:1])[0]
    shown = map_of(cover, rule, one)
    leads, territory = shown.leads, shown.territory
    assert territory.shape == PATCH.positions((SIZE, SIZE))
    for (row, column), number in np.ndenumerate(territory):
        hidden = {n for n, mask in enumerate(cover.masks) if mask.covers((row, column), PATCH, cover.image)}
        place = one.places[number]
        assert set(place.masks) <= hidden
        if cover.levels:
            ((top, bottom, left, right),) = place.boxes
            assert top <= row < bottom
            assert left <= column < right
        elif isinstance(rule, (cm.JuryRecovery, cm.JuryDetection)):
            assert set(place.masks) == hidden
        else:
            assert leads[number] == min(leads[mask] for mask in hidden)


@pytest.mark.parametrize(("cover", "rule"), DEFENCES, ids=IDS)
def test_places_are_judged_as_the_rule_decides(cover: Cover, rule: Rule, images: Tensor) -> None:
    """Claims are the rule's own; each lead is that of the masks that settled it, and no level before did."""
    classifier = Classifier(tiny_network(), SIZE, batch=16, precision="fp32")
    engine = Engine(classifier, [cover])
    for image, one in zip(images, explained(cover, rule, images), strict=True):
        singles = classifier(torch.stack([engine_view(engine, cover, image, mask) for mask in range(len(cover))]))
        votes = Votes.from_table(cover, singles)
        assert one.claims == tuple(answer(rule.claims(votes), votes)[0].tolist())
        assert len(one.places) == len(one.hypotheses)
        for place, jury in zip(one.places, one.hypotheses, strict=True):
            assert set(place.masks) <= set(jury)
            own = singles[list(place.masks)].double()
            scores = own.log().mean(dim=0) if rule.unit == "logarithm" else own.mean(dim=0)
            best = scores.topk(2)
            assert place.claim == best.indices[0]
            assert place.lead == pytest.approx(float(best.values[0] - best.values[1]), abs=1e-6)
            if place.level + 1 < len(cover.levels):
                assert place.lead > rule.claim_thresholds  # type: ignore[attr-defined]
    if cover.levels:
        assert {place.level for one in explained(cover, rule, images) for place in one.places} == {0, 1, 2}


def engine_view(engine: Engine, cover: Cover, image: Tensor, number: int) -> Tensor:
    """A picture under one mask."""
    view, mask = image.clone(), cover.masks[number]
    for top, bottom in mask.rows(cover.image):
        for left, right in mask.columns(cover.image):
            view[:, top:bottom, left:right] = torch.tensor(engine.fill).view(3, 1, 1)
    return view


@pytest.mark.parametrize("views", [("plain",), ("plain", "mirror")])
def test_an_explanation_counts_passes_as_a_run_does(views: tuple[str, ...], images: Tensor) -> None:
    """Every view of a vote is a pass; basis and weakest place are those of the row."""
    rule = cm.JuryRecovery(claim_thresholds=0.005)
    classifier = Classifier(tiny_network(), SIZE, batch=16, precision="fp32", views=views)
    defence, found = MaskedDefence(ZOOM, rule, "own"), explained(ZOOM, rule, images, views)
    labels = [one.label for one in found]
    for finding in examine(Engine(classifier, [ZOOM]), images, labels, [defence]):
        (outcome,), one = finding.value, found[finding.number]
        assert (one.label, one.passes, one.basis) == (outcome.label, outcome.passes, outcome.basis)
        assert one.certificate.holds == outcome.certified
        assert one.weakest is not None
        assert one.weakest.describe() == outcome.weakest
        assert one.passes % len(views) == one.duels % len(views) == 0
    assert {one.basis for one in found} >= {"unbeaten", "bare"}


def test_masks_that_were_not_asked_have_no_vote(images: Tensor) -> None:
    (one,) = explained(ZOOM, cm.JuryRecovery(claim_thresholds=0.0), images[:1])
    asked = {mask for place in one.places for mask in place.masks}
    assert 0 < len(asked) < len(ZOOM)
    assert {n for n, (label, _) in enumerate(one.votes) if label != NO_CLASS} >= asked
    assert (NO_CLASS, 0.0) in one.votes


def said(claims: list[int], levels: list[int], duels: int, basis: str, images: Tensor) -> str:
    (one,) = explained(ZOOM, cm.JuryRecovery(), images[:1])
    places = [Place(((0, 1, 0, 1),), (0,), *each) for each in zip(claims, [0.5] * len(claims), levels, strict=True)]
    return replace(one, places=tuple(places), duels=duels, basis=basis).why(["cat", "dog"])


def test_the_reason_in_words(images: Tensor) -> None:
    assert said([1, 1], [0, 0], 0, "unanimous", images) == "all 2 places agree"
    assert said([1], [1], 0, "unanimous", images) == "its only place says so; 1 was looked at closer"
    assert said([1, 1, 0], [2, 1, 0], 1, "unbeaten", images) == (
        "of 3 places 2 claim dog, 1 claims cat; 2 were looked at closer; 1 pass with two masks decided between them; "
        "the answer is unbeaten (the claim of a place that no other beats)"
    )
    assert said([1, 1, 0], [0, 0, 0], 1200, "", images) == (
        "of 3 places 2 claim dog, 1 claims cat; 1,200 passes with two masks decided between them"
    )


def drawn(shown: Map, monkeypatch: pytest.MonkeyPatch) -> Figure:
    kept: list[Figure] = []
    monkeypatch.setattr("certmask.report.map.save_figure", lambda figure, _: kept.append(figure))
    draw_map(Image.new("RGB", (SIZE, SIZE)), shown, ["cat", "dog", "a", "b", "c"], "title", Path("unwritten.png"))
    return kept[0]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(("cover", "rule"), DEFENCES, ids=IDS)
def test_colours_are_leads_at_the_patch_s_centre(
    cover: Cover, rule: Rule, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = explained(cover, rule, images[:1])
    shown = map_of(cover, rule, one)
    _, right, bar = drawn(shown, monkeypatch).axes
    (coloured,) = (image for image in right.images if image.get_cmap().name == COLOURS.name)
    values = np.asarray(coloured.get_array())
    values = np.sign(values) * values**2 * (8 if rule.unit == "logarithm" else 1)
    left, _, _, top = coloured.get_extent()
    for row, column in ((0, 0), (7, 11), (20, 19)):
        x, y = column + PATCH.width / 2, row + PATCH.height / 2
        assert values[int(y - top), int(x - left)] == pytest.approx(shown.leads[shown.territory[row, column]])
    assert "another class leads" in bar.get_xlabel()


def test_what_is_looked_at_closer_has_lines_of_its_own(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """White around what the first look settled, black around the rest; none are black where there was one look."""
    for thresholds, closer in ((0.0, 0), (0.9, 25)):
        (one,) = explained(ZOOM, cm.JuryRecovery(claim_thresholds=thresholds), images[:1])
        figure = drawn(map_of(ZOOM, cm.JuryRecovery(), one), monkeypatch)
        _, right, _ = figure.axes
        white, black = (len(lines.get_paths()) for lines in right.collections)
        assert (white == 0, black == 0) == (closer > 0, closer == 0)
        assert any(f"{len(one.places)} were looked at closer" in line for line in legend(figure)) == (closer > 0)


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("places", [((2, 5, 3, 6),), ((2, 5, 3, 6), (10, 12, 0, 1))])
def test_weakest_places_are_framed(places: Any, proved: bool, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a patch with its corner there may cover, in both panels; the legend says what it is."""
    (one,) = explained(ZOOM, cm.JuryRecovery(), images[:1])
    weakest = Weakest(places, 0.25 if proved else -0.25, 1)
    figure = drawn(Map(ZOOM, one.places, one.label, "probability", proved, weakest), monkeypatch)
    for axes in figure.axes[:2]:
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        frames = {(*box.get_xy(), box.get_width(), box.get_height()) for box in boxes if box.get_linewidth() == 1.8}
        assert frames == {(left, top, right - left + 4, bottom - top + 3) for top, bottom, left, right in places}
        assert any(line.get_color() == RED for line in axes.lines)
    where = "place" if len(places) == 1 else "pair of places"
    masks = f"judged by masks of {ZOOM.levels[1].mask[0]}×{ZOOM.levels[1].mask[1]}, level 2 of 3"
    words = f"is weakest at this {where} (lead 0.25" if proved else f"fails at this {where} (lead −0.25"
    assert f"the proof {words}, {masks});\nframed: all that a patch there may cover" in legend(figure)


def test_frames_hold_every_patch_of_a_place() -> None:
    for box in ((0, 1, 0, 1), (3, 7, 2, 4)):
        left, top, right, bottom = patches_in(box, PATCH.size)
        corners = [(y, x) for y in range(box[0], box[1]) for x in range(box[2], box[3])]
        assert (top, left) == corners[0]
        assert (bottom, right) == (corners[-1][0] + PATCH.height, corners[-1][1] + PATCH.width)


def test_a_cover_of_one_level_has_no_level_to_name() -> None:
    said = weak_point({"places": [[0, 1, 0, 1]], "lead": 0.5, "level": 0}, True, [])
    assert said == "the proof is weakest at this place (lead 0.50)"


def test_a_long_answer_and_a_long_title_stay_in_the_picture(images: Tensor, tmp_path: Path) -> None:
    """What is written is as wide as the figure at most."""
    (one,) = explained(ZOOM, cm.JuryRecovery(claim_thresholds=0.005), images[:1])
    names, path = ["very " * 20 + "long"] * 5, tmp_path / "map.png"
    shown = map_of(ZOOM, cm.JuryRecovery(), one)
    draw_map(Image.new("RGB", (SIZE, SIZE)), shown, names, f"{names[0]}\n{'certified ' * 30}", path)
    pixels = np.asarray(Image.open(path).convert("L"))
    assert pixels.shape[1] == 1200
    assert (pixels[:, [0, -1]] == 255).all()
