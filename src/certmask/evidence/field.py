"""The receptive field of a network's map, computed from its layers: which pixels each cell sees, never guessed."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx, nn

from certmask.errors import ClassifierError, GeometryError, first_line
from certmask.threat import Size

BoolArray = npt.NDArray[np.bool_]
MOST_PIXELS = 2**14
"""No picture is larger along an axis: what a file says of larger ones is not believed."""


@dataclass(frozen=True, eq=False)
class Field:
    """What the cells of a map see along one axis: cell ``j`` sees the pixels ``p`` with ``sees[j, p]``, and no others.

    They lie in the interval of ``size`` pixels from ``start + j·stride`` on, clipped to the picture, or going on at
    its opposite border if the axis ``wraps``. The interval alone may say too much: a dilated kernel has gaps, and a
    cell at the border sees padding where the interval goes on into pixels that a stride has left out.
    """

    size: int
    stride: int
    start: int
    sees: BoolArray
    wraps: bool = False

    @classmethod
    def regular(cls, extent: int, size: int, stride: int, start: int, cells: int, wraps: bool = False) -> Field:
        """Cells that see all of their intervals; a band is a cell on an axis that wraps."""
        if min(extent, size, stride, cells) < 1 or (wraps and size > extent):
            raise GeometryError(
                f"expected an extent, size, stride and cells of at least 1, and no band wider than the picture, got "
                f"extent {extent}, size {size}, stride {stride}, cells {cells}"
            )
        pixels = start + stride * np.arange(cells)[:, None] + np.arange(size)
        pixels = pixels % extent if wraps else pixels
        sees = np.zeros((cells, extent), dtype=bool)
        cell, offset = np.nonzero((pixels >= 0) & (pixels < extent))
        sees[cell, pixels[cell, offset]] = True
        return cls(size, stride, start, sees, wraps)

    @property
    def cells(self) -> int:
        return len(self.sees)

    @property
    def extent(self) -> int:
        """How many pixels the picture has along this axis."""
        return int(self.sees.shape[1])

    def describe(self) -> dict[str, Any]:
        """As results files record it: the pixels that each cell sees, as runs."""
        edges = np.diff(np.pad(self.sees, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        runs = [np.stack([np.flatnonzero(e == 1), np.flatnonzero(e == -1)], axis=1).tolist() for e in edges]
        told = {"size": self.size, "stride": self.stride, "start": self.start, "wraps": self.wraps}
        return {**told, "extent": self.extent, "sees": runs}

    def slid(self, kernel: int, stride: int, padding: int, dilation: int, cells: int) -> Field:
        """The field of cells that look at ``kernel`` of these cells each, of which ``padding`` lie before the first."""
        seen = stride * np.arange(cells)[:, None] - padding + dilation * np.arange(kernel)
        beyond = np.vstack([self.sees, np.zeros((1, self.extent), dtype=bool)])
        sees = np.asarray(beyond[np.where((seen >= 0) & (seen < self.cells), seen, self.cells)].any(axis=1))
        size, start = self.size + (kernel - 1) * dilation * self.stride, self.start - padding * self.stride
        return Field(size, self.stride * stride, start, sees)

    def joined(self, other: Field) -> Field:
        """The field of cells that take in both."""
        if (self.stride, self.sees.shape) != (other.stride, other.sees.shape):
            raise ClassifierError(
                f"expected branches of one stride and as many cells, got strides {self.stride} and {other.stride}, "
                f"{self.cells} and {other.cells} cells"
            )
        start = min(self.start, other.start)
        end = max(self.start + self.size, other.start + other.size)
        return Field(end - start, self.stride, start, self.sees | other.sees)


def field_from(described: Mapping[str, Any]) -> Field:
    """The field that ``Field.describe`` described; an error if no picture or map is that large."""
    if not 0 < described["extent"] <= MOST_PIXELS or len(described["sees"]) > MOST_PIXELS:
        raise GeometryError(
            f"expected at most {MOST_PIXELS} pixels and cells along an axis, got {described['extent']} pixels and "
            f"{len(described['sees'])} cells"
        )
    sees = np.zeros((len(described["sees"]), described["extent"]), dtype=bool)
    for cell, runs in zip(sees, described["sees"], strict=True):
        for low, high in runs:
            cell[low:high] = True
    return Field(described["size"], described["stride"], described["start"], sees, described["wraps"])


def band_fields(image: Size, width: int, stride: int = 1) -> tuple[Field, Field]:
    """The fields of column bands: one row of cells, each sees ``width`` columns; they start every ``stride`` columns.

    The last bands go on at the left border.
    """
    bands = -(-image[1] // stride) if stride >= 1 else 0
    return Field.regular(image[0], image[0], 1, 0, 1), Field.regular(image[1], width, stride, 0, bands, wraps=True)


def receptive_field(network: nn.Module, image: Size, channels: int = 3) -> tuple[Field, Field]:
    """Which rows and which columns of the picture each cell of the network's map sees, by the structure of its layers.

    A cell sees no pixel outside its rows and columns, whatever the weights; a layer whose reach is not known is an
    error. Branches that are long in different directions may together see less than all of these rows × columns.
    """
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    return field_of_batch(network, torch.zeros(2, channels, *image, device=device))


def field_of_batch(network: nn.Module, pictures: Tensor) -> tuple[Field, Field]:
    """The same as the network runs on such a batch: its shape, type and layout, in inference mode or not.

    What a network does only in other batches is not looked at. That a cell sees another picture is an error.
    """
    image = (pictures.shape[2], pictures.shape[3])
    program = _traced(network, pictures)
    fields = (Field.regular(image[0], 1, 1, 0, image[0]), Field.regular(image[1], 1, 1, 0, image[1]))
    maps: dict[fx.Node, _Map] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            maps[node] = _Map(fields, (2, 3))
        elif node.op != "output" and node.users and any(source in maps for source in node.all_input_nodes):
            maps[node] = _after(node, maps)
    given = program.graph_signature.user_outputs
    found = [found for node, found in maps.items() if node.name in given]
    if len(given) != 1 or not found:
        raise ClassifierError(f"expected a network that gives one map of the picture, got outputs {', '.join(given)}")
    return found[0].fields


def _traced(network: nn.Module, pictures: Tensor) -> torch.export.ExportedProgram:
    """The network's operations on tensors, none of them in place, as they are for such pictures; none is computed.

    A trace of known operations alone has none in place; any other is taken apart, which takes longer.
    """
    if any(module.training for module in network.modules()):
        raise ClassifierError("expected a network in eval mode, got one in training mode")
    try:
        with warnings.catch_warnings(), torch.inference_mode(pictures.is_inference()):
            warnings.simplefilter("ignore")
            program = torch.export.export(network, (pictures,))
            for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default):
                # in eval mode it gives the tensor it got, which may be written to under either name
                node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")
            operations = {_name(node) for node in program.graph.nodes if node.op == "call_function"}
            if not operations <= _KNOWN:
                program = program.run_decompositions({})
    except Exception as error:
        raise ClassifierError(
            f"expected layers whose reach is known, got a trace that fails: {first_line(error)}"
        ) from error
    return program


@dataclass(frozen=True)
class _Map:
    """A tensor of four dimensions that depends on the picture: its fields, and the dimensions that they lie in."""

    fields: tuple[Field, Field]
    dims: tuple[int, int]

    @property
    def channels(self) -> int:
        """The dimension of the channels."""
        return 6 - sum(self.dims)

    def along(self, dim: int, kernel: int, stride: int, padding: int, dilation: int, cells: int) -> _Map:
        """The map after a window has slid along one of its dimensions."""
        row, column = (
            field.slid(kernel, stride, padding, dilation, cells) if own == dim else field
            for field, own in zip(self.fields, self.dims, strict=True)
        )
        return _Map((row, column), self.dims)

    def joined(self, other: _Map) -> _Map:
        """The map of cells that take in both."""
        if self.dims != other.dims:
            raise ClassifierError(f"expected branches of one layout, got rows and columns in {self.dims}, {other.dims}")
        return _Map((self.fields[0].joined(other.fields[0]), self.fields[1].joined(other.fields[1])), self.dims)


class _UnknownReachError(Exception):
    """A layer that may look at any pixel, for all that is known."""


def _after(node: fx.Node, maps: Mapping[fx.Node, _Map]) -> _Map:
    """The map that an operation gives; an error if it is not known how far it looks."""
    name = _name(node)
    try:
        if name in _POINTWISE:
            return _pointwise(node, maps)
        if name == "cat.default":
            return _concatenation(node, maps)
        source, *rest = node.args
        if name not in _LAYERS or any(
            isinstance(one, fx.Node) and one in maps for one in (*rest, *node.kwargs.values())
        ):
            raise _UnknownReachError  # weights that depend on the picture, for instance
        return _LAYERS[name](node, maps[source])  # type: ignore[index]
    except _UnknownReachError:
        *_, layer = [found[0] for found in node.meta.get("nn_module_stack", {}).values()] or [""]
        where = f" in {layer}" if layer else ""
        raise ClassifierError(f"expected layers whose reach is known, got {name}{where}") from None


def _name(node: fx.Node) -> str:
    """What an operation is called in the tables below."""
    return "getitem" if node.target is operator.getitem else str(node.target).removeprefix("aten.")


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _option(node: fx.Node, place: int, default: Any) -> Any:
    """An option of an operation, which traces leave out where it has its default."""
    return node.args[place] if len(node.args) > place else default


def _pair(option: Any) -> tuple[int, int]:
    """What an option says about rows and columns; one number is for both."""
    numbers = [option] if isinstance(option, int) else list(option)
    return int(numbers[0]), int(numbers[-1])


def _slid(node: fx.Node, found: _Map, kernel: Any, stride: Any, padding: Any, dilation: Any) -> _Map:
    """Convolution and pooling: a window slides along rows and columns."""
    if found.dims != (2, 3):
        raise _UnknownReachError
    for dim, *window in zip(found.dims, *map(_pair, (kernel, stride, padding, dilation)), strict=True):
        found = found.along(dim, *window, _shape(node)[dim])  # type: ignore[call-arg]
    return found


def _convolution(node: fx.Node, found: _Map) -> _Map:
    kernel = _shape(node.args[1])[2:]  # type: ignore[arg-type]
    padding, dilation = _option(node, 4, 0), _option(node, 5, 1)
    if isinstance(padding, str):
        both = zip(kernel, _pair(dilation), strict=True)
        padding = [own * (length - 1) // 2 if padding == "same" else 0 for length, own in both]
    return _slid(node, found, kernel, _option(node, 3, 1), padding, dilation)


def _max_pooling(node: fx.Node, found: _Map) -> _Map:
    kernel = node.args[1]
    return _slid(node, found, kernel, _option(node, 2, None) or kernel, _option(node, 3, 0), _option(node, 4, 1))


def _average_pooling(node: fx.Node, found: _Map) -> _Map:
    kernel = node.args[1]
    return _slid(node, found, kernel, _option(node, 2, None) or kernel, _option(node, 3, 0), 1)


def _padding(node: fx.Node, found: _Map) -> _Map:
    """With a constant, which sees nothing, or cropping; pads are listed from the last dimension on."""
    pads: Any = node.args[1]
    if _option(node, 2, "constant") != "constant" or len(pads) > 6:
        raise _UnknownReachError
    for dim, left in zip((3, 2, 1), pads[::2], strict=False):
        found = found.along(dim, 1, 1, left, 1, _shape(node)[dim])
    return found


def _slice(node: fx.Node, found: _Map) -> _Map:
    whole, part = _shape(node.args[0]), _shape(node)  # type: ignore[arg-type]
    dim, start, step = _option(node, 1, 0) % 4, _option(node, 2, None) or 0, _option(node, 4, 1)
    if dim == 0 and whole != part:
        raise _UnknownReachError
    first = max(start + whole[dim], 0) if start < 0 else start
    return found.along(dim, 1, step, -first, 1, part[dim])


def _permutation(node: fx.Node, found: _Map) -> _Map:
    dims = [int(dim) % 4 for dim in node.args[1]]  # type: ignore[union-attr, arg-type]
    if dims[0] != 0:
        raise _UnknownReachError
    return _Map(found.fields, (dims.index(found.dims[0]), dims.index(found.dims[1])))


def _last_dimension(_: fx.Node, found: _Map) -> _Map:
    """A linear layer on the channels, where these come last."""
    if found.channels != 3:
        raise _UnknownReachError
    return found


def _layer_norm(node: fx.Node, found: _Map) -> _Map:
    """Over the channels alone, where these come last."""
    if len(node.args[1]) != 1:  # type: ignore[arg-type]
        raise _UnknownReachError
    return _last_dimension(node, found)


def _batch_norm(node: fx.Node, found: _Map) -> _Map:
    """By what it learnt, not by the statistics of the batch."""
    if node.args[5] is not False:
        raise _UnknownReachError
    return found


def _over_channels(node: fx.Node, found: _Map) -> _Map:
    if _option(node, 1, 0) % 4 != found.channels:
        raise _UnknownReachError
    return found


def _first_of(node: fx.Node, found: _Map) -> _Map:
    """What an operation with several results gave first; of batch norm the others are empty."""
    if node.args[1] != 0:
        raise _UnknownReachError
    return found


def _same(_: fx.Node, found: _Map) -> _Map:
    return found


def _pointwise(node: fx.Node, maps: Mapping[fx.Node, _Map]) -> _Map:
    """Cell by cell: of maps with as many rows and columns, and constants; nothing is divided by a map.

    An attacker would choose where that gives no number, and kernels have been seen to carry this beyond their reach.
    """
    if node.target is torch.ops.aten.div.Tensor and node.args[1] in maps:
        raise _UnknownReachError
    sources = [source for source in node.all_input_nodes if source in maps]
    shape, found = _shape(node), reduce(_Map.joined, (maps[source] for source in sources))
    of_cells = {tuple(_shape(source)[dim] for dim in (0, *found.dims)) for source in sources}
    if len(shape) != 4 or of_cells != {tuple(shape[dim] for dim in (0, *found.dims))}:
        raise _UnknownReachError
    return found


def _concatenation(node: fx.Node, maps: Mapping[fx.Node, _Map]) -> _Map:
    found = _pointwise(node, maps)
    if _option(node, 1, 0) % 4 != found.channels:
        raise _UnknownReachError
    return found


_POINTWISE = frozenset(
    f"{name}.{kind}"
    for kind, names in {
        "default": (
            *("abs", "alias", "clamp", "clamp_min", "clone", "contiguous", "detach", "elu", "gelu", "hardsigmoid"),
            *("hardswish", "hardtanh", "leaky_relu", "maximum", "minimum", "mish", "neg", "relu", "relu6", "sigmoid"),
            *("silu", "softplus", "tanh"),
        ),
        "Tensor": ("add", "div", "mul", "sub"),
        "Scalar": ("add", "div", "mul", "rsub", "sub"),
    }.items()
    for name in names
)
"""Operations that make a number from the numbers at the same place."""

_LAYERS: Mapping[str, Callable[[fx.Node, _Map], _Map]] = {
    "_native_batch_norm_legit_no_training.default": _same,
    "avg_pool2d.default": _average_pooling,
    "batch_norm.default": _batch_norm,
    "conv2d.default": _convolution,
    "conv2d.padding": _convolution,
    "getitem": _first_of,
    "layer_norm.default": _layer_norm,
    "linear.default": _last_dimension,
    "max_pool2d.default": _max_pooling,
    "pad.default": _padding,
    "permute.default": _permutation,
    "slice.Tensor": _slice,
    "softmax.int": _over_channels,
}
"""Operations on one map, beside constants, whose reach is known."""

_KNOWN = _POINTWISE | _LAYERS.keys() | {"cat.default"}
"""All of these give new tensors, and write to none."""
