"""Attacks with all that a threat allows: several patches at once, rectangles of any shape, up to a certified size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_network
from PIL import Image
from test_attacks import CHEATS, Returning, built, grey, victim_of
from torch import Tensor, nn

import certmask as cm
from certmask.attacks import (
    ATTACKS,
    AdaptiveAttack,
    Descent,
    Harm,
    Job,
    PatchAttack,
    Surrogate,
    classifier_judge,
    defence_judge,
    worst_case,
)
from certmask.attacks.attempts import JOINT, JOINT_PLACES, PICKED, WEAKEST, Budget, Prospect, pick_corner, planned
from certmask.attacks.gauntlet import broken_proof
from certmask.attacks.goals import HIDDEN, TURN_ALL, WIN_DUELS, Juries, Places, masked_views
from certmask.attacks.means import check_allowed, patches_to_try
from certmask.attacks.pictures import beneath, outlined, paste
from certmask.attacks.target import Target
from certmask.attacks.vote_game import VoteGame
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.covers import Cover, custom_cover, joined_cover, stacked_cover, zoom_cover
from certmask.data import Dataset
from certmask.data.tensors import pictures
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.errors import AttackError, BrokenCertificateError, CertmaskError, ResultsError
from certmask.geometry import Mask
from certmask.report.gallery import Album, attack_exhibition
from certmask.results.columns import attack_figures
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, JuryRecovery, PairDetection, Rule, Undefended
from certmask.rules.levels import Levels
from certmask.rules.rule import answer
from certmask.threat import AnyRectangle, Patch, Size, Threat, UpTo
from certmask.votes import Votes

IMAGE = (24, 24)
TWO = Patch(4, 4, 2)
THREATS: dict[str, Threat] = {"two patches": TWO, "any rectangle": AnyRectangle(24), "up to": UpTo(6, (2, 6))}
COVERS = {
    "two patches": zoom_cover(IMAGE, TWO, (2, 3)),
    "any rectangle": zoom_cover(IMAGE, AnyRectangle(24), (2, 3)),
    "up to": zoom_cover(IMAGE, UpTo(6, (2, 6)), (2, 4)),
}
TRIED = [(name, patch) for name, threat in THREATS.items() for patch in dict.fromkeys(patches_to_try(threat, IMAGE))]


class Hues(nn.Module):
    """Sees nothing but which colour the picture has most of."""

    def forward(self, batch: Tensor) -> Tensor:
        return 60 * batch.mean(dim=(2, 3))


def shades() -> tuple[Tensor, Tensor]:
    """Pictures of all but grey: plain ones, and ones with a square in which the class is, small or large."""
    images, labels = torch.full((6, 3, *IMAGE), 0.5), torch.arange(6) % 3
    squares = [(24, 0.04, 0.0), (24, 0.03, 0.0), (16, 0.06, 0.02), (16, 0.1, 0.03), (12, 0.3, 0.02), (8, 0.3, 0.01)]
    for image, label, (side, own, other) in zip(images, labels.tolist(), squares, strict=True):
        image[(label + 1) % 3] += other
        inside = slice((24 - side) // 2, (24 + side) // 2)
        image[:, inside, inside] = 0.5
        image[label, inside, inside] += own
    return (images * 255).round() / 255, labels


def labelled(images: Tensor, labels: Tensor) -> Dataset:
    return pictures(images, labels.tolist())


# -------------------------------------------------------------------------------------------------- what is allowed


def test_every_shape_of_an_area_has_its_turn() -> None:
    """The square and the longest strips first, every box of the family once, and early ones from all over it."""
    boxes = AnyRectangle(1024).boxes_on((224, 224))
    tried = [patch.size for patch in patches_to_try(AnyRectangle(1024), (224, 224))]
    assert tried[:3] == [(32, 32), (4, 224), (224, 4)]
    assert sorted(tried) == sorted(boxes)
    assert (10, 102) in tried
    early = sorted(boxes.index(size) for size in tried[:12])
    assert max(np.diff(early)) <= len(boxes) / 4


@pytest.mark.parametrize(("side", "sizes"), [(None, {6, 5, 2}), (6, {6, 5, 2}), (2, {2, 1}), (1, {1})])
def test_a_certified_size_and_smaller_ones(side: int | None, sizes: set[int]) -> None:
    tried = patches_to_try(UpTo(6, (2, 6)), IMAGE, side)
    assert {patch.height for patch in tried} == {patch.width for patch in tried} == sizes
    assert {patch.height for patch in tried[::2]} == {max(sizes)}


@pytest.mark.parametrize("threat", THREATS.values(), ids=THREATS)
def test_what_is_tried_is_allowed_and_more_is_not(threat: Threat) -> None:
    for patch in patches_to_try(threat, IMAGE):
        check_allowed(patch, threat, IMAGE)
        grown = [replace(patch, count=patch.count + 1)]
        if patch.height < 24 and patch.width < 24:
            grown.append(Patch(patch.height + 6, patch.width + 6, patch.count))
        for more in grown:
            with pytest.raises(AttackError, match=r"expected no more than any .*, got any"):
                check_allowed(more, threat, IMAGE)
    with pytest.raises(AttackError, match="expected no more than any 2×2 patch, got any 3×3 patch"):
        check_allowed(Patch(3, 3), UpTo(6, (2, 6)), IMAGE, side=2)


def test_sizes_and_goals_do_not_go_in_step() -> None:
    """Every goal meets the largest patch, and a smaller one, whatever the budget."""
    goals = (TURN_ALL, WIN_DUELS, replace(TURN_ALL, name="third"), replace(TURN_ALL, name="fourth"))
    prospects = [Prospect(str(number), 0, side=6) for number in range(8)]
    for locations in range(2, 7):
        attempts = planned("x", prospects, goals, Budget(locations=locations))
        met = {(attempt.goal.name, attempt.patch(UpTo(6, (2, 6)), IMAGE).height == 6) for attempt in attempts}
        assert met == set(product([goal.name for goal in goals], [True, False]))


# ------------------------------------------------------------------------------------------------ where patches go


@pytest.mark.parametrize("place", [*PICKED, *JOINT, WEAKEST])
@pytest.mark.parametrize(("name", "patch"), TRIED, ids=str)
def test_corners_lie_inside(name: str, patch: Patch, place: str) -> None:
    """Also where the row tells of places of a smaller patch; all of several patches, in one array."""
    if patch.count == 1 and place in JOINT:
        return
    juries, chance = Juries(COVERS[name], patch), np.random.default_rng(0)
    corners = np.stack([pick_corner(place, juries, chance, ((0, 3, 20, 23), (22, 23, 0, 1))) for _ in range(20)])
    assert corners.shape == ((20, 2) if patch.count == 1 else (20, patch.count, 2))
    assert (corners >= 0).all()
    assert (corners < patch.positions(IMAGE)).all()
    if place == "lowest fold":
        assert len(set(juries.folds(corners).ravel().tolist())) == 1
        rows, columns = (range(length) for length in patch.positions(IMAGE))
        assert juries.folds(corners).min() == juries.folds(np.array([*product(rows, columns)])).min()


@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_patches_lie_together_or_apart(count: int) -> None:
    juries, chance = Juries(zoom_cover(IMAGE, Patch(4, 3, count), (2,)), Patch(4, 3, count)), np.random.default_rng(1)
    for _ in range(20):
        row = pick_corner("side by side", juries, chance)
        assert {tuple(step) for step in np.diff(row, axis=0).tolist()} in ({(4, 0)}, {(0, 3)})
        first, second = pick_corner("far apart", juries, chance)[:2]
        assert (np.abs(first - second) > 10).all()
        for kind in ("random", "flush", "border"):
            assert not any(overlap(*pair) for pair in combinations(pick_corner(kind, juries, chance)[:2].tolist(), 2))


def overlap(one: Sequence[int], other: Sequence[int], size: Size = (4, 3)) -> bool:
    return all(abs(a - b) < side for a, b, side in zip(one, other, size, strict=True))


def test_several_kinds_of_places_for_several_patches() -> None:
    prospects = [Prospect(str(n), 0, ((0, 1, 0, 1),)) for n in range(4)]
    places = [a.place for a in planned("x", prospects, [TURN_ALL], Budget(), places=JOINT_PLACES)]
    assert {*JOINT} | {*PICKED} | {WEAKEST} <= set(places)
    with pytest.raises(AttackError, match=r"side by side.* got 'moon'"):
        pick_corner("moon", Juries(COVERS["two patches"]), np.random.default_rng(0))


# ------------------------------------------------------------------------------------- pictures with several patches


def test_several_patches_are_pasted_and_what_lies_beneath_is_found() -> None:
    """Apart and overlapping; the last lies on top, and pasting back what lay beneath restores the picture."""
    images, corners = torch.rand(2, 3, *IMAGE), torch.tensor([[[0, 0], [2, 2]], [[20, 20], [1, 7]]])
    patches = torch.rand(2, 2, 3, 4, 4)
    pasted = paste(images, patches, corners)
    assert torch.equal(pasted[0, :, 2:6, 2:6], patches[0, 1])
    assert torch.equal(pasted[0, :, :2, :4], patches[0, 0, :, :2])
    assert torch.equal(pasted[1, :, 20:, 20:], patches[1, 0])
    assert torch.equal(beneath(pasted, TWO, corners)[1], patches[1])
    assert torch.equal(paste(pasted, beneath(images, TWO, corners), corners), images)
    changed = (pasted != images).any(dim=1)
    assert changed.sum(dim=(1, 2)).tolist() == [28, 32]


def test_every_patch_has_its_frame() -> None:
    pixels = np.array(outlined(Image.new("RGB", IMAGE), [((2, 3), (4, 4)), ((15, 10), (2, 9))]))
    red = (pixels == (255, 0, 0)).all(axis=2)
    for top, left, bottom, right in ((2, 3, 6, 7), (15, 10, 17, 19)):
        assert red[2 * top - 1, 2 * left - 1 : 2 * right + 1].all()
        assert red[2 * bottom, 2 * left - 1 : 2 * right + 1].all()
        assert red[2 * top : 2 * bottom, 2 * left - 1].all()
    assert not red[2 * 8 : 2 * 14].any()


# -------------------------------------------------------------------------------------------- attacks with several


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_of_the_table_uses_all_of_its_patches(name: str, classifier: Classifier, images: Tensor) -> None:
    """At given corners, at its own, with the same seed the same; nothing else changes."""
    victim = victim_of(name, classifier)
    judge, labels = classifier_judge(victim), victim(images[:3]).argmax(dim=1)
    corners = torch.tensor([[3, 4], [18, 0]]).expand(3, 2, 2)
    attack = shortened(name, victim)
    for given in (None, corners):
        job = Job(images[:3], labels, Patch(6, 6, 2), given)
        attacked, again = (attack(job, judge, seed=1) for _ in range(2))
        assert torch.equal(attacked.pictures, again.pictures)
        assert attacked.corners.shape == (3, 2, 2)
        assert given is None or torch.equal(attacked.corners, corners)
        assert attacked.patches(0) == tuple(((top, left), (6, 6)) for top, left in attacked.corners[0].tolist())
        if isinstance(attack, PatchAttack):
            assert not any(overlap(one, other, (6, 6)) for one, other in attacked.corners.tolist())
        outside = (attacked.pictures != job.images).any(dim=1)
        for picture, own in zip(outside, attacked.corners.tolist(), strict=True):
            assert all(picture[top : top + 6, left : left + 6].sum() > 18 for top, left in own)
            for top, left in own:
                picture[top : top + 6, left : left + 6] = False
        assert not outside.any()


def shortened(name: str, victim: Classifier) -> cm.Attack:
    """An attack of the table with few steps."""
    attack = built(name, victim)
    if hasattr(attack, "descent"):
        attack.descent = Descent(steps=6)
    if hasattr(attack, "queries"):
        attack.queries = 40
    return attack


class BothEnds(nn.Module):
    """Answers otherwise only if both ends of the picture are bright."""

    def forward(self, batch: Tensor) -> Tensor:
        ends = torch.stack([batch[:, :, :4, :4].mean(dim=(1, 2, 3)), batch[:, :, 20:, 20:].mean(dim=(1, 2, 3))])
        bright = ends.log().mean(dim=0).exp()
        return torch.stack([8 - 8 * bright, 8 * bright], dim=1)


def test_patches_are_sought_together() -> None:
    """Where it takes both, one is not enough; without given corners, both places are found."""
    images, labels = torch.full((3, 3, *IMAGE), 0.2), torch.zeros(3, dtype=torch.long)
    classifier = Classifier(BothEnds(), 24, batch=4, precision="fp32")
    attack, judge = PatchAttack(Surrogate(classifier), Descent(steps=20)), classifier_judge(classifier)
    assert not attack(Job(images, labels, TWO.single), judge).fooled(labels).any()
    attacked = attack(Job(images, labels, TWO), judge)
    assert attacked.fooled(labels).all()
    assert all(sorted(corners) == [[0, 0], [20, 20]] for corners in attacked.corners.tolist())


def test_what_holds_off_one_patch_falls_to_two() -> None:
    """A sound certificate against one patch says nothing about two: the attack on the whole defence shows it."""
    images, labels = shades()
    classifier = Classifier(Hues(), 24, batch=64, precision="fp32")
    cover = zoom_cover(IMAGE, Patch(5, 5), (2, 3))
    defence, engine = MaskedDefence(cover, JuryRecovery(), "defence"), Engine(classifier, [cover])
    certified = [f.number for f in examine(engine, images, labels.tolist(), [defence]) if f.value[0].certified]
    assert len(certified) >= 2
    attack = AdaptiveAttack(Surrogate(classifier, engine=engine), defence, Descent(steps=20), views=8)
    lost = []
    for count in (1, 2):
        job = Job(images[certified], labels[certified], Patch(5, 5, count))
        lost.append(int(attack(job, defence_judge(engine, defence)).fooled(job.labels).sum()))
    assert lost[0] == 0
    assert lost[1] >= 1


def test_every_shape_can_be_sought_through_masks() -> None:
    """On a network of convolutions, at places that are searched; no more pixels change than the area has."""
    classifier = Classifier(tiny_network(seed=1), 24, batch=16, precision="fp32")
    cover, images = COVERS["any rectangle"], torch.rand(2, 3, *IMAGE)
    labels = classifier(images).argmax(dim=1)
    engine = Engine(classifier, [cover])
    defence = MaskedDefence(cover, JuryDetection(), "defence")
    attack = AdaptiveAttack(Surrogate(classifier, engine=engine), defence, Descent(steps=3), views=4)
    for patch in patches_to_try(cover.threat, IMAGE):
        attacked = attack(Job(images, labels, patch), defence_judge(engine, defence))
        assert ((attacked.pictures != images).any(dim=1).sum(dim=(1, 2)) <= 24).all()


# -------------------------------------------------------------------------------------------- no attack grades itself


TWICE: dict[str, Callable[[Tensor, Tensor], object]] = {
    **CHEATS,
    "between the patches": lambda pictures, corners: pictures[0, 0].__setitem__((7, 7), 0.77),
    "a third patch": lambda pictures, corners: (pictures, torch.cat([corners, corners[:, :1]], dim=1)),
    "one patch only": lambda pictures, corners: (pictures, corners[:, 0]),
    "the second elsewhere": lambda pictures, corners: (pictures, corners + torch.tensor([[0, 0], [1, 0]])),
    "the second outside": lambda pictures, corners: (pictures, corners + torch.tensor([[0, 0], [9, 0]])),
}


class ReturningTwo(Returning):
    """Puts what it is told to at two places."""

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        corners = torch.tensor([[0, 0], [12, 8]]).expand(len(job), 2, 2).clone()
        pictures = paste(job.images, self.patches(job, seed)[:, None].expand(-1, 2, -1, -1, -1), corners)
        spoiled = self.spoil(pictures, corners) if self.spoil else None
        return spoiled if isinstance(spoiled, tuple) else (pictures, corners)


@pytest.mark.parametrize("cheat", TWICE)
def test_a_cheat_with_two_patches_is_caught(cheat: str, images: Tensor) -> None:
    job, judged = Job(images, torch.zeros(12, dtype=torch.long), Patch(7, 7, 2)), []

    def judge(pictures: Tensor) -> list[cm.Decision]:
        judged.append(pictures)
        return [cm.Decision(0)] * len(pictures)

    ReturningTwo(grey)(job, judge)
    assert len(judged) == 1
    with pytest.raises(CertmaskError, match=r"expected .*got"):
        ReturningTwo(grey, TWICE[cheat])(job, judge)
    assert len(judged) == 1


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"corners": torch.zeros(12, 2, dtype=torch.long)}, r"shape \[12, 2, 2\], got \[12, 2\]"),
        ({"corners": torch.zeros(12, 3, 2, dtype=torch.long)}, r"got \[12, 3, 2\]"),
        ({"corners": torch.full((12, 2, 2), 21)}, "outside"),
        ({"patch": AnyRectangle(24)}, "a patch of one size, got any rectangle"),
        ({"patch": UpTo(6)}, "a patch of one size, got any patch of up to"),
        ({"patch": Patch(25, 3, 2)}, "25×3"),
    ],
)
def test_jobs_with_several_patches_that_make_no_sense(change: dict[str, object], got: str, images: Tensor) -> None:
    job = Job(images, torch.zeros(12, dtype=torch.long), TWO)
    with pytest.raises(CertmaskError, match=rf"expected .*{got}"):
        Returning(grey)(replace(job, **change), lambda p: [])  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- what an attack looks through


@pytest.mark.parametrize("goal", [TURN_ALL, WIN_DUELS], ids=lambda goal: goal.name)
def test_views_show_something_of_one_patch_at_least(goal: object) -> None:
    """As the rule looks: under two masks of one grid, or up to four; what hides both patches is passed over."""
    cover, chance, zeros = COVERS["two patches"], np.random.default_rng(0), np.zeros((20, 2, 13), dtype=bool)
    juries = Juries(cover)
    corners = np.stack([pick_corner("random", juries, chance) for _ in range(20)])
    places = Places(juries, corners, zeros)
    assert np.array_equal(places.hidden, juries.members(corners).all(axis=1))
    wishes = goal.wish(places, chance)  # type: ignore[attr-defined]
    defence, numbers = MaskedDefence(cover, JuryRecovery()), np.arange(len(cover))
    views = masked_views(defence, places, numbers, wishes, [goal] * 20, 6, torch.device("cpu"))  # type: ignore[list-item]
    sizes, hidden = set(), 0
    for seed in range(10):
        sets, wanted, _ = views.draw(torch.Generator().manual_seed(seed))
        for row in range(20):
            for masks, wish in zip(sets[row].tolist(), wanted[row].tolist(), strict=True):
                both = all(any(juries.members(corner[None])[0, mask] for mask in masks) for corner in corners[row])
                assert (wish == HIDDEN) == both
                assert any(set(masks) <= set(grid) for grid in cover.grids)
                sizes.add(len(set(masks)))
                hidden += both
    assert max(sizes) == (4 if goal is WIN_DUELS else 2)
    assert 0 < hidden < 600


# ------------------------------------------------------------------------------------------------------- the gauntlet

RULES: list[Rule] = [JuryRecovery(), JuryDetection(), Undefended()]
BUDGET = Budget(2, 5, 1, 8, 6)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier(Hues(), 24, batch=64, precision="fp32")


@pytest.fixture(scope="module", params=THREATS)
def target(
    request: pytest.FixtureRequest, classifier: Classifier, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Target, Run]:
    """A run against each threat, and attempts on what it certified."""
    folder, cover = tmp_path_factory.mktemp("threat"), COVERS[request.param]
    rules = [*RULES, PairDetection()] if cover.threat.count > 1 else RULES
    defences = [MaskedDefence(cover, rule, rule.name) for rule in rules]
    certify_run(Engine(classifier, [cover]), labelled(*shades()), defences, folder / "run.jsonl")
    target = Target(folder / "run.jsonl", shades(), folder / "attack.jsonl", classifier)
    return target, target.gauntlet(BUDGET).attack()


def test_proved_certificates_stand_and_the_undefended_falls(target: tuple[Target, Run]) -> None:
    """Every patch of every attempt is one that the threat, or the row's certified size, allows."""
    aim, attempts = target
    aim.check_proofs(attempts)
    lines = {line.defence: line for line in attack_figures(attempts)}
    assert {name for name, line in lines.items() if line.attempts == 10} == set(lines) == set(attempts.defences)
    assert broken_proof(attempts) is None
    assert lines["undefended"].label_changed >= 5
    assert sum(row["answer"] != row["label"] for row in attempts.rows if row["defence"] == "jury detection") >= 1
    clean = {row["image"]: row["defences"] for row in read_run(aim.results).rows}
    for row in attempts.rows:
        threat, patches = attempts.threat(row["defence"]), attempts.patches(row)
        side = clean[row["image"]][row["defence"]].get("side")
        check_allowed(Patch(*patches[0][1], len(patches)), threat, IMAGE, side)
        assert "corner" not in row
    assert len({row["attempt"] for row in attempts.rows}) == len(attempts.rows)


