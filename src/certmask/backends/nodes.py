"""The nodes of an ONNX graph: which is the last, which cuts tokens out, and which rolls dice."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from certmask.errors import ClassifierError
from certmask.threat import Size

ONNX_ITSELF = ("", "ai.onnx")
"""The two names of ONNX's own operators; a layer of another domain may do anything under their names."""
DICE = ("Multinomial", "Bernoulli", "Sampling")
TOKENS = ("Reshape", "Flatten")
"""What lays out squares in a row, as transformers do; a ConvNeXt's stem, which cuts as they do, keeps the plane."""


def check_no_chance(model: Any, name: str) -> None:
    """An error for a node, anywhere in a model, that rolls dice or looks at the batch as in training."""
    off = _switched_off(model)
    for node in parts_of(model, "NodeProto"):
        if node.op_type.startswith("Random") or node.op_type in DICE:
            raise _no_function(name, f"a {node.op_type}")
        if node.op_type.endswith("Dropout") and any(switch not in off for switch in node.input[2:]):
            raise _no_function(name, f"a {node.op_type} that may be in training")
        training = any(own.name == "training_mode" and own.i for own in node.attribute)
        if node.op_type == "BatchNormalization" and (training or any(node.output[1:])):
            raise _no_function(name, "a BatchNormalization in training")


def parts_of(message: Any, kind: str) -> Iterator[Any]:
    """All parts of a kind (``TensorProto``, ``NodeProto``) anywhere in a model: in subgraphs and functions, too."""
    if type(message).__name__ == kind:
        yield message
    for _, value in message.ListFields():
        for part in value if hasattr(value, "add") else [value]:
            if hasattr(part, "ListFields"):
                yield from parts_of(part, kind)


def before_softmax(model: Any, output: str) -> str | None:
    """What goes into ONNX's own softmax over the classes, if that is what gives the output; else None."""
    makers = {made: node for node in model.graph.node for made in node.output}
    last, seen = makers.get(output), set()
    while last is not None and _is(model, last, "Identity") and output not in seen:
        seen.add(output)
        output = last.input[0]
        last = makers.get(output)
    if last is None or not _is(model, last, "Softmax") or attributes(last).get("axis", 1) not in (1, -1):
        return None
    return str(last.input[0])


def token_side(graph: Any, images: str, size: Size | None) -> int:
    """The side of the squares that the only layer on the images cuts out and lays in a row; 1 where there are none."""
    first = [node for node in graph.node if images in node.input and node.op_type != "Shape"]
    if len(first) != 1 or first[0].op_type != "Conv" or size is None or len(first[0].input) < 2:
        return 1
    options, weights = attributes(first[0]), {tensor.name: tensor for tensor in graph.initializer}
    kernel = list(weights[first[0].input[1]].dims[2:]) if first[0].input[1] in weights else []
    in_a_row = any(first[0].output[0] in node.input and node.op_type in TOKENS for node in graph.node)
    cuts = kernel == options.get("strides") and not any(options.get("pads", [])) and len(set(kernel)) == 1
    return int(kernel[0]) if in_a_row and cuts and kernel[0] > 0 and not any(side % kernel[0] for side in size) else 1


def attributes(node: Any) -> dict[str, Any]:
    helper = import_module("onnx.helper")
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _is(model: Any, node: Any, kind: str) -> bool:
    """Whether a node is ONNX's own operator of this name, not a function of the model that bears it."""
    own = {(function.domain, function.name) for function in model.functions}
    return node.op_type == kind and node.domain in ONNX_ITSELF and not own & {(d, kind) for d in ONNX_ITSELF}


def _switched_off(model: Any) -> set[str]:
    """The names that mean a constant false wherever they stand, and the empty one of an input that is left out."""
    array, other = import_module("onnx.numpy_helper").to_array, set[str]()
    found = [(tensor.name, tensor) for graph in parts_of(model, "GraphProto") for tensor in graph.initializer]
    for node in parts_of(model, "NodeProto"):
        values = [own.t for own in node.attribute if own.name == "value" and node.op_type == "Constant"]
        found += [(node.output[0], value) for value in values]
        other |= set() if values else set(node.output)
    other |= {value.name for graph in parts_of(model, "GraphProto") for value in graph.input}
    other |= {name for function in model.functions for name in function.input}
    other |= {name for name, tensor in found if tensor.data_type != tensor.BOOL or array(tensor).any()}
    return {"", *(name for name, _ in found)} - other


def _no_function(name: str, got: str) -> ClassifierError:
    return ClassifierError(
        "expected a model whose answer for an image does not depend on the rest of its batch, on chance or on earlier "
        f"images, got {got}, in {name}"
    )
