"""ONNX files as models: the same checks and the same certificates as torch's, and all that is no classifier refused."""

from __future__ import annotations

import copy
import hashlib
import pickle
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from commands import certmask
from conftest import tiny_network
from graphs import CARD, CLASSES, constant, function, layers, model, node, with_data_outside, with_function, written
from onnx import TensorProto, helper
from torch import Tensor, nn

import certmask as cm
from certmask.backends import default_backend
from certmask.backends.onnxruntime import OnnxNetwork
from certmask.classifier import Classifier
from certmask.data import Framing
from certmask.engine.fingerprint import fingerprint_from
from certmask.errors import ClassifierError, UsageError
from certmask.results.file import read_results
from certmask.training import starting_point
from certmask.zoo import framing_of, load_classifier, load_model

SMALL = ("demo-cifar10", "--images", "4", "--rule", "undefended", "--rule", "zoom", "--batch", "16")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped CIFAR-10 network, exported by torch as the example does it."""
    path = tmp_path_factory.mktemp("onnx") / "exported.onnx"
    example = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "onnx_model.py"))
    example["export"]("resnet26-cifar10", path)
    return path


@pytest.fixture
def pictures() -> Tensor:
    return torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def test_an_exported_model_certifies_as_the_torch_model_does(shipped: Path, tmp_path: Path) -> None:
    """Real photos through the command line: the same answers, the same certificates, nearly the same votes."""
    runs = {}
    for own, options in (("torch", ("--model", "resnet26-cifar10", "--precision", "fp32")),
                         ("auto", ("--model", shipped))):  # fmt: skip
        certmask("certify", *SMALL, *options, "--backend", own, "--out", tmp_path / f"{own}.jsonl")
        runs[own] = read_results(tmp_path / f"{own}.jsonl")
    (before, rows), (header, found) = runs["torch"], runs["auto"]
    for mine, theirs in zip(found, rows, strict=True):
        assert mine["image"] == theirs["image"]
        for name in ("undefended", "zoom"):
            assert {k: mine["defences"][name][k] for k in ("label", "alert", "certified", "passes")} == {
                k: theirs["defences"][name][k] for k in ("label", "alert", "certified", "passes")
            }
    assert any(row["defences"]["zoom"]["certified"] for row in found)
    assert header["defences"] == before["defences"]
    changes = fingerprint_from(header["model"]["fingerprint"]).changes(fingerprint_from(before["model"]["fingerprint"]))
    assert changes.probability < 1e-4
    assert header["model"]["backend"] == "onnxruntime"
    assert header["model"]["weights_sha256"] == hashlib.sha256(shipped.read_bytes()).hexdigest()
    assert header["versions"]["onnxruntime"] == onnxruntime.__version__
    assert "onnxruntime" not in before["versions"]


def test_a_run_goes_on_with_the_same_file_and_refuses_another(tmp_path: Path) -> None:
    path, out = written(tmp_path), tmp_path / "run.jsonl"
    photos = tmp_path / "photos"
    for name, colour in zip(CARD["classes"], ((255, 9, 9), (9, 255, 9), (9, 9, 255)), strict=True):
        (photos / name).mkdir(parents=True)
        _photo(colour).save(photos / name / "one.png")
    run = ("certify", photos, "--model", path, "--backend", "auto", "--batch", "4", "--patch", "2", "--out", out)
    certmask(*run)
    rows = read_results(out)[1]
    assert [row["defences"]["zoom"]["certified"] for row in rows] == [True] * 3
    assert "has 3 of 3 images already" in certmask(*run).stdout
    written(tmp_path, model(seed=1))
    assert "weights_sha256" in certmask(*run, code=1).stderr
    written(tmp_path, card={**CARD, "mean": [0.4] * 3})
    assert "mean" in certmask(*run, code=1).stderr


def _photo(colour: tuple[int, int, int]) -> Any:
    from PIL import Image

    return Image.new("RGB", (40, 30), colour)


def test_what_a_graph_says_about_itself(tmp_path: Path, pictures: Tensor) -> None:
    path = written(tmp_path)
    classifier = load_classifier(path, batch=4)
    assert (classifier.size, classifier.classes, classifier.precision) == ((8, 8), CLASSES, "fp32")
    assert classifier.class_names == ("red", "green", "blue")
    assert classifier.name == "colours"
    weights = torch.from_numpy(onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[0]).copy())
    own = ((pictures - 0.5) / 0.25).mean(dim=(2, 3)) @ weights
    torch.testing.assert_close(classifier(pictures), own.softmax(dim=1))
    assert framing_of(str(path)) == Framing(1.0)


@pytest.mark.parametrize("fixed", [1, 3, 5])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_fixed_batch_is_filled_up(fixed: int, batch: int, tmp_path: Path, pictures: Tensor) -> None:
    """Whatever the classifier's own batch: a graph for so many images at a time answers as one for any number."""
    plain = load_classifier(written(tmp_path), batch=batch)
    exact = written(tmp_path, model(images=(fixed, 3, 8, 8), logits=(fixed, CLASSES)), name="fixed.onnx")
    classifier = load_classifier(exact, batch=batch)
    torch.testing.assert_close(classifier(pictures), plain(pictures), atol=1e-6, rtol=0)
    shield = cm.Defence(classifier, 2)
    assert len(shield(pictures).labels) == len(pictures)


