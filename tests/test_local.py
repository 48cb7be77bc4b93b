"""Defences on local evidence, from the network to the results file: one pass, small fields, proofs that hold."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certmask
from certmask import ClippedBagNet, Defence, LocalClassifier, LocalDefence, RobustMasking
from certmask.attacks import Budget, Target
from certmask.certificate import Guarantee
from certmask.certification import certify_run
from certmask.data import Framing, in_memory
from certmask.defences import AnyDefence, defence_from, examine
from certmask.engine import Engine
from certmask.engine.archive import KeptVotes
from certmask.engine.fingerprint import Fingerprint, fingerprint_from
from certmask.engine.margin import measured_margin
from certmask.engine.premises import check_company, check_unchanged
from certmask.errors import CertmaskError, ChangedModelError, ClassifierError, ResultsError
from certmask.evidence import Averaging, EvidenceRule
from certmask.evidence.field import field_from
from certmask.evidence.maps import LARGEST
from certmask.evidence.network import LocalLogits
from certmask.function import check_behaviour, check_function
from certmask.results.columns import attack_figures
from certmask.results.run import read_run
from certmask.votes import Margin, as_votes

SIDE, PATCH = 16, 3
COLOURS = torch.eye(3)


class ColourNet(nn.Module):
    """Logits of a cell: how red, green and blue its 3×3 pixels are, every second pixel a cell."""

    def __init__(self, strength: float = 20.0) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 3, 3, stride=2, bias=False)
        with torch.no_grad():
            self.look.weight.copy_(strength / 9 * COLOURS[:, :, None, None].expand(-1, -1, 3, 3))

    def local(self, images: Tensor) -> Tensor:
        maps: Tensor = self.look(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return self.local(images).mean(dim=(2, 3))


def classifier(network: Any = None, **options: Any) -> LocalClassifier:
    return LocalClassifier(network or ColourNet(), SIDE, **{"batch": 8, "precision": "fp32", **options})


def painted(seed: int, other: int) -> Tensor:
    """A red picture on which ``other`` pixels, chosen at random, are green or blue."""
    chance = torch.Generator().manual_seed(seed)
    picture = COLOURS[0][:, None, None].expand(3, SIDE, SIDE).clone()
    for place in torch.randperm(SIDE * SIDE, generator=chance)[:other].tolist():
        picture[:, place // SIDE, place % SIDE] = COLOURS[1 + place % 2]
    return picture


PICTURES = torch.stack([painted(seed, other) for seed, other in enumerate((0, 60, 110, 130, 150, 160))])
LABELS = torch.zeros(len(PICTURES), dtype=torch.long)
RULES: list[EvidenceRule] = [
    RobustMasking(PATCH),
    RobustMasking(PATCH, 0.3),
    ClippedBagNet(PATCH),
    ClippedBagNet(PATCH, slope=0.2),
]


def outcomes(engine: Engine, defence: AnyDefence, pictures: Tensor, labels: Tensor | None = None) -> list[Any]:
    found = examine(engine, pictures, None if labels is None else labels.tolist(), [defence])
    return [one.value[0] for one in sorted(found, key=lambda one: one.number)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_no_patch_of_any_plain_colour_changes_a_certified_answer(rule: EvidenceRule) -> None:
    """Every place, and every corner of the colour cube; some pictures are not certified."""
    ready = classifier(batch=64)
    engine, defence = Engine(ready, [], cohort=64), LocalDefence(rule, ready.fields)
    clean = outcomes(engine, defence, PICTURES, LABELS)
    assert {outcome.certified for outcome in clean} == {True, False}
    corners = list(product(range(SIDE - PATCH + 1), repeat=2))
    for picture, outcome in zip(PICTURES, clean, strict=True):
        assert (outcome.passes, outcome.certificate_passes) == (1, 1)
        if not outcome.certified:
            continue
        attacked = []
        for colour, (top, left) in product(product((0.0, 1.0), repeat=3), corners):
            one = picture.clone()
            one[:, top : top + PATCH, left : left + PATCH] = torch.tensor(colour)[:, None, None]
            attacked.append(one)
        assert {one.label for one in outcomes(engine, defence, torch.stack(attacked))} == {0}
    assert not clean[-1].certified


def test_the_engine_hands_over_what_the_network_says_in_each_cell() -> None:
    ready = classifier()
    numbers = ready.numbers(PICTURES)
    assert numbers.shape == (len(PICTURES), ready.width)
    assert ready.width == 7 * 7 * 3
    assert torch.equal(ready.maps(numbers), ColourNet().local(PICTURES).permute(0, 2, 3, 1))
    assert torch.allclose(ready(PICTURES), ColourNet()(PICTURES).softmax(dim=1), atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_cells_that_give_no_numbers_say_the_least_and_silence_no_others(rule: EvidenceRule) -> None:
    class Odd(ColourNet):
        def local(self, images: Tensor) -> Tensor:
            maps = super().local(images)
            huge = 1e38 * (1e5 * torch.relu(0.01 - maps))
            return maps + (huge - huge)

    ready = classifier(Odd())
    maps = ready.maps(ready.numbers(PICTURES[1:2]))
    assert maps.min() == -LARGEST
    assert (maps > 0).any()
    (outcome,) = outcomes(Engine(ready, []), LocalDefence(rule, ready.fields), PICTURES[1:2])
    assert (outcome.label, outcome.alert) == (0, False)


def test_only_networks_whose_cells_see_a_known_part_of_the_picture_are_taken() -> None:
    for odd, reason in (
        (lambda images: images, "expected a network whose receptive field can be computed"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)), "expected layers whose reach is known"),
        (nn.Conv2d(3, 1, 3), "expected a map of shape"),
    ):
        with pytest.raises(ClassifierError, match=reason):
            classifier(odd)
    with pytest.raises(ClassifierError, match="expected one plain view with local evidence, got plain, mirror"):
        classifier(views=("plain", "mirror"))


class Sly(nn.Module):
    """Looks at the whole picture, or at another one, on some occasion: where it is run, or where it is traced."""

    def __init__(self, far: Callable[[Tensor], bool], look: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.see, self.far, self.look = nn.Conv2d(3, 3, 1), far, look

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.see(images)
        return maps + self.look(maps) if self.far(images) else maps


def strongest(maps: Tensor) -> Tensor:
    return torch.relu(maps.amax(dim=(2, 3), keepdim=True))


def first(maps: Tensor) -> Tensor:
    return 0.5 * maps[:1]


def channels_last(images: Tensor) -> bool:
    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()


@pytest.mark.parametrize(
    ("far", "look", "precision"),
    [
        (lambda _: torch.is_inference_mode_enabled(), strongest, "fp32"),
        (lambda images: len(images) == 8, strongest, "fp32"),
        (lambda images: images.dtype == torch.bfloat16, strongest, "bf16"),
        (channels_last, strongest, "fp32"),
        (lambda _: True, first, "fp32"),
    ],
    ids=["inference mode", "batch", "precision", "layout", "another picture"],
)
def test_the_network_that_runs_is_the_one_whose_field_is_known(
    far: Callable[[Tensor], bool], look: Callable[[Tensor], Tensor], precision: str
) -> None:
    """Elsewhere these networks look at one pixel, or at one picture."""
    with pytest.raises(ClassifierError, match="expected layers whose reach is known"):
        classifier(Sly(far, look), precision=precision)
    assert classifier(Sly(lambda _: False, look), precision=precision).fields[0].size == 1


def test_a_network_that_looks_farther_in_smaller_batches_is_refused_when_they_come() -> None:
    def wide(maps: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(maps, 3, 1, 1)

    engine = Engine(classifier(Sly(lambda images: len(images) == 4, wide)), [])
    with (
        pytest.warns(UserWarning, match="goes on in batches of 4"),
        pytest.raises(ClassifierError, match="see the same pixels in every batch, got others in one of 4"),
    ):
        engine.forward.halve()


def unseen(maps: Tensor) -> Tensor:
    """Cells look far, but not where a network is traced."""
    return 0 * maps if torch.compiler.is_compiling() else strongest(maps)


@pytest.mark.parametrize(
    "certified",
    [
        lambda ready: measured_margin(Engine(ready, []), list(PICTURES)),
        lambda ready: Defence(ready, RULES[0]).certify(PICTURES, LABELS),
    ],
    ids=["margin", "certificates"],
)
def test_a_far_look_that_no_trace_shows_is_seen(certified: Callable[[LocalClassifier], object]) -> None:
    sly = Sly(lambda _: True, unseen)
    with torch.no_grad():
        sly.see.weight.copy_(COLOURS.flip(0)[:, :, None, None])
        sly.see.bias.zero_()  # type: ignore[union-attr]
    with pytest.raises(ClassifierError, match="expected cells that see no more than their field, got a logit of Sly"):
        certified(classifier(sly))


def test_what_rounding_does_outside_of_fields_is_part_of_the_margin() -> None:
    """Every cell takes in a ten-thousandth of a thousandth of the strongest one."""

    def tiny(maps: Tensor) -> Tensor:
        return 1e-6 * unseen(maps)

    sly = Sly(lambda _: True, tiny)
    with torch.no_grad():
        sly.see.weight.copy_(COLOURS[:, :, None, None] - 0.5)
        sly.see.bias.zero_()  # type: ignore[union-attr]
    ready, dark = classifier(sly), 0.5 * PICTURES
    margin = measured_margin(Engine(ready, []), list(dark))
    attacked = dark.clone()
    attacked[..., :4, :4] = torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
    before, after = (ready.maps(as_votes(ready.numbers(pictures)))[:, 4:, 4:] for pictures in (dark, attacked))
    assert 0 < (after - before).double().sum(dim=(1, 2)).abs().amax() <= margin.evidence < 1e-3
    with pytest.warns(UserWarning, match="certify with a measured margin"):
        Defence(ready, RULES[0]).certify(dark, LABELS)
    assert measured_margin(Engine(classifier(), []), list(PICTURES)).evidence == 0


def test_local_logits_are_computed_in_float32_where_nobody_says_otherwise() -> None:
    assert classifier(precision="auto").precision == LocalClassifier(ColourNet(), SIDE, batch=8).precision == "fp32"
    assert classifier(precision="bf16").precision == "bf16"


@pytest.mark.parametrize("odd", [lambda maps: maps * maps / maps, torch.exp], ids=["division", "exponential"])
def test_what_a_picture_can_make_infinite_at_will_is_no_known_layer(odd: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ClassifierError, match="expected layers whose reach is known"):
        classifier(Sly(lambda _: True, odd))
    assert classifier(Sly(lambda _: True, lambda maps: maps / torch.tensor(2.0))).fields[0].size == 1


def test_a_backend_whose_layers_cannot_be_followed_is_refused() -> None:
    with pytest.raises(ClassifierError, match=r"expected the backend torch, .* got openvino"):
        classifier(backend="openvino")


def test_a_defence_is_for_the_cells_that_it_was_made_for() -> None:
    wider = nn.Conv2d(3, 3, 5, stride=2)
    defence = LocalDefence(RobustMasking(PATCH), classifier().fields, "patchguard")
    with pytest.raises(CertmaskError, match="expected the cells that patchguard was made for, got others"):
        outcomes(Engine(classifier(wider), []), defence, PICTURES)
    plain = certmask.Classifier(ColourNet(), SIDE, precision="fp32")
    with pytest.raises(CertmaskError, match="expected a LocalClassifier for robust masking"):
        outcomes(Engine(plain, []), defence, PICTURES)
    with pytest.raises(CertmaskError, match="expected a patch inside the image 16×16, got 17×17"):
        LocalDefence(RobustMasking(17), classifier().fields)
    with pytest.raises(CertmaskError, match="expected a rule on local evidence"):
        LocalDefence(certmask.JuryRecovery(), classifier().fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [*RULES, Averaging(PATCH)], ids=repr)
def test_what_a_results_file_says_of_a_defence_rebuilds_it(rule: EvidenceRule) -> None:
    defence = LocalDefence(rule, classifier().fields, "mine")
    again = defence_from(defence.describe())
    assert isinstance(again, LocalDefence)
    assert again.describe() == defence.describe()
    for own, other in zip(defence.fields, again.fields, strict=True):
        assert np.array_equal(own.sees, other.sees)
        assert np.array_equal(field_from(own.describe()).sees, own.sees)
    for key in ("rule", "fields", "threat"):
        with pytest.raises(ResultsError):
            defence_from({**defence.describe(), key: {}, "name": "mine"})


def test_a_file_that_speaks_of_a_huge_picture_is_not_believed() -> None:
    said = LocalDefence(RULES[0], classifier().fields, "mine").describe()
    for extent in (10**12, -1):
        wrong = [{**said["fields"][0], "extent": extent}, said["fields"][1]]
        with pytest.raises(ResultsError, match="expected at most 16384 pixels and cells along an axis"):
            defence_from({**said, "fields": wrong})


def test_a_run_is_recorded_continued_and_attacked(tmp_path: Path) -> None:
    """The same commands and files as for masks: the undefended network falls, what is certified stays."""
    ready, path = classifier(), tmp_path / "run.jsonl"
    rules = {"undefended": Averaging(PATCH), "patchguard": RULES[0], "clipped-bagnet": RULES[2]}
    defences = [LocalDefence(rule, ready.fields, name) for name, rule in rules.items()]
    labelled = in_memory((PICTURES, LABELS), Framing())
    assert labelled is not None
    certify_run(Engine(ready, []), labelled.spread(3), defences, tmp_path / "some.jsonl")
    certify_run(Engine(ready, []), labelled, defences, path)
    before = path.read_bytes()
    certify_run(Engine(classifier(), []), labelled, defences, path)
    assert path.read_bytes() == before
    run = read_run(path)
    assert run.cover("patchguard") is None
    lines = {line.defence: line for line in certmask.figures(run)}
    assert lines["undefended"].certified is None
    assert lines["patchguard"].certified_as(Guarantee.RECOVERY) is not None
    assert {line.answer_passes for line in lines.values()} == {1.0}
    target = Target(path, (PICTURES, LABELS), tmp_path / "attack.jsonl", ready)
    attempts = target.gauntlet(Budget(images=6, locations=4, steps=12)).attack()
    found = {line.defence: line for line in attack_figures(attempts)}
    assert found["undefended"].label_changed
    for name in ("patchguard", "clipped-bagnet"):
        assert found[name].attempts >= 8
        assert (found[name].label_changed, found[name].broken) == (0, 0)
    uncertified = Target(path, (PICTURES, LABELS), tmp_path / "u.jsonl", ready).uncertified(Budget(images=2, steps=20))
    assert {row["certified"] for row in uncertified.attack().rows} == {False}


def test_votes_that_were_kept_are_not_made_again(tmp_path: Path) -> None:
    ready = classifier()
    defences = [LocalDefence(RULES[0], ready.fields, "patchguard")]
    labelled = in_memory((PICTURES, LABELS), Framing())
    assert labelled is not None
    rows = [
        certify_run(Engine(ready, []), labelled, defences, tmp_path / f"{n}.jsonl", votes=tmp_path / "votes")[1]
        for n in range(2)
    ]
    assert [sum(row["passes"] for row in own) for own in rows] == [len(PICTURES), 0]
    told = [{row["image"]: row["defences"] for row in own} for own in rows]
    assert told[0] == told[1]


def test_a_deployed_defence_answers_proves_explains_and_is_kept(tmp_path: Path) -> None:
    shield = Defence(ColourNet(), PATCH, "patchguard", size=SIDE, precision="fp32")
    proof = shield.certify(PICTURES, LABELS)
    assert proof.certified_recovery
    assert proof.certificates[0].holds
    assert "cells" in repr(shield)
    assert shield.explain(PICTURES[:1])[0].why() == "one look at the picture, piece by piece"
    shield.save(tmp_path / "shield.safetensors")
    same = Defence.load(tmp_path / "shield.safetensors", ColourNet(1.0)), pickle.loads(pickle.dumps(shield))
    for again in (*same, Defence(ColourNet(), RULES[0], size=SIDE, precision="fp32")):
        assert torch.equal(again(PICTURES).labels, shield(PICTURES).labels)
        assert again.certify(PICTURES, LABELS).certificates[0].holds
    with pytest.raises(CertmaskError, match="expected no rule beside a whole defence"):
        Defence(ColourNet(), RULES[0], "zoom", size=SIDE)


def test_rules_on_evidence_have_none_on_votes_beside_them() -> None:
    options: dict[str, Any] = {"size": SIDE, "precision": "fp32"}
    found = certmask.certify(ColourNet(), (PICTURES, LABELS), ["undefended", "patchguard"], PATCH, **options)
    assert list(found.defences) == ["undefended", "patchguard"]
    assert found.defences["undefended"]["rule"]["guarantee"] == "none"
    with pytest.raises(CertmaskError, match=r"expected a rule on local evidence, .* got 'zoom'"):
        certmask.certify(ColourNet(), (PICTURES, LABELS), ["zoom", "patchguard"], PATCH, **options)
    with pytest.raises(CertmaskError, match="expected each rule once"):
        certmask.certify(ColourNet(), (PICTURES, LABELS), [RULES[0], "patchguard"], PATCH, **options)


def test_the_margin_bounds_how_far_sums_of_evidence_move() -> None:
    ready = classifier()
    numbers = ready.numbers(PICTURES)
    moved = numbers + 0.01 * torch.randn(numbers.shape, generator=torch.Generator().manual_seed(0))
    margin, chance = ready.moved(numbers, moved), np.random.default_rng(0)
    change = (ready.maps(moved) - ready.maps(numbers)).double()
    for _ in range(200):
        cells = [torch.from_numpy(chance.random(ready.cells) < 0.5) for _ in range(2)]
        first, second = (change[:, own].sum(dim=1) for own in cells)
        assert (first[:, :, None] - second[:, None, :]).abs().max() <= margin
    assert ready.moved(numbers, numbers) == 0
    apart = ready.maps(numbers).clone()
    apart[..., 0] += 0.5
    apart[..., 1] -= 0.5
    each_against_the_other = 2 * 0.5 * ready.cells[0] * ready.cells[1]
    assert ready.moved(numbers, apart.flatten(1)) == pytest.approx(each_against_the_other)


def test_a_rule_by_name_keeps_the_margin_that_it_is_given() -> None:
    """In sums of local evidence; a lead that it swallows is none."""
    wishes: dict[str, Any] = {"size": SIDE, "precision": "fp32"}
    given = [
        certmask.certify(ColourNet(), (PICTURES, LABELS), ["undefended", "patchguard", "clipped-bagnet"], PATCH,
                         margin=margin, **wishes)
        for margin in (0.0, 25.0)
    ]  # fmt: skip
    for name, certified in (("undefended", [0.0, 0.0]), ("patchguard", [0.0, 25.0]), ("clipped-bagnet", [0.0, 25.0])):
        assert [run.defences[name]["rule"]["margin"] for run in given] == certified
        without, careful = (sum(row["defences"][name]["certified"] is True for row in run.rows) for run in given)
        assert careful <= without
    assert careful < without


class Tilted(ColourNet):
    """Some cells say more for red and others as much less: no mean changes, and no weight."""

    def __init__(self, tilt: float) -> None:
        super().__init__()
        self.tilt = tilt

    def local(self, images: Tensor) -> Tensor:
        corner = -torch.ones(7, 7)
        corner[:2, :2] = 45 / 4
        return super().local(images) + self.tilt * corner * COLOURS[0].view(1, 3, 1, 1)


def test_networks_of_one_mean_and_other_cells_are_other_functions(tmp_path: Path) -> None:
    rule = RobustMasking(PATCH, margin=1e-3)
    one, same, other = (Defence(Tilted(tilt), rule, size=SIDE, batch=8, precision="fp32") for tilt in (0.0, 1e-6, 1.0))
    before = one.engine.fingerprint()
    changes = other.engine.fingerprint().changes(before)
    assert changes.probability < 1e-6
    assert changes.evidence > 1
    moved = other.classifier.moved(other.engine.forward.bare(PICTURES), one.engine.forward.bare(PICTURES))
    assert changes.evidence <= moved
    names = {defence.engine.fingerprint().name for defence in (one, same, other)}
    assert len(names) == 3
    header = json.loads(json.dumps(one.certify(PICTURES, LABELS).header))
    check_function(header, same.engine, [rule], "run.jsonl")
    with pytest.raises(ResultsError, match=r"got one whose leads on fixed pictures differ"):
        check_function(header, other.engine, [rule], "run.jsonl")
    one.save(tmp_path / "one.safetensors")
    Defence.load(tmp_path / "one.safetensors", Tilted(0.0))
    with pytest.raises(ResultsError, match=r"got one whose leads on fixed pictures differ"):
        Defence.load(tmp_path / "one.safetensors", Tilted(1.0))
    functions = {KeptVotes(tmp_path, defence.engine, ["photo"]).path(0) for defence in (one, same, other)}
    assert len(functions) == 3


def test_a_fingerprint_of_cells_survives_json_and_no_tampering() -> None:
    engine = Engine(classifier(), [])
    said = json.loads(json.dumps(engine.fingerprint().describe()))
    again = fingerprint_from(said)
    assert again.describe() == said
    assert engine.fingerprint().changes(again) == (0, 0, 0)
    for key, wrong in (("sums", said["evidence"]["sums"][:-12]), ("of", 2), ("numbers_sha256", 7)):
        with pytest.raises(ResultsError, match=r"expected .*fingerprint.* got"):
            fingerprint_from({**said, "evidence": {**said["evidence"], key: wrong}})


def test_an_older_fingerprint_of_cells_is_read_and_told() -> None:
    engine = Engine(classifier(), [])
    older = Fingerprint(engine.fingerprint().votes)
    header = {"model": {"fingerprint": json.loads(json.dumps(older.describe()))}}
    assert fingerprint_from(older.describe()).evidence is None
    assert "old.jsonl has no sums of local evidence" in check_behaviour(header, engine, [RULES[0]], "old.jsonl")[-1]


def test_cells_that_change_while_means_stay_are_noticed_after_a_run() -> None:
    engine = Engine(classifier(Tilted(0.0)), [])
    check_unchanged(engine, Margin())
    assert isinstance(engine.classifier.model, LocalLogits)
    engine.classifier.model.network.tilt = 1.0  # type: ignore[assignment]
    with pytest.raises(ChangedModelError, match="expected Tilted to answer as it did at first"):
        check_unchanged(engine, Margin(evidence=1e-3))


def test_cells_that_strangers_sway_are_refused_though_means_stay() -> None:
    """Only where a batch has a stranger that none of the first trials had."""

    class Swayed(Tilted):
        def local(self, images: Tensor) -> Tensor:
            maps = super().local(images)
            return maps if torch.compiler.is_compiling() else self._swayed(images, maps)

        def _swayed(self, images: Tensor, maps: Tensor) -> Tensor:
            red = (images[:, 0].mean(dim=(1, 2)) > 0.9).any() and (images[:, 0].mean(dim=(1, 2)) < 0.5).any()
            return maps + float(red) * (Tilted(1.0).local(0 * images))

    engine = Engine(classifier(Swayed(0.0)), [])
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch"):
        check_company(engine, list(PICTURES[:1]))


@pytest.mark.parametrize("rule", ["smoothing", "jury-recovery", "zoom", "undefended"])
def test_a_rule_on_votes_does_not_take_cells_for_classes(rule: str) -> None:
    for network in (ColourNet(), nn.Conv2d(3, 3, SIDE)):
        with pytest.raises(CertmaskError, match=r"expected rules on local evidence .* such as patchguard"):
            Defence(classifier(network), PATCH, rule)
