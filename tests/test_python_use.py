"""certmask from Python: what is handed over wrongly is told in one line, and objects can be compared, kept, copied."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_network
from torch import Tensor, nn

import certmask as cm
from certmask.cli.certify import certify as certify_command
from certmask.cli.predict import predict as predict_command
from certmask.defences import MaskedDefence, examine
from certmask.defences.demo import demo_defences
from certmask.errors import CertmaskError
from certmask.tuning import save_defence
from certmask.zoo import build_model

COVER = cm.spread_cover(24, 4, 10, 2)
SINGLE = cm.patchcleanser_cover(24, 5, 2)
HALVES = cm.custom_cover(24, 4, [cm.Mask(0, 0, 24, 14), cm.Mask(0, 10, 24, 14)])
IMAGES = torch.rand(4, 3, 24, 24, generator=torch.Generator().manual_seed(5))


def by_colour(images: Tensor) -> Tensor:
    return 40 * images.mean(dim=(2, 3))


def shield(**options: Any) -> cm.Defence:
    return cm.Defence(by_colour, SINGLE, batch=8, **options)


WRONG: dict[str, Callable[[], object]] = {
    "model by name": lambda: cm.Classifier("resnet50", 24),  # type: ignore[arg-type]
    "model class": lambda: cm.Classifier(nn.Flatten, 24),  # type: ignore[arg-type]
    "no model": lambda: cm.Classifier(None, 24),  # type: ignore[arg-type]
    "mean of text": lambda: cm.Classifier(by_colour, 24, mean=("a", "b", "c")),  # type: ignore[arg-type]
    "mean that is no number": lambda: cm.Classifier(by_colour, 24, mean=(0.5, 0.5, float("nan"))),
    "batch of True": lambda: cm.Classifier(by_colour, 24, batch=True),
    "device without numbers": lambda: cm.Classifier(by_colour, 24, device="meta"),
    "device of another kind": lambda: cm.Classifier(by_colour, 24, device=0.5),  # type: ignore[arg-type]
    "size as text": lambda: cm.Classifier(by_colour, "24"),  # type: ignore[arg-type]
    "forward with two inputs": lambda: cm.Classifier(lambda a, b: a, 24),  # type: ignore[arg-type,misc]
    "cover and model exchanged": lambda: cm.Defence(SINGLE, by_colour),  # type: ignore[arg-type]
    "text for a cover": lambda: cm.Defence(by_colour, "4", size=24),  # type: ignore[arg-type]
    "patch beyond the input": lambda: cm.Defence(by_colour, 25, size=24),
    "a rule beside a defence": lambda: cm.Defence(by_colour, MaskedDefence(COVER, cm.JuryRecovery()), "zoom"),
    "no file of a defence": lambda: cm.load_defence("nowhere.json"),
    "rule that nobody knows": lambda: shield(rule="juries"),
    "rule class": lambda: shield(rule=cm.JuryRecovery),
    "rule as a number": lambda: shield(rule=3),
    "fill as text": lambda: shield(fill="grey"),
    "fill too light": lambda: shield(fill=1.5),
    "fill of two": lambda: shield(fill=(0.5, 0.5)),
    "aggregate class": lambda: cm.JuryDetection(cm.MeanProbability),  # type: ignore[arg-type]
    "aggregate that nobody knows": lambda: cm.JuryRecovery(aggregate="median"),
    "threshold as text": lambda: cm.MinorityReports("high"),  # type: ignore[arg-type]
    "threshold of NaN": lambda: cm.MinorityReports(float("nan")),
    "images as a list": lambda: shield()([[0.5]]),  # type: ignore[arg-type]
    "no images": lambda: shield()(None),  # type: ignore[arg-type]
    "images as bytes": lambda: shield()(np.zeros((1, 3, 24, 24), dtype=np.uint8)),
    "array of another shape": lambda: shield()(np.zeros((1, 24, 24, 3))),
    "images to explain": lambda: shield().explain([0.5]),  # type: ignore[arg-type]
    "labels of bool": lambda: shield().certify(IMAGES, [True, False, True, True]),
    "labels of text": lambda: shield().certify(IMAGES, ["cat", "dog", "cat", "dog"]),  # type: ignore[list-item]
    "labels in one text": lambda: shield().certify(IMAGES, "0120"),  # type: ignore[arg-type]
    "no labels": lambda: shield().certify(IMAGES, None),  # type: ignore[arg-type]
    "labels among None": lambda: shield().certify(IMAGES, [0, None, 1, 2]),  # type: ignore[list-item]
    "labels in rows": lambda: shield().certify(IMAGES, [[0], [1, 2], [0], [0]]),  # type: ignore[list-item]
    "labels as fractions": lambda: shield().certify(IMAGES, np.array([0.5, 1, 2, 1])),
    "labels beyond the classes": lambda: shield().certify(IMAGES, [0, 1, 2, 3]),
    "one label": lambda: shield().certify(IMAGES, 1),  # type: ignore[arg-type]
    "names twice": lambda: shield().certify(IMAGES, [0, 1, 2, 0], names=["a", "b", "a", "c"]),
    "names too few": lambda: shield().certify(IMAGES, [0, 1, 2, 0], names=["a"]),
    "patch as text": lambda: cm.spread_cover(24, "4", 10),  # type: ignore[arg-type]
    "patch of three": lambda: cm.spread_cover(24, (4, 4, 4), 10),  # type: ignore[arg-type]
    "no patch": lambda: cm.default_cover(24, None),  # type: ignore[arg-type]
    "mask as text": lambda: cm.minimal_cover(24, 4, "10"),  # type: ignore[arg-type]
    "fold of half": lambda: cm.offset_cover(24, 4, 10, 0.5),  # type: ignore[arg-type]
    "image of nothing": lambda: cm.replicated_cover(0, 4, 10),
    "masks that are none": lambda: cm.custom_cover(24, 4, [(0, 0, 24, 24)]),  # type: ignore[list-item]
    "one mask for a list": lambda: cm.custom_cover(24, 4, cm.Mask(0, 0, 24, 24)),  # type: ignore[arg-type]
    "a defence of no cover": lambda: MaskedDefence(None, cm.JuryRecovery()),  # type: ignore[arg-type]
    "a defence of a rule class": lambda: MaskedDefence(COVER, cm.JuryRecovery),  # type: ignore[arg-type]
    "data of no kind": lambda: cm.certify(by_colour, {"images": IMAGES}),
    "data of one dimension": lambda: cm.certify(by_colour, (torch.rand(4), [0, 1, 2, 0])),
    "data of bytes": lambda: cm.certify(by_colour, ((255 * IMAGES).byte(), [0, 1, 2, 0])),
    "data beyond 1": lambda: cm.certify(by_colour, (255 * IMAGES.numpy()[:, ::-1], [0, 1, 2, 0])),
    "data without labels": lambda: cm.certify(by_colour, (IMAGES, None)),
    "data with labels of text": lambda: cm.certify(by_colour, (IMAGES, ["a", "b", "c", "d"])),
    "rules twice": lambda: cm.certify(by_colour, (IMAGES, [0, 1, 2, 0]), ["undefended", cm.Undefended()]),
    "margin of text": lambda: cm.certify(by_colour, (IMAGES, [0, 1, 2, 0]), "published", margin="wide"),
    "fill of text": lambda: cm.certify(by_colour, (IMAGES, [0, 1, 2, 0]), fill="grey"),  # type: ignore[arg-type]
    "no rules": lambda: cm.certify(by_colour, (IMAGES, [0, 1, 2, 0]), []),
    "rules of no kind": lambda: cm.certify(by_colour, (IMAGES, [0, 1, 2, 0]), cm.JuryRecovery),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_handed_over_wrongly_is_told_in_one_line(wrong: Callable[[], object]) -> None:
    with pytest.raises(cm.CertmaskError, match=r"^expected .*got ") as error:
        wrong()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_what_is_clear_is_accepted() -> None:
    """Arrays for tensors, names for rules, a number for a square patch, and one for a grey."""
    own = cm.Defence(by_colour, SINGLE, "patchcleanser-challenger", batch=8, fill=0.5)
    assert isinstance(own.defence.rule, cm.PatchCleanser)
    assert own.defence.rule.challenger
    assert own.engine.fill == (0.5, 0.5, 0.5)
    assert (
        cm.spread_cover(24, 4, 10, 2)
        == cm.spread_cover(24, (4, 4), 10, 2)
        == cm.spread_cover(24, cm.Patch(4, 4), 10, 2)
    )
    for precision in (np.float32, np.float64):
        array = np.asarray(IMAGES.permute(0, 2, 3, 1), dtype=precision).transpose(0, 3, 1, 2)  # as a photo is stored
        assert torch.equal(own(array).labels, own(IMAGES).labels)
    for labels in (np.array([0, 1, 2, 0]), torch.tensor([0, 1, 2, 0], dtype=torch.uint8), (0, 1, 2, 0)):
        assert own.certify(IMAGES, labels).labels.tolist() == [0, 1, 2, 0]
    assert (
        cm.JuryRecovery(aggregate="label-majority").describe()
        == cm.JuryRecovery(aggregate=cm.LabelMajority()).describe()
    )


def test_python_and_the_command_line_take_the_same_pairs() -> None:
    own = inspect.signature(cm.JuryRecovery).parameters["pairs"].default
    for command in (certify_command, predict_command):
        assert inspect.signature(command).parameters["pairs"].default == own
    assert cm.Defence(by_colour, COVER, batch=8).defence.rule.describe()["pairs"] == own == "aligned"
    rules = {d.name: d.rule.describe() for d in demo_defences()}
    kept = cm.read_run(Path(__file__).parent.parent / "results" / "demo.jsonl").defences
    assert rules == {name: {**one["rule"], "margin": 0.0} for name, one in kept.items()}


def test_a_patch_alone_takes_the_masks_that_suit_the_rule(tmp_path: Path) -> None:
    """As the command line does, under the names that it has; a whole defence brings its own."""
    for rule, name, tiling in (
        (None, "zoom", "zoom"),
        ("zoom-detection", "zoom-detection", "zoom"),
        (cm.JuryDetection(), "zoom-detection", "zoom"),
        ("jury-recovery", "jury-recovery", "spread"),
        ("patchcleanser", "patchcleanser", "spread"),
    ):
        shield = cm.Defence(by_colour, 4, rule, size=24, batch=8)
        assert (shield.defence.name, shield.defence.covers[0].tiling) == (name, tiling)
        assert (shield.defence.threat, shield.classifier.size) == (cm.Patch(4, 4), (24, 24))
    assert cm.Defence(by_colour, (4, 3), size=24, batch=8).defence.covers == (cm.zoom_cover(24, (4, 3)),)
    tuned = MaskedDefence(cm.zoom_cover(24, 4, (2, 3)), cm.JuryRecovery(thresholds=0.7), "tuned")
    save_defence(tmp_path / "tuned.json", tuned, {})
    shield = cm.Defence(by_colour, cm.load_defence(tmp_path / "tuned.json"), batch=8)
    assert shield.defence.describe() == tuned.describe()
    assert shield.certify(IMAGES, [0, 1, 2, 0]).header["defences"]["tuned"]["cover"] == tuned.cover.describe()


def test_masks_lie_on_the_tokens_of_a_network() -> None:
    tokens = cm.Classifier(build_model("test_vit", 3, (96, 96)), 96, batch=2)
    assert tokens.grid == 16
    assert cm.Defence(tokens, 4).defence.covers[0].align == 1
    tokens.grid = 2
    assert cm.Defence(tokens, 4).defence.covers == (cm.zoom_cover(96, 4, align=2),)


def test_aligned_pairs_without_grids_are_told_what_to_take() -> None:
    with pytest.raises(cm.CertmaskError, match="take pairs='all'"):
        cm.Defence(by_colour, cm.offset_cover(24, 4, 10, 2), batch=8)


def test_covers_are_equal_by_what_they_say() -> None:
    again = cm.spread_cover(24, 4, 10, 2)
    assert again == COVER
    assert hash(COVER) == hash(again)
    others = [
        SINGLE,
        cm.spread_cover(24, 3, 10, 2),
        replace(again, grids=again.grids[:1]),
        replace(again, grids=()),
        replace(again, copies=tuple(2 for _ in again.copies)),
        replace(again, masks=again.masks[::-1], grids=()),
        replace(again, fold=(1, 1)),
    ]
    assert len({COVER, again, *others}) == 1 + len(others)


def test_an_engine_keeps_covers_with_other_grids_apart(images: Tensor) -> None:
    """The same masks, but one cover has a single grid: aligned pairs of one must not be read from the other's table."""
    few = replace(COVER, grids=COVER.grids[:1])
    classifier = cm.Classifier(tiny_network(), 24, batch=16)
    rule = cm.JuryRecovery("aligned")
    both = [MaskedDefence(COVER, rule, "all grids"), MaskedDefence(few, rule, "one grid")]
    together = cm.Engine(classifier, [COVER, few])
    images, labels = images[:3], [0] * 3
    for number, defence in enumerate(both):
        alone = cm.Engine(classifier, [replace(defence.cover)])
        expected = {f.number: f.value[0] for f in examine(alone, images, labels, [defence])}
        found = {f.number: f.value[number] for f in examine(together, images, labels, both)}
        assert found == expected