@pytest.mark.parametrize("card", [{**CARD, "size": 8}, {**CARD, "size": [8, 8]}])
def test_an_open_size_is_taken_from_the_card(card: dict[str, Any], tmp_path: Path, pictures: Tensor) -> None:
    path = written(tmp_path, model(images=("n", 3, "height", "width")), card)
    torch.testing.assert_close(load_classifier(path, batch=4)(pictures), load_classifier(path, batch=4)(pictures))
    written(tmp_path, model(images=("n", 3, "height", "width")))
    with pytest.raises(ClassifierError, match="expected the size of the input on the card"):
        load_classifier(path)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("tail", [
    [node("Softmax", "scores", "logits", axis=1)],
    [node("Softmax", "scores", "logits", axis=-1)],
    [node("Softmax", "scores", "soft", axis=1), node("Identity", "soft", "logits")],
])  # fmt: skip
def test_a_softmax_at_the_end_is_taken_off(tail: list[Any], opset: int, tmp_path: Path, pictures: Tensor) -> None:
    plain = load_classifier(written(tmp_path), batch=4)
    made = written(tmp_path, model([*layers("scores"), *tail], opset=opset), name="soft.onnx")
    classifier = load_classifier(made, batch=4)
    assert torch.equal(classifier(pictures), plain(pictures))
    assert classifier.weights == hashlib.sha256(made.read_bytes()).hexdigest()


@pytest.mark.parametrize("domain", ["own", ""])
def test_what_is_only_called_a_softmax_stays(domain: str, tmp_path: Path) -> None:
    """A function of the model may bear the name and do anything."""
    with pytest.raises(ClassifierError, match=r"expected logits from .*, got probabilities"):
        load_classifier(_upside_down(tmp_path, domain), batch=4)


def test_a_softmax_is_known_by_its_numbers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certmask.backends.nodes._is", lambda _model, own, kind: own.op_type == kind)
    with pytest.raises(ClassifierError, match=r"expected .* to give the softmax of its logits, got other numbers"):
        load_classifier(_upside_down(tmp_path, "own"), batch=4)


def _upside_down(folder: Path, domain: str) -> Path:
    """A model whose last layer is called a softmax, and is that of the negative."""
    body = [helper.make_node("Constant", [], ["one"], value=constant("one", [1])), node("Neg", "x", "less"),
            node("Exp", "less", "e"), node("ReduceSum", "e one", "s"), node("Div", "e s", "y")]  # fmt: skip
    last = node("Softmax", "scores", "logits", domain=domain)
    return written(folder, with_function(function("Softmax", body, domain=domain), last))


def test_other_outputs_do_not_stand_in_the_way_of_a_softmax(tmp_path: Path, pictures: Tensor) -> None:
    made = model([*layers("scores"), node("Softmax", "scores", "logits", axis=1)])
    made.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("n", CLASSES)))
    classifier = load_classifier(written(tmp_path, made, name="both.onnx"), batch=4)
    assert torch.equal(classifier(pictures), load_classifier(written(tmp_path), batch=4)(pictures))


def test_logarithms_of_probabilities_are_logits(tmp_path: Path, pictures: Tensor) -> None:
    made = model([*layers("scores"), node("LogSoftmax", "scores", "logits", axis=1)])
    classifier = load_classifier(written(tmp_path, made, name="log.onnx"), batch=4)
    torch.testing.assert_close(classifier(pictures), load_classifier(written(tmp_path), batch=4)(pictures))