def test_attempts_are_of_every_kind(target: tuple[Target, Run]) -> None:
    _, attempts = target
    threat = attempts.threat("jury recovery")
    sizes = {size for row in attempts.rows for _, size in attempts.patches(row)}
    if isinstance(threat, AnyRectangle):
        assert {(4, 6), (1, 24), (24, 1)} <= sizes
    elif isinstance(threat, UpTo):
        assert {(6, 6), (5, 5), (2, 2)} <= sizes
        assert {row.get("side") for row in attempts.rows if row["defence"] == "jury recovery"} == {2, 6}
        assert {size for row in attempts.rows if row.get("side") == 2 for _, size in attempts.patches(row)} == {
            (2, 2),
            (1, 1),
        }
    else:
        assert {len(attempts.patches(row)) for row in attempts.rows} == {2}
        assert {"side by side", "far apart", "searched"} <= {row["place"] for row in attempts.rows}


def test_an_interrupted_gauntlet_goes_on(target: tuple[Target, Run], tmp_path: Path) -> None:
    """Each attempt once, with the patches that it has when nothing comes between."""
    aim, attempts = target
    aim = replace(aim, out=tmp_path / "attack.jsonl", rules=["undefended"])
    gauntlet = aim.gauntlet(BUDGET)
    begun = gauntlet.attack(seconds=0)
    assert 0 < len(begun.rows) < 10
    done = gauntlet.attack()
    assert done.rows[: len(begun.rows)] == begun.rows
    places = [
        {row["attempt"]: attempts.patches(row) for row in one.rows if row["defence"] == "undefended"}
        for one in (done, attempts)
    ]
    given = [name for name in places[0] if not name.endswith("/0/0")]
    assert len(given) == 8
    assert {name: places[0][name] for name in given} == {name: places[1][name] for name in given}
    assert places[0].keys() == places[1].keys()


