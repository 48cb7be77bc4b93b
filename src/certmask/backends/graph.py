"""ONNX graphs: what one says about itself is read and checked before anything computes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from certmask.backends.nodes import ONNX_ITSELF, before_softmax, check_no_chance, parts_of, token_side
from certmask.errors import CertmaskError, ClassifierError, first_line
from certmask.threat import Size

OLDEST_OPSET = 7


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
        _check_whole(model, path)
        digest = files_digest([path, *outside])
        return graph_of(model, digest, str(path))
    except CertmaskError:
        raise
    except Exception as error:  # a file of unknown origin can fail in any way
        raise ClassifierError(
            f"expected an ONNX model in {path}, got {type(error).__name__}: {first_line(error)}"
        ) from None


def graph_of(model: Any, sha256: str, name: str) -> Graph:
    """The graph of a model that is in memory; an error unless it is a classifier's, and none that rolls dice."""
    graph = model.graph
    _check_opset(model, name)
    check_no_chance(model, name)
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
    size = (sides[0], sides[1]) if sides[0] and sides[1] else None
    grid = token_side(graph, taken.name, size)
    digest = hashlib.sha256(layers.encode()).hexdigest()
    return Graph(_serialized(model, name), sha256, digest, taken.name, given.name, batch, size, classes, grid)


def without_softmax(graph: Graph) -> Graph:
    """The graph up to its logits where its last layer is a softmax over the classes; else the same graph."""
    model = import_onnx().load_model_from_string(graph.content)
    logits = before_softmax(model, graph.output)
    if logits is None:
        return graph
    given = next(value for value in model.graph.output if value.name == graph.output)
    given.name = logits
    kept = import_onnx().ValueInfoProto.FromString(given.SerializeToString())
    del model.graph.output[:]
    model.graph.output.append(kept)
    return replace(graph, content=model.SerializeToString(), output=logits)


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
    for own in (opset for opset in model.opset_import if opset.domain in ONNX_ITSELF):
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


def _files(model: Any, folder: Path) -> list[Path]:
    """The files beside a model in which its weights lie, each once."""
    read = import_module("onnx.external_data_helper").ExternalDataInfo
    return [folder / location for location in dict.fromkeys(read(tensor).location for tensor in _outside(model))]


def _outside(model: Any) -> list[Any]:
    """The tensors, anywhere in a model, whose numbers lie in another file."""
    is_outside = import_module("onnx.external_data_helper").uses_external_data
    return [tensor for tensor in parts_of(model, "TensorProto") if is_outside(tensor)]


def _check_whole(model: Any, path: Path) -> None:
    """An error for a tensor that is left outside: ONNX Runtime would look for it elsewhere than it was hashed."""
    for tensor in _outside(model):
        raise ClassifierError(
            f"expected {path} to keep only whole tensors in files beside it, got {tensor.name!r}, a part of a sparse "
            "one: save it inside the file"
        )


def _serialized(model: Any, name: str) -> bytes:
    """The model with its weights in one piece; protobuf has room for 2 GiB."""
    try:
        content: bytes = model.SerializeToString()
    except Exception as error:  # another one in every version of protobuf
        raise ClassifierError(f"expected an ONNX model of less than 2 GiB in {name}, got {first_line(error)}") from None
    return content