def test_probabilities_by_other_layers_are_refused(tmp_path: Path) -> None:
    tail = [node("Exp", "scores", "e"), node("ReduceSum", "e axes", "s"), node("Div", "e s", "logits")]
    axes = helper.make_node("Constant", [], ["axes"], value=helper.make_tensor("a", TensorProto.INT64, [1], [1]))
    head = [node("Sigmoid", "images", "calm"), *layers("scores")]
    head[1].input[0] = "calm"
    with pytest.raises(ClassifierError, match=r"expected logits from .*, got probabilities"):
        load_classifier(written(tmp_path, model([axes, *head, *tail])))


def _told_in_vain(change: str) -> Any:
    """A graph with a node that lacks what it needs."""
    first = node("Conv", "images kernel", "cells", strides=[0, 0], name="first")
    head, kernel = layers(), constant("kernel", np.zeros((3, 3, 0, 0), dtype=np.float32))
    head[0].input[0] = "laid"
    made = model([first, node("Flatten", "cells", "laid"), *head])
    made.graph.initializer.append(kernel)
    if change == "no kernel":
        del first.input[1:], made.graph.node[0].input[1:]
    if change == "of another":
        made.graph.node[0].attribute[0].ref_attr_name = "elsewhere"
    return made


def _ends_in(*tail: Any) -> Any:
    return model([*layers("scores"), *tail])


EXTRA = helper.make_tensor_value_info("extra", TensorProto.FLOAT, ("n", 4))
BAD: dict[str, tuple[Any, str]] = {
    "empty": (b"", "expected one input of images .* got 0"),
    "text": (b"hello, this is no model", "expected an ONNX model in"),
    "cut": (model().SerializeToString()[:-40], "expected an ONNX model in"),
    "two inputs": (model(more_inputs=[EXTRA]), r"one input of images .* got 2: images .* of float32, extra"),
    "channels last": (model(images=("n", 8, 8, 3)), r"\[n, 8, 8, 3\] of float32: it takes the channels last"),
    "one channel": (model(images=("n", 1, 8, 8)), r"got images \[n, 1, 8, 8\] of float32$"),
    "open channels": (model(images=("n", "c", 8, 8)), r"got images \[n, c, 8, 8\]"),
    "half": (model(kinds=(TensorProto.FLOAT16, TensorProto.FLOAT)), "in float32 in .*, got images .* of float16"),
    "bytes": (model(kinds=(TensorProto.UINT8, TensorProto.FLOAT)), "in float32 in .*, got images .* of uint8"),
    "double": (model(kinds=(TensorProto.DOUBLE, TensorProto.FLOAT)), "in float32 in .*, got images .* of double"),
    "a label": (model(kinds=(TensorProto.FLOAT, TensorProto.INT64)), "in float32 in .*, got logits .* of int64"),
    "no batch": (model(images=(3, 8, 8)), r"expected \[n, 3, height, width\] in float32 in .*, got images \[3, 8, 8\]"),
    "a map": (model(logits=("n", 3, 4, 4)), r"expected \[n, classes\] in float32 in .*, got logits \[n, 3, 4, 4\]"),
    "one class": (model(logits=("n", 1), classes=1), "expected logits of at least two classes"),
    "unknown layer": (model([*layers("x"), node("Frobnicate", "x", "logits")]), "can compute, got No Op registered"),
    "own layer": (model([*layers("x"), node("Mine", "x", "logits", domain="my.own")]), "that ONNX Runtime can compute"),
    "the future": (model(opset=900), r"expected opset 7 to \d+ in .*, got 900"),
    "the past": (model(opset=6), r"expected opset 7 to \d+ in .*, got 6"),
    "other shape": (model(logits=("n", CLASSES), images=("n", 3, 8, 8), nodes=[node("Flatten", "images", "logits")]),
                    "expected logits of 3 classes, got 192"),
    "a circle": (_ends_in(node("Identity", "logits", "logits")), "that ONNX Runtime can compute"),
    "two in a circle": (_ends_in(node("Identity", "b", "logits"), node("Identity", "logits", "b")), "can compute"),
    "from nothing": (_ends_in(node("Identity", "", "logits")), "that ONNX Runtime can compute"),
    "softmax of nothing": (_ends_in(node("Softmax", "", "logits")), "that ONNX Runtime can compute"),
    "no kernel": (_told_in_vain("no kernel"), "that ONNX Runtime can compute"),
    "a kernel of nothing": (_told_in_vain("no side"), "that ONNX Runtime can compute"),
    "a setting of another": (_told_in_vain("of another"), "expected an ONNX model in .*, got ValueError"),
    "vast": (model(images=("n", 3, 10**9, 10**9)), "expected inputs of at most 4096 pixels a side"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "message"), BAD.values(), ids=BAD)
