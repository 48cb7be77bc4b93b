"""ONNX graphs: what one says about itself is read and checked before anything computes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from certmask.errors import ClassifierError, first_line
from certmask.threat import Size

OLDEST_OPSET = 7
TOKENS = ("Reshape", "Flatten")
"""What lays out squares in a row, as transformers do; a ConvNeXt's stem, which cuts as they do, keeps the plane."""


@dataclass(frozen=True)
class Graph:
    """A graph from images ``[n, 3, height, width]`` to logits ``[n, classes]``, in float32, with its weights inside.

    ``batch``, ``size`` and ``classes`` are None where the graph leaves them open; ``grid`` is the side of the tokens
    into which its first layer cuts the input, 1 without any. ``sha256`` is that of the files it was read from.
    """

    content: bytes = field(repr=False)
    sha256: str
    layers_sha256: str
    input: str
    output: str
    batch: int | None
    size: Size | None
    classes: int | None
    grid: int


def read_graph(path: Path) -> Graph:
    """The graph of an ONNX file and the files beside it that hold its weights; an error unless it is a classifier's."""
    if not path.is_file():
        raise ClassifierError(f"expected an ONNX file, got nothing at {path}")
    onnx = import_onnx()
    try:
        outside = _files(onnx.load(path, load_external_data=False), path.parent)
        model = onnx.load(path)  # refuses weights that lie outside of the folder
        digest = files_digest([path, *outside])
    except Exception as error:  # a file of unknown origin can fail in any way
        raise ClassifierError(
            f"expected an ONNX model in {path}, got {type(error).__name__}: {first_line(error)}"
        ) from None
    return graph_of(model, digest, str(path))


def graph_of(model: Any, sha256: str, name: str) -> Graph:
    """The graph of a model that is in memory; where its last layer is a softmax, the logits before it are taken."""
    graph = model.graph
    _check_opset(model, name)
    known = {tensor.name for tensor in graph.initializer}
    taken = _one([value for value in graph.input if value.name not in known], "input of images", name)
    given = _one([v for v in graph.output if v.name == "logits"] or list(graph.output), "output of logits", name)
    batch, channels, *sides = _shape(taken, "[n, 3, height, width]", 4, name)
    if channels != 3:
        layout = ": it takes the channels last; export it with the channels first" if sides[1] == 3 else ""
        raise ClassifierError(
            f"expected a graph of images [n, 3, height, width] in {name}, got {_words(taken)}{layout}"
        )
    _, classes = _shape(given, "[n, classes]", 2, name)
    if classes == 1:
        raise ClassifierError(f"expected logits of at least two classes in {name}, got one number per image")
    layers = "\n".join(f"{node.op_type} {len(node.input)}" for node in graph.node)
    output = _before_softmax(graph, given)
    size = (sides[0], sides[1]) if sides[0] and sides[1] else None
    grid = _token_side(graph, taken.name, size)
    digest = hashlib.sha256(layers.encode()).hexdigest()
    return Graph(_serialized(model, name), sha256, digest, taken.name, output, batch, size, classes, grid)