def test_objects_say_what_they_are() -> None:
    own = shield()
    proof = own.certify(IMAGES, own(IMAGES).labels)
    said = {repr(thing) for thing in (SINGLE, own, own.classifier, own.engine, proof, proof.certificates[0])}
    assert all(len(line) < 500 and "\n" not in line and " object at 0x" not in line for line in said), said
    assert repr(SINGLE) == "Cover(patchcleanser 1×1, 4 masks of 14×14 against 5×5 on 24×24)"
    assert repr(own.classifier) == "Classifier(function, 3 classes, 24×24, fp32 on cpu, batch 8)"
    assert repr(own.engine) == f"Engine({own.classifier!r}, 4 masks)"
    assert repr(own) == f"Defence({own.classifier!r}, {SINGLE!r}, {own.defence.rule!r})"
    held = sum(certificate.holds for certificate in proof.certificates)
    assert repr(proof) == f"Proof(4 images, 100.0 % clean accuracy, {held} certified (recovery))"
    assert repr(proof.certificates[0]) == f"Certificate(label {proof.labels[0]}: {proof.certificates[0].sentence})"
    assert repr(own(IMAGES[:1])).startswith(f"Answer(labels=[{proof.labels[0]}], alerts=[False], passes=[")
    assert len(repr(own(IMAGES.repeat(30, 1, 1, 1)))) < 100