def test_what_is_no_classifier_is_refused_in_one_line(made: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, made)
    with pytest.raises(ClassifierError, match=message) as error:
        load_classifier(path, batch=2)
    assert "\n" not in str(error.value)
    assert certmask("predict", path, "--model", path, "--backend", "auto", code=1).stdout == ""


def test_two_outputs_are_refused_unless_one_is_called_logits(tmp_path: Path, pictures: Tensor) -> None:
    both = model([*layers(), node("Identity", "flat", "extra")], more_outputs=[EXTRA])
    classifier = load_classifier(written(tmp_path, both), batch=4)
    assert torch.equal(classifier(pictures), load_classifier(written(tmp_path, name="one.onnx"), batch=4)(pictures))
    both.graph.output[0].name = "scores"
    both.graph.node[2].output[0] = "scores"
    with pytest.raises(ClassifierError, match=r"expected one output of logits .* got 2: scores"):
        load_classifier(written(tmp_path, both))


def _resized(pixels: Any) -> dict[str, Any]:
    return {**{key: value for key, value in CARD.items() if key != "crop"}, "resized": pixels}


CARDS: dict[str, tuple[Any, str]] = {
    "none": (None, r"expected a card beside .*, got nothing at .*\.json: write \{\"classes\""),
    "no JSON": ("{", "expected a card in"),
    "a list": ([1], r"expected a card such as .* got \[1\]"),
    "no mean": ({k: v for k, v in CARD.items() if k != "mean"}, "got no 'mean'"),
    "no filter": ({k: v for k, v in CARD.items() if k != "resize"}, "got no 'resize'"),
    "no crop": ({k: v for k, v in CARD.items() if k != "crop"}, "got both or none"),
    "two crops": ({**CARD, "resized": 9}, "got both or none"),
    "a typo": ({**CARD, "maen": [1, 2, 3]}, "got an unknown 'maen'"),
    "classes": ({**CARD, "classes": ["a", "b"]}, "expected 3 classes as .* gives, got 2 on its card"),
    "a word": ({**CARD, "classes": "cats"}, "expected the names of two classes or more"),
    "size": ({**CARD, "size": 9}, "expected the size 8×8 that .* takes, got 9×9"),
    "filter": ({**CARD, "resize": "magic"}, "expected resampling by .*, got 'magic', on the card of"),
    "crop": ({**CARD, "crop": 2}, r"expected crop in \(0, 1\], got 2, on the card"),
    "small": ({**{k: v for k, v in CARD.items() if k != "crop"}, "resized": 7}, "resized to at least"),
    "two means": ({**CARD, "mean": [1, 2]}, "expected mean of three numbers"),
    "no std": ({**CARD, "std": [0, 1, 1]}, "expected std of three positive numbers"),
    "digits": ({**CARD, "mean": "123"}, "expected mean of three numbers on the card of .*, got '123'"),
    "quoted": ({**CARD, "mean": ["0.5"] * 3}, "expected mean of three numbers"),
    "yes": ({**CARD, "std": [True] * 3}, "expected std of three numbers"),
    "no number": ({**CARD, "std": [float("nan"), 1, 1]}, "expected std of three numbers"),
    "endless": ({**CARD, "std": [10**400, 1, 1]}, "expected std of three numbers"),
    "a filter of two": ({**CARD, "resize": ["bicubic"]}, "expected resize as the name of a filter on the card"),
    "a crop in words": ({**CARD, "crop": "x"}, "expected crop as a number on the card of .*, got 'x'"),
    "a crop of yes": ({**CARD, "crop": True}, "expected crop as a number on the card of .*, got True"),
    "squash in words": ({**CARD, "squash": "false"}, "expected squash as true or false on the card of .*, got 'false'"),
    "resized to nothing": (_resized(None), "expected resized in pixels, .* got None"),
    "resized to yes": (_resized(True), "expected resized in pixels, .* got True"),
    "resized without end": (_resized(10**9), "expected resized in pixels, .* got 1000000000"),
    "three sides": (_resized([9, 9, 9]), "expected resized in pixels, .* or two"),
    "size in words": ({**CARD, "size": "x"}, "expected size in pixels, .* got 'x'"),
    "namesakes": ({**CARD, "classes": ["a", "b", "a"]}, "got two classes called 'a'"),
    "deep": ('{"classes": ' + "[" * 100_000, "expected a card in .*, got"),
}  # fmt: skip