def files_digest(files: Sequence[Path]) -> str:
    """sha256 of a file; of several, over the names and digests of all, in this order. Files are read once."""
    digests = [_digest(file.resolve(), _stamp(file)) for file in files]
    if len(files) == 1:
        return digests[0]
    listing = "".join(f"{digest} {file.name}\n" for digest, file in zip(digests, files, strict=True))
    return hashlib.sha256(listing.encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(file: Path, _stamp: tuple[int, ...]) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes with a file's content: its size, and when it was changed, which nobody can set."""
    about = file.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def import_onnx() -> Any:
    """The package that reads ONNX files, or what to install."""
    try:
        return import_module("onnx")
    except ImportError:
        raise ClassifierError("expected the package onnx, got none: pip install 'certmask[onnx]'") from None


def _check_opset(model: Any, name: str) -> None:
    """An error for a language of operators that is too old for ONNX Runtime, or that nobody knows yet."""
    newest = import_module("onnx.defs").onnx_opset_version()
    for own in (opset for opset in model.opset_import if opset.domain in ("", "ai.onnx")):
        if not OLDEST_OPSET <= own.version <= newest:
            raise ClassifierError(f"expected opset {OLDEST_OPSET} to {newest} in {name}, got {own.version}")


def _one(values: Sequence[Any], what: str, name: str) -> Any:
    if len(values) != 1:
        got = ", ".join(map(_words, values)) or "none"
        raise ClassifierError(f"expected one {what} in {name}, got {len(values)}: {got}")
    return values[0]


def _shape(value: Any, wanted: str, rank: int, name: str) -> list[int | None]:
    """The sides of a tensor of float32, None where one is open; an error for another kind or number of them."""
    tensor = value.type.tensor_type
    if tensor.elem_type != import_onnx().TensorProto.FLOAT or len(tensor.shape.dim) != rank:
        raise ClassifierError(f"expected {wanted} in float32 in {name}, got {_words(value)}")
    return [side.dim_value if side.dim_value > 0 else None for side in tensor.shape.dim]


def _words(value: Any) -> str:
    """A tensor of the graph as its maker declared it."""
    tensor = value.type.tensor_type
    sides = ", ".join(str(side.dim_value or side.dim_param or "?") for side in tensor.shape.dim)
    kind = import_onnx().TensorProto.DataType.Name(tensor.elem_type).lower().replace("undefined", "no tensor")
    return f"{value.name} [{sides}] of {'float32' if kind == 'float' else kind}"


def _before_softmax(graph: Any, given: Any) -> str:
    """What the graph gives once a softmax over the classes, if that is its last layer, is taken off."""
    makers = {output: node for node in graph.node for output in node.output}
    last, name = makers.get(given.name), given.name
    while last is not None and last.op_type == "Identity":
        last = makers.get(last.input[0])
    if last is None or last.op_type != "Softmax" or _attributes(last).get("axis", 1) not in (1, -1):
        return str(name)
    given.name = last.input[0]
    return str(given.name)


def _token_side(graph: Any, images: str, size: Size | None) -> int:
    """The side of the squares that the only layer on the images cuts out and lays in a row; 1 where there are none."""
    first = [node for node in graph.node if images in node.input and node.op_type != "Shape"]
    if len(first) != 1 or first[0].op_type != "Conv" or size is None:
        return 1
    options, weights = _attributes(first[0]), {tensor.name: tensor for tensor in graph.initializer}
    kernel = list(weights[first[0].input[1]].dims[2:]) if first[0].input[1] in weights else []
    in_a_row = any(first[0].output[0] in node.input and node.op_type in TOKENS for node in graph.node)
    cuts = kernel == options.get("strides") and not any(options.get("pads", [])) and len(set(kernel)) == 1
    return int(kernel[0]) if in_a_row and cuts and not any(side % kernel[0] for side in size) else 1


def _attributes(node: Any) -> dict[str, Any]:
    helper = import_module("onnx.helper")
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _files(model: Any, folder: Path) -> list[Path]:
    """The files beside a model in which its weights lie, each once."""
    outside = import_module("onnx.external_data_helper")
    found = (outside.ExternalDataInfo(t).location for t in _tensors(model) if outside.uses_external_data(t))
    return [folder / location for location in dict.fromkeys(found)]


def _tensors(message: Any) -> Iterator[Any]:
    """All tensors anywhere in a model: weights, constants, those of its parts."""
    if type(message).__name__ == "TensorProto":
        yield message
    for _, value in message.ListFields():
        for part in value if hasattr(value, "add") else [value]:
            if hasattr(part, "ListFields"):
                yield from _tensors(part)


def _serialized(model: Any, name: str) -> bytes:
    """The model with its weights in one piece; protobuf has room for 2 GiB."""
    try:
        content: bytes = model.SerializeToString()
    except Exception as error:  # another one in every version of protobuf
        raise ClassifierError(f"expected an ONNX model of less than 2 GiB in {name}, got {first_line(error)}") from None
    return content