@pytest.mark.parametrize("model", [by_colour, tiny_network()], ids=["function", "network"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))], ids=["copy", "pickle"])
def test_a_defence_can_be_copied_and_pickled(model: Any, copied: Callable[[cm.Defence], cm.Defence]) -> None:
    own = cm.Defence(model, COVER, "jury-detection", batch=8, fill=0.25, progress=lambda _: None)
    again = copied(own)
    assert again is not own
    assert again.engine.describe() == own.engine.describe()
    assert again.defence.describe() == own.defence.describe()
    for forth, back in zip(
        own.certify(IMAGES, [0] * 4).certificates, again.certify(IMAGES, [0] * 4).certificates, strict=True
    ):
        assert forth == back


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_defence_is_kept_in_a_file(precision: str, images: Tensor, tmp_path: Path) -> None:
    cover = cm.custom_cover(24, (4, 3), [cm.Mask(0, 0, 14, 24), cm.Mask(10, 0, 14, 24), cm.Mask(0, 0, 24, 24)])
    own = cm.Defence(
        tiny_network(), cover, cm.JuryDetection("label-majority", 0.01), fill=0.25, batch=8, precision=precision,
        mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.3), class_names="abcde", name="tiny",
    )  # fmt: skip
    path = tmp_path / "kept" / "shield.safetensors"
    own.save(path)
    again = cm.Defence.load(path, tiny_network(seed=9))
    assert again.engine.describe() == own.engine.describe()
    assert again.defence.describe() == own.defence.describe()
    assert again.defence.covers == (cover,)
    assert again.classifier.class_names == tuple("abcde")
    assert torch.equal(again.classifier(images), own.classifier(images))
    assert again.certify(images, [0] * 12).certificates == own.certify(images, [0] * 12).certificates