@pytest.mark.parametrize(("card", "message"), CARDS.values(), ids=CARDS)
def test_a_card_that_cannot_be_right_is_refused(card: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, None, card)
    with pytest.raises(cm.CertmaskError, match=message) as error:
        load_classifier(path, batch=2)
    assert "\n" not in str(error.value)


COUPLED: dict[str, list[Any]] = {
    "mean of the batch": [
        *layers("own"),
        node("ReduceMean", "own", "mean", axes=[0], keepdims=1),
        node("Sub", "own mean", "logits"),
    ],
    "chance": [*layers("own"), node("RandomNormalLike", "own", "noise"), node("Add", "own noise", "logits")],
    "training": [
        helper.make_node("Dropout", ["images", "ratio", "yes"], ["dropped"]),
        node("GlobalAveragePool", "dropped", "pooled"),
        *layers()[1:],
    ],
}


@pytest.mark.parametrize("nodes", COUPLED.values(), ids=COUPLED)
def test_a_graph_that_is_no_function_of_one_picture_is_refused(nodes: list[Any], tmp_path: Path) -> None:
    made = model(nodes, opset=17)
    made.graph.initializer.append(helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5]))
    made.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    with pytest.raises(ClassifierError, match="does not depend on the rest of its batch, on chance or on earlier"):
        load_classifier(written(tmp_path, made), batch=8)


def _dice() -> list[Any]:
    """Noise that no trial would see."""
    return [node("RandomNormalLike", "x", "noise", scale=1e-9), node("Add", "x noise", "y")]


def _in_a_branch() -> Any:
    told = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    dice = [node("Identity", "scores", "x"), *_dice()]
    same = helper.make_graph([node("Identity", "scores", "y")], "same", [], [told])
    branches = {"then_branch": helper.make_graph(dice, "dice", [], [told]), "else_branch": same}
    made = _ends_in(helper.make_node("If", ["yes"], ["logits"], **branches))
    made.graph.initializer.append(constant("yes", False))
    return made


def _dropped(switch: Any, *, inside: bool = False) -> Any:
    """Dropout whose switch is a constant, or what a function is handed under the name of one that is off."""
    drop = helper.make_node("Dropout", ["x" if inside else "scores", "", "off"], ["y" if inside else "logits"])
    if not inside:
        made = _ends_in(drop)
        made.graph.initializer.append(constant("off", switch))
        return made
    made = with_function(function("Calm", [drop], ("x", "off")), node("Calm", "scores on", "logits", domain="own"))
    made.graph.initializer.extend([constant("on", switch), constant("off", False)])
    return made


def _normal(*outputs: str, **options: Any) -> Any:
    scale = [constant(name, np.full(CLASSES, value, np.float32)) for name, value in (("ones", 1), ("zeros", 0))]
    norm = helper.make_node("BatchNormalization", ["scores", "ones", "zeros", "zeros", "ones"], outputs, **options)
    made = _ends_in(norm)
    made.graph.initializer.extend(scale)
    return made


ROLLED: dict[str, tuple[Any, str]] = {
    "noise": (_ends_in(node("Identity", "scores", "x"), *_dice(), node("Identity", "y", "logits")), "RandomNormalLike"),
    "in a function": (with_function(function("Mine", _dice()), node("Mine", "scores", "logits", domain="own")),
                      "RandomNormalLike"),
    "in a branch": (_in_a_branch(), "RandomNormalLike"),
    "a coin": (_ends_in(node("Bernoulli", "scores", "logits")), "Bernoulli"),
    "dropout": (_dropped(True), "Dropout"),
    "dropout by another name": (_dropped(True, inside=True), "Dropout"),
    "training": (_normal("logits", "m", "v", training_mode=1), "BatchNormalization in training"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "got"), ROLLED.values(), ids=ROLLED)
def test_dice_are_refused_however_seldom_they_matter(made: Any, got: str, tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match=f"on chance or on earlier images, got a {got}"):
        load_classifier(written(tmp_path, made), batch=4)


