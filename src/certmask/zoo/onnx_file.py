"""Models that people bring as ONNX files, each with a small card beside it that says what the file cannot.

``model.onnx`` is described by ``model.json``: ``classes``, ``mean``, ``std``, ``resize`` and ``crop`` (or ``resized``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certmask.backends.graph import Graph, read_graph, without_softmax
from certmask.backends.onnxruntime import OnnxNetwork
from certmask.backends.outputs import are_probabilities
from certmask.data import Framing
from certmask.data.framing import LARGEST
from certmask.data.imagenet import imagenet_names
from certmask.errors import CertmaskError, ClassifierError, first_line
from certmask.images import checked_colour
from certmask.threat import Size, checked_size
from certmask.zoo.card import Card, card_path
from certmask.zoo.classes import checked_names

BACKEND = OnnxNetwork.computed_by
NUMBERS = "of three numbers"
PIXELS = f"in pixels, a whole number of 1 to {LARGEST} or two,"
WORDS = {"mean": NUMBERS, "std": NUMBERS, "resize": "as the name of a filter", "crop": "as a number",
         "squash": "as true or false", "resized": PIXELS, "size": PIXELS}  # fmt: skip
"""What a field of a card has to be."""
NEEDED = ("classes", "mean", "std", "resize")
OPTIONAL = ("crop", "resized", "squash", "size")
GREATEST = 1e9
"""The greatest number on a card."""
ROUNDING = 1e-5
"""By how much a probability may differ from that which is computed from the logits."""
SHAPE = '{"classes": ["cat", …] or "imagenet", "mean": [r, g, b], "std": [r, g, b], "resize": "bicubic", "crop": 0.875}'


def recognises(name: str) -> bool:
    """Whether a name is that of an ONNX file."""
    return name.endswith(".onnx")


def read_card(name: str) -> Card:
    """Classes and preprocessing as the card beside an ONNX file says; an error where the graph contradicts it."""
    path = Path(name)
    graph, told = read_graph(path), _told(path)
    classes = _classes(told["classes"], path)
    if graph.classes not in (None, len(classes)):
        raise ClassifierError(f"expected {graph.classes} classes as {path} gives, got {len(classes)} on its card")
    size = _size(graph, told, path)
    mean, std = checked_colour(told["mean"], "mean"), checked_colour(told["std"], "std")
    return Card("ONNX graph", classes, size, mean, std, _framing(told, path).share(size), graph.sha256)


def framing(name: str) -> Framing:
    """How photos become the input of an ONNX file, as its card says."""
    return _framing(_told(Path(name)), Path(name))


def read_network(name: str, size: Size) -> OnnxNetwork:
    """The graph in ONNX Runtime up to its logits; one that gives probabilities, by whatever layers, is refused."""
    whole = OnnxNetwork(read_graph(Path(name)))
    graph = without_softmax(whole.graph)
    network = whole if graph is whole.graph else OnnxNetwork(graph)
    noise = torch.randn(4, 3, *size, generator=torch.Generator().manual_seed(0))
    logits = network(noise)
    if network is not whole and not _is_softmax(whole(noise), logits):
        raise ClassifierError(
            f"expected {name} to give the softmax of its logits, got other numbers from what is called a softmax: "
            "export the network without it"
        )
    if logits.ndim == 2 and are_probabilities(logits):
        raise ClassifierError(
            f"expected logits from {name}, got probabilities, and no softmax at its end that could be taken off: "
            "export the network without it"
        )
    return network


def _is_softmax(given: Tensor, logits: Tensor) -> bool:
    """Whether what a graph gives is the softmax of its logits, but for rounding."""
    wanted = logits.double().softmax(dim=-1)
    return given.shape == wanted.shape and bool(((given - wanted).abs() <= ROUNDING).all())


def _told(path: Path) -> Mapping[str, Any]:
    """What the card says; an error that shows how one looks."""
    card = card_path(path)
    if not card.is_file():
        raise ClassifierError(f"expected a card beside {path}, got nothing at {card}: write {SHAPE} there")
    try:
        told = json.loads(card.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ClassifierError(f"expected a card in {card}, got {first_line(error)}") from None
    if not isinstance(told, dict):
        raise ClassifierError(f"expected a card such as {SHAPE} in {card}, got {told!r:.80}")
    odd = [key for key in told if key not in (*NEEDED, *OPTIONAL)]
    missing = [key for key in NEEDED if key not in told]
    if odd or missing or ("crop" in told) == ("resized" in told):
        got = f"an unknown {odd[0]!r}" if odd else f"no {missing[0]!r}" if missing else "both or none of the last two"
        raise ClassifierError(f"expected {', '.join(NEEDED)} and crop or resized in {card}, got {got}")
    for key in (key for key in told if key in WORDS and not _fits(key, told[key])):
        raise ClassifierError(f"expected {key} {WORDS[key]} on the card of {path}, got {told[key]!r:.80}")
    return told


def _fits(key: str, value: Any) -> bool:
    """Whether a field of a card can have this value."""
    several = value if isinstance(value, list) else [value]
    if key in ("mean", "std"):
        return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))
    if key in ("resized", "size"):
        pixels = all(_is_number(n) and isinstance(n, int) and 1 <= n <= LARGEST for n in several)
        return pixels and (several is not value or len(several) == 2)
    return _is_number(value) if key == "crop" else isinstance(value, bool if key == "squash" else str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= GREATEST


def _classes(told: Any, path: Path) -> tuple[str, ...]:
    if told == "imagenet":
        return tuple(imagenet_names())
    if not isinstance(told, list) or len(told) < 2 or not all(isinstance(name, str) for name in told):
        raise ClassifierError(f"expected the names of two classes or more on the card of {path}, got {told!r:.80}")
    return checked_names(told, f"the card of {path}")


def _size(graph: Graph, told: Mapping[str, Any], path: Path) -> Size:
    """The input's size: the graph's own, or the card's where the graph leaves it open."""
    said = checked_size(told["size"], "size") if "size" in told else None
    if graph.size is None and said is None:
        raise ClassifierError(f"expected the size of the input on the card of {path}, whose graph leaves it open")
    if graph.size is not None and said not in (None, graph.size):
        own, other = (f"{size[0]}×{size[1]}" for size in (graph.size, said) if size)
        raise ClassifierError(f"expected the size {own} that {path} takes, got {other} on its card")
    if graph.size and max(graph.size) > LARGEST:
        raise ClassifierError(f"expected inputs of at most {LARGEST} pixels a side in {path}, got {graph.size}")
    return graph.size or said or (0, 0)


def _framing(told: Mapping[str, Any], path: Path) -> Framing:
    try:
        return Framing.described(told)
    except CertmaskError as error:
        raise ClassifierError(f"{error}, on the card of {path}") from None