@pytest.mark.parametrize(
    "cover",
    [
        cm.zoom_cover(24, 4, (2, (3, 2)), align=2),
        cm.stacked_cover([HALVES, cm.patchcleanser_cover(24, 4, 3)]),
        cm.patchcleanser_cover(24, 4, mask=8, align=4),
    ],
    ids=["zoom", "of one's own", "aligned"],
)
def test_levels_and_the_grid_of_masks_are_kept(cover: cm.Cover, images: Tensor, tmp_path: Path) -> None:
    own = cm.Defence(tiny_network(), cover, cm.JuryRecovery(thresholds=0.2, pooled=True), batch=8, precision="fp32")
    own.save(tmp_path / "shield.safetensors")
    again = cm.Defence.load(tmp_path / "shield.safetensors", tiny_network())
    assert again.defence.covers == (cover,)
    assert (again.defence.covers[0].levels, again.defence.covers[0].align) == (cover.levels, cover.align)
    assert again.certify(images, [0] * 12).rows[0]["defences"] == own.certify(images, [0] * 12).rows[0]["defences"]


def test_a_file_of_another_function_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shield.safetensors"
    cm.Defence(tiny_network(), COVER, batch=8, precision="fp32").save(path)
    other = tiny_network()
    other.add_module("2", nn.Tanh())
    with pytest.raises(cm.CertmaskError, match=r"expected the function that .* certified, got one whose leads"):
        cm.Defence.load(path, other)
    with pytest.raises(cm.CertmaskError, match="of another shape"):
        cm.Defence.load(path, tiny_network(classes=7))
    with pytest.raises(cm.CertmaskError, match="with rule "):
        cm.Defence.load(path, tiny_network(), rule=cm.JuryRecovery("all"))
    with pytest.raises(cm.CertmaskError, match=r"expected a network beside .*Sequential is no name of a model"):
        cm.Defence.load(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(cm.CertmaskError, match=r"expected the weights that were saved .* got changed ones"):
        cm.Defence.load(path, tiny_network())


def test_what_is_no_file_of_a_defence_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.safetensors").write_text("mine")
    for path, got in (("notes.safetensors", "another file"), ("none.safetensors", "nothing at")):
        with pytest.raises(cm.CertmaskError, match=f"expected a saved defence.*got {got}"):
            cm.Defence.load(tmp_path / path, tiny_network())
    with pytest.raises(cm.CertmaskError, match=r"ends in \.safetensors"):
        cm.Defence(tiny_network(), COVER, batch=8).save(tmp_path / "shield.bin")
    with pytest.raises(cm.CertmaskError, match="expected a network on the backend torch to save, got function"):
        shield().save(tmp_path / "shield.safetensors")


def test_a_defence_of_a_known_name_needs_no_network(tmp_path: Path) -> None:
    classifier = cm.load_classifier("resnet26-cifar10", batch=8)
    cm.Defence(classifier, cm.patchcleanser_cover(32, 5, 2)).save(tmp_path / "shield.safetensors")
    again = cm.Defence.load(tmp_path / "shield.safetensors")
    assert again.classifier.describe() == classifier.describe()
    assert again.classifier.class_names == classifier.class_names


def test_an_option_that_no_classifier_has_is_told(network: nn.Module) -> None:
    with pytest.raises(CertmaskError, match="expected options of a Classifier, got men"):
        cm.Defence(network, COVER, men=3)