@pytest.mark.parametrize("made", [_dropped(False), _normal("logits", epsilon=0.0)])
def test_layers_of_training_that_rest_are_taken(made: Any, tmp_path: Path, pictures: Tensor) -> None:
    found = load_classifier(written(tmp_path, made, name="resting.onnx"), batch=4)(pictures)
    torch.testing.assert_close(found, load_classifier(written(tmp_path), batch=4)(pictures))


def test_sparse_weights_in_another_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would read them below the current directory, wherever they were hashed."""
    sparse = helper.make_sparse_tensor(constant("bias", np.ones(3, np.float32)), constant("places", np.arange(3)), [3])
    made = _ends_in(node("Add", "scores bias", "logits"))
    made.graph.sparse_initializer.append(sparse)
    assert load_classifier(written(tmp_path, made), batch=4).classes == CLASSES
    values = made.graph.sparse_initializer[0].values
    onnx.external_data_helper.set_external_data(values, "bias.bin", 0, 12)
    values.ClearField("raw_data")
    (tmp_path / "bias.bin").write_bytes(np.ones(3, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClassifierError, match="got 'bias', a part of a sparse one"):
        load_classifier(written(tmp_path, made), batch=4)


def test_weights_in_a_file_beside_it(tmp_path: Path, pictures: Tensor) -> None:
    """They are part of the model's digest; a file that lies elsewhere is not read."""
    path = with_data_outside(tmp_path)
    first = load_classifier(path, batch=4)
    (tmp_path / "plain").mkdir()
    assert torch.equal(first(pictures), load_classifier(written(tmp_path / "plain"), batch=4)(pictures))
    assert first.weights != hashlib.sha256(path.read_bytes()).hexdigest()
    again = pickle.loads(pickle.dumps(first))
    data = tmp_path / "colours.data"
    numbers = np.frombuffer(data.read_bytes(), dtype=np.float32).copy()
    numbers[0] += 1
    data.write_bytes(numbers.tobytes())
    assert load_classifier(path, batch=4).weights != first.weights
    assert torch.equal(again(pictures), first(pictures))
    data.rename(tmp_path.parent / "colours.data")
    with pytest.raises(ClassifierError, match=r"expected an ONNX model in .*, got"):
        load_classifier(path)
    made = onnx.load(path, load_external_data=False)
    made.graph.initializer[0].external_data[0].value = "../colours.data"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ClassifierError, match=r"expected an ONNX model in .*, got"):
        load_classifier(path)


def test_answers_do_not_move(shipped: Path) -> None:
    """Bit for bit: again, in another place, in a copy, from several threads at once; as many threads as torch has."""
    classifier: Any = load_classifier(shipped, batch=8)
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    before = classifier(images)
    assert classifier.model._session.get_session_options().intra_op_num_threads == torch.get_num_threads()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(5))
    assert torch.equal(classifier(images[order]), before[order])
    assert torch.equal(copy.deepcopy(classifier)(images), before)
    found: list[Tensor] = []
    threads = [threading.Thread(target=lambda: found.append(classifier(images))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, before) for one in found)


def test_in_python(tmp_path: Path, pictures: Tensor) -> None:
    path = written(tmp_path)
    shield = cm.Defence(path, 2, batch=8)
    labels = shield(pictures).labels
    assert torch.equal(labels, cm.Defence(load_classifier(path, batch=8), 2)(pictures).labels)
    assert torch.equal(pickle.loads(pickle.dumps(shield))(pictures).labels, labels)
    run = cm.certify(path, (pictures, labels.tolist()), patch=2, batch=8, votes=tmp_path / "votes")
    assert run.model["weights_sha256"] == shield.classifier.weights
    assert list((tmp_path / "votes").iterdir())
    with pytest.raises(cm.CertmaskError, match="expected options of load_classifier, got mean"):
        cm.Defence(path, 2, mean=(0.0,) * 3)
    with pytest.raises(cm.CertmaskError, match="expected a network on the backend torch to save"):
        shield.save(tmp_path / "shield.safetensors")