def test_saved_pictures_are_judged_again_and_framed(
    target: tuple[Target, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has a frame around every patch."""
    aim, attempts = target
    saved = [number for number, row in enumerate(attempts.rows, start=1) if row["picture"]]
    again = aim.replay(saved[0])
    assert again.fell
    again.check_proof()
    framed: list[set[tuple[int, ...]]] = []

    def with_frames(picture: Image.Image, frames: Sequence[tuple[int, ...]], **_: bool) -> Image.Image:
        framed.append(set(frames))
        return picture

    monkeypatch.setattr("certmask.report.gallery.with_frames", with_frames)
    shown = len(attack_exhibition(attempts, [], Album(), 3).cards)
    boxes = [
        {(left, top, left + width, top + height) for (top, left), (height, width) in attempts.patches(row)}
        for row in attempts.rows
        if row["picture"]
    ]
    assert len(framed) == shown > 0
    assert all(frames in boxes for frames in framed)


@pytest.mark.parametrize("lie", ["larger", "more", "elsewhere", "two sizes", "no list", "no corner"])
def test_a_saved_attempt_that_says_more_than_was_allowed_is_refused(
    target: tuple[Target, Run], lie: str, tmp_path: Path
) -> None:
    """Replay trusts the run and the picture, not the row."""
    aim, attempts = target
    number = next(n for n, row in enumerate(attempts.rows, start=1) if row["picture"])
    lines = [json.loads(line) for line in aim.out.read_text().splitlines()]
    patches = lines[number]["patches"]
    if lie == "larger":
        patches[0]["corner"], patches[0]["size"] = [0, 0], [20, 20]
        patches[1:] = [patches[0]] * (len(patches) - 1)
    elif lie == "more":
        patches += [patches[0]] * 2
    elif lie == "elsewhere":
        for patch in patches:
            patch["corner"] = [0 if at > 3 else 24 - side for at, side in zip(*patch.values(), strict=True)]
            patch["size"] = [max(side // 2, 1) for side in patch["size"]]
    elif lie == "two sizes":
        patches.append({"corner": [0, 0], "size": [1, 2]})
    elif lie == "no list":
        lines[number]["patches"] = "everywhere"
    else:
        del patches[0]["corner"]
    moved = tmp_path / aim.out.name
    moved.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "attack-pictures").symlink_to(aim.out.with_name("attack-pictures"))
    with pytest.raises((AttackError, ResultsError), match=r"expected .*, got"):
        replace(aim, out=moved).replay(number)


def test_what_is_certified_for_no_size_is_attacked_apart(classifier: Classifier, tmp_path: Path) -> None:
    """Rows of side 0, answered rightly, with patches of the whole threat."""
    defence = MaskedDefence(COVERS["up to"], JuryRecovery(), "zoom")
    images, labels = shades()
    engine = Engine(classifier, [defence.cover])
    certify_run(engine, labelled(images, labels), [defence], tmp_path / "run.jsonl")
    rows = {row["image"]: row["defences"]["zoom"] for row in read_run(tmp_path / "run.jsonl").rows}
    target = Target(tmp_path / "run.jsonl", (images, labels), tmp_path / "attack.jsonl", classifier)
    attempts = target.uncertified(Budget(2, 3, 1, 4, 4)).attack()
    assert {rows[row["image"]]["side"] for row in attempts.rows} == {0}
    assert {size for row in attempts.rows for _, size in attempts.patches(row)} >= {(6, 6)}
    assert {row["broken"] for row in attempts.rows} == {False}


def test_masks_that_leak_are_seen_for_every_threat(target: tuple[Target, Run]) -> None:
    aim, _ = target
    gauntlet = aim.gauntlet(BUDGET)
    masks = gauntlet.engine.forward.masks
    masks.rows = masks.rows & nn.functional.pad(masks.rows[:, 1:], (0, 1))
    fresh = replace(gauntlet, surrogate=Surrogate(gauntlet.engine.classifier, engine=gauntlet.engine))
    with pytest.raises(BrokenCertificateError, match="to hide what it covers, got one that shows part"):
        fresh.check_painting()


# ------------------------------------------------------------------------------------------- a single patch, as ever


def test_a_single_patch_is_written_as_before(classifier: Classifier, tmp_path: Path) -> None:
    cover = zoom_cover(IMAGE, Patch(6, 6), (2, 3))
    defences = [MaskedDefence(cover, Undefended(), "undefended")]
    certify_run(Engine(classifier, [cover]), labelled(*shades()), defences, tmp_path / "run.jsonl")
    target = Target(tmp_path / "run.jsonl", shades(), tmp_path / "attack.jsonl", classifier)
    attempts = target.gauntlet(Budget(1, 2, 1, 2, 2)).attack()
    assert {"patches", "side"}.isdisjoint(attempts.rows[0])
    assert [attempts.patches(row) for row in attempts.rows] == [[(tuple(r["corner"]), (6, 6))] for r in attempts.rows]
    assert attempts.patches({"defence": "undefended"}) == []


# ----------------------------------------------------------------------------------------------------------- vote space


def complete(cover: Cover, most: int, label: int, classes: int = 3) -> Votes:
    """Votes for the label under every set of so many masks."""
    certain = torch.eye(classes)[label]
    count = len(cover)
    votes = Votes.from_table(cover, certain.expand(count, -1), certain.expand(count, count, -1))
    for size in range(3, most + 1):
        sets = np.array(list(combinations(range(count), size)), dtype=np.int64)
        ask = votes.ask(votes.ballot.numbers(sets)[None])
        votes.store.add(ask, certain.expand(len(ask), -1))
    return votes


LINE = zoom_cover((1, 6), Patch(1, 1, 2), (3,), 1)


class OnePatchOnly(JuryDetection):
    """Unsound on purpose: claims of single places, where two patches may be."""

    def check(self, cover: Cover) -> None:
        """Takes any cover."""

    def levels(self, votes: Votes) -> Levels:
        found = copy(super().levels(votes))
        found.sets = np.arange(len(found.boxes))[:, None]
        return found


def test_two_patches_in_votes_beat_a_rule_for_one_and_no_rule_for_two() -> None:
    votes, palette = complete(LINE, len(LINE), 0), torch.eye(3)
    for rule in (JuryRecovery(), JuryDetection(), PairDetection()):
        assert rule.certify(votes, 0).holds
        case = worst_case(votes, rule, 0, palette=palette, plays=30)
        assert not rule.guarantee.broken_by(case.decision, 0)
    case = worst_case(votes, OnePatchOnly(), 0, palette=palette)
    assert case.harm is Harm.WRONG
    assert len(case.district) == 2  # type: ignore[arg-type]
    assert worst_case(votes, OnePatchOnly(), 0, 1, palette=palette).harm is Harm.ALERT


def test_passes_that_hide_all_places_keep_their_votes() -> None:
    """Against the game as it is told: a pass is free unless it has a mask of each place's jury."""
    votes = complete(LINE, len(LINE), 1)
    districts = LINE.districts
    for pair in combinations(range(len(districts)), 2):
        game = VoteGame(votes, JuryRecovery(), pair, torch.eye(3))
        turned = game.play(lambda passes: np.full(len(passes), 2)).turned
        juries = [set(districts.jury(place)) for place in pair]
        assert turned
        assert not any(all(jury & set(masks) for jury in juries) for masks in turned)


def test_a_certified_size_is_played_against_alone() -> None:
    """Votes that are certified for one pixel alone: it takes four to change the answer, and nine are no part of it."""
    squares = [Patch(1, 1), Patch(2, 2)]
    large = custom_cover((2, 4), squares[1], [Mask(0, left, 2, 2) for left in (0, 1, 2)])
    small = custom_cover((2, 4), squares[0], [Mask(0, 0, 2, 2), Mask(0, 2, 2, 2)])
    cover = stacked_cover([joined_cover(UpTo(2, (1, 2)), squares, [small, large])])
    wrong = [mask.left == 1 for mask in cover.masks]
    votes = Votes.from_table(cover, torch.eye(3)[torch.tensor(wrong).long()])
    (steps,) = answer(JuryDetection().proving(votes, np.array([0])), votes).steps.tolist()  # type: ignore[union-attr]
    assert steps == 1
    palette = torch.eye(3)
    harm = {p: worst_case(votes, JuryDetection(), 0, patch=p, palette=palette).harm for p in (None, *squares)}
    assert harm == {None: Harm.WRONG, squares[0]: Harm.ALERT, squares[1]: Harm.WRONG}
    with pytest.raises(AttackError, match="expected no more than any patch of up to 2×2"):
        worst_case(votes, JuryDetection(), 0, patch=Patch(2, 3))
    with pytest.raises(AttackError, match="expected districts of at most 1 patches, got 2"):
        worst_case(votes, JuryDetection(), 0, (0, 1))
    with pytest.raises(AttackError, match="expected a district from 0"):
        worst_case(complete(LINE, len(LINE), 0), JuryRecovery(), 0, (0, 99))


# ------------------------------------------------------------------------------------------------- other libraries


def test_a_black_box_takes_what_the_threat_allows() -> None:
    """Contents of several patches side by side; of a family, the size that was asked for."""
    picture = shades()[0][0]
    shield = cm.Defence(Hues(), COVERS["two patches"], "undefended", batch=8)
    box = cm.BlackBox(shield, picture, corner=[(0, 0), (10, 12)])
    contents = torch.rand(2, 3, 4, 8)
    seen = box.pictures(contents)
    assert box.shape == (3, 4, 8)
    assert torch.equal(seen[:, :, :4, :4], contents[..., :4])
    assert torch.equal(seen[:, :, 10:14, 12:16], contents[..., 4:])
    assert int((seen[0] != picture).any(dim=0).sum()) == 32
    strips = cm.Defence(Hues(), COVERS["any rectangle"], "undefended", batch=8)
    assert cm.BlackBox(strips, picture).shape == (3, 4, 6)
    assert cm.BlackBox(strips, picture, patch=(1, 24)).shape == (3, 1, 24)
    with pytest.raises(AttackError, match="expected no more than any rectangle of up to 24 pixels, got any 5×6 patch"):
        cm.BlackBox(strips, picture, patch=(5, 6))
    with pytest.raises(AttackError, match=r"expected whole-number corners of shape \[1, 2, 2\]"):
        cm.BlackBox(shield, picture, corner=[(0, 0), (1, 1), (2, 2)])
