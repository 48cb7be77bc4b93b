"""Small ONNX graphs, made by hand: good classifiers, and all that is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES = 3
IMAGES = ("n", 3, 8, 8)
LOGITS = ("n", CLASSES)
CARD: dict[str, Any] = {"classes": ["red", "green", "blue"], "mean": [0.5] * 3, "std": [0.25] * 3, "resize": "bicubic",
                        "crop": 1.0}  # fmt: skip
Sides = Sequence[str | int]


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def layers(last: str = "logits") -> list[Any]:
    """The mean colour times a matrix: the brightest channel wins."""
    return [node("GlobalAveragePool", "images", "pooled"), node("Flatten", "pooled", "flat"),
            node("MatMul", "flat weights", last)]  # fmt: skip


def model(
    nodes: Sequence[Any] | None = None,
    images: Sides = IMAGES,
    logits: Sides = LOGITS,
    *,
    kinds: tuple[int, int] = (TensorProto.FLOAT, TensorProto.FLOAT),
    more_inputs: Sequence[Any] = (),
    more_outputs: Sequence[Any] = (),
    opset: int = 17,
    classes: int = CLASSES,
    seed: int = 0,
) -> Any:
    """A model of ``nodes``, by default of ``layers``, with its matrix of weights."""
    weights = 20 * np.eye(3, classes) + np.random.default_rng(seed).normal(0, 2, (3, classes))
    graph = helper.make_graph(
        list(layers() if nodes is None else nodes),
        "colours",
        [helper.make_tensor_value_info("images", kinds[0], images), *more_inputs],
        [helper.make_tensor_value_info("logits", kinds[1], logits), *more_outputs],
        [numpy_helper.from_array(weights.astype(np.float32), "weights")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def with_function(function: Any, last: Any, **options: Any) -> Any:
    """A model whose last layer, from ``scores`` to ``logits``, may be a function that it brings."""
    made = model([*layers("scores"), last], **options)
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def function(name: str, nodes: Sequence[Any], inputs: Sequence[str] = ("x",), domain: str = "own") -> Any:
    """A function of a model's own, from ``inputs`` to ``y``."""
    return helper.make_function(domain, name, list(inputs), ["y"], list(nodes), [helper.make_opsetid("", 17)])


def constant(name: str, value: Any) -> Any:
    return numpy_helper.from_array(np.asarray(value), name)


def written(folder: Path, made: Any = None, card: Any = CARD, name: str = "colours.onnx") -> Path:
    """The model in a file, with a card beside it unless that is None."""
    path = folder / name
    path.write_bytes(made if isinstance(made, bytes) else (made or model()).SerializeToString())
    if card is not None:
        path.with_suffix(".json").write_text(card if isinstance(card, str) else json.dumps(card))
    return path


def with_data_outside(folder: Path, location: str = "colours.data", seed: int = 0) -> Path:
    """The same with its weights in a file beside it."""
    path = folder / "colours.onnx"
    path.with_suffix(".json").write_text(json.dumps(CARD))
    onnx.save(model(seed=seed), path, save_as_external_data=True, location=location, size_threshold=0)
    return path