def test_what_does_not_go_with_an_onnx_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    for backend in ("torch", "openvino"):
        with pytest.raises(ClassifierError, match=f"expected the backend onnxruntime for colours, got {backend}"):
            load_classifier(path, backend=backend)
        told = certmask("certify", "demo-cifar10", "--model", path, "--backend", backend, code=2).stderr
        assert "expected the backend onnxruntime" in told
    with pytest.raises(ClassifierError, match="expected no further weights"):
        load_classifier(path, "weights.pth")
    with pytest.raises(ClassifierError, match="expected precision fp32 with ONNX Runtime, got 'bf16'"):
        load_classifier(path, precision="bf16")
    with pytest.raises(ClassifierError, match="expected a torch network, which has gradients"):
        load_model(str(path))
    with pytest.raises(
        UsageError, match=r"expected a timm name, or a .safetensors with a card, to start training from"
    ):
        starting_point(str(path), CARD["classes"])


class Branching(nn.Module):
    """Another network for bright pictures, which an export from black ones does not know."""

    def forward(self, images: Tensor) -> Tensor:
        means = images.mean(dim=(2, 3))
        return 20 * means if bool((images.mean() < 2).item()) and not images.requires_grad else -20 * means


def test_torch_networks_are_exported_for_it(images: Tensor) -> None:
    network = tiny_network()
    plain = Classifier(network, 24, precision="fp32", batch=8)
    exported = Classifier(network, 24, batch=8, backend="onnxruntime")
    torch.testing.assert_close(exported(images), plain(images), atol=1e-5, rtol=1e-4)
    assert exported.precision == "fp32"
    assert exported.weights == plain.weights
    assert isinstance(exported.model, OnnxNetwork)
    again = pickle.loads(pickle.dumps(exported))
    assert torch.equal(again(images), exported(images))


@pytest.mark.filterwarnings("ignore:.*gives probabilities where logits are expected")
def test_all_backends_compute_the_same_function_of_a_network_that_ends_in_a_softmax(images: Tensor) -> None:
    network = nn.Sequential(tiny_network(), nn.Softmax(dim=1))
    found = [
        Classifier(network, 24, precision="fp32", batch=8, backend=backend)(images)
        for backend in ("torch", "onnxruntime", "openvino")
    ]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-5, rtol=1e-4)


def test_an_export_that_is_another_network_is_found_out(images: Tensor) -> None:
    from certmask.backends import onnxruntime as backend

    placed = backend.place(tiny_network(), (24, 24), torch.device("cpu"), "fp32")
    placed.model = tiny_network(seed=1)
    for _ in range(6):
        with pytest.raises(ClassifierError, match="expected a network that ONNX Runtime computes as torch does"):
            placed(50 * images)


def test_what_cannot_be_exported_is_said_in_one_line() -> None:
    with pytest.raises(ClassifierError, match="expected a network that torch can export to ONNX for 8×8") as error:
        Classifier(Branching(), 8, precision="fp32", batch=2, backend="onnxruntime")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ClassifierError, match=rf"expected the package {package}, got none: pip install 'certmask\[onnx"
    ):
        load_classifier(written(tmp_path))
    assert default_backend("cpu") in ("torch", "openvino")


def test_nothing_of_it_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys, certmask\n"
        "from certmask.zoo import load_classifier\n"
        "import certmask.cli.app\n"
        "load_classifier('resnet26-cifar10', batch=2)\n"
        "print(sorted({'onnx', 'onnxruntime', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_models_lists_them(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path, name="other.onnx", card=None)
    told = certmask("models", tmp_path).stdout
    assert f"{tmp_path / 'colours.onnx'}\n  3 classes, input 8×8" in told
    assert "left out: expected a card beside" in told


def test_tokens_are_seen_in_the_graph() -> None:
    """Those of a transformer, so that masks lie on them as they do on torch's; not the stem of a ConvNeXt."""
    from certmask.backends.graph import graph_of

    def first(follows: str, side: int = 4, stride: int = 4, pads: int = 0) -> int:
        cut = node("Conv", "images kernel", "cells", strides=[stride] * 2, pads=[pads] * 4)
        head = layers()
        head[0].input[0] = "cells"
        made = model([cut, node(follows, "cells", "laid"), *head])
        made.graph.initializer.append(
            helper.make_tensor("kernel", TensorProto.FLOAT, [2, 3, side, side], [0.0] * (6 * side**2))
        )
        return graph_of(made, "", "a graph").grid

    assert (first("Flatten"), first("Reshape"), first("Transpose")) == (4, 4, 1)
    assert (first("Flatten", 3, 3), first("Flatten", 4, 2), first("Flatten", 4, 4, 1)) == (1, 1, 1)
    assert graph_of(model(), "", "a graph").grid == 1
