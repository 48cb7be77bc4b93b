"""A defence as one safetensors file: the weights that it computes with, and all else that makes up its function.

A network's code is not in it: whoever loads a defence brings the architecture, or names one that timm has.
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from certmask.backends.devices import settings
from certmask.classifier import Classifier
from certmask.covers import Cover, joined_cover, stacked_cover
from certmask.covers.cover import against
from certmask.defences import LocalDefence, MaskedDefence, RuledDefence
from certmask.defences.local import local_defence_from
from certmask.engine import Engine
from certmask.errors import CertmaskError, ClassifierError
from certmask.evidence.network import LocalClassifier, LocalLogits
from certmask.function import check_function
from certmask.geometry import Mask
from certmask.identity import tensors_digest
from certmask.images import Colour
from certmask.results.file import provenance
from certmask.rules import Rule
from certmask.rules.registry import as_described_now, rule_from
from certmask.threat import Patch
from certmask.views import PLAIN
from certmask.zoo import is_known, load_architecture
from certmask.zoo.checkpoint import load_weights

DEFENCE_FORMAT = 1


def write_defence(path: Path, engine: Engine, defence: RuledDefence) -> None:
    """Write the file; a reader never sees half of it."""
    classifier = engine.classifier
    tensors = _weights(classifier)
    about = {
        "certmask_defence": DEFENCE_FORMAT,
        "model": engine.describe(),
        "class_names": classifier.class_names,
        "defence": defence.describe(),
        **(_masks(defence.cover) if isinstance(defence, MaskedDefence) else {}),
        "tensors_sha256": tensors_digest(tensors.items()),
        "versions": provenance(classifier.packages),
        "settings": settings(),
    }
    if path.suffix != ".safetensors":
        raise ClassifierError(f"expected a file that ends in .safetensors, got {path}")
    half = path.with_suffix(f".{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, half, metadata={"certmask": json.dumps(about)})
        half.replace(path)
    except (OSError, SafetensorError) as error:
        half.unlink(missing_ok=True)
        raise ClassifierError(f"expected a writable file for the defence, got {path} ({error})") from None


def read_defence(
    path: Path, model: nn.Module | None, rule: Rule | None, device: str
) -> tuple[Classifier, RuledDefence, Colour]:
    """Classifier, defence and fill colour of a file; an error that names the first thing that differs."""
    about, tensors = _read(path)
    try:
        said, fill = about["model"], tuple(about["model"]["fill"])
        was = about["defence"]
        defence = _defence(was, about, rule)
        network = _architecture(said["name"], model, path)
        load_weights(network, tensors, said["name"], path)
        kind = LocalClassifier if isinstance(defence, LocalDefence) else Classifier
        classifier = kind(
            network,
            tuple(said["size"]),
            mean=tuple(said["mean"]),
            std=tuple(said["std"]),
            class_names=about["class_names"],
            device=device,
            views=said.get("views", PLAIN),
            **{key: said[key] for key in ("classes", "precision", "batch", "compiled", "backend", "name")},
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CertmaskError):
            raise
        raise ClassifierError(f"expected a saved defence in {path}, got one without {error}") from None
    classifier.weights = said["weights_sha256"]  # the file's tensors are those, in the precision they compute in
    _check_same({**was, "rule": as_described_now(was["rule"])}, defence.describe(), path)
    for note in check_function(about, Engine(classifier, defence.covers, fill=fill), [defence.rule], str(path)):
        warnings.warn(note, stacklevel=3)
    return classifier, defence, fill


def _defence(was: dict[str, Any], about: dict[str, Any], rule: Rule | None) -> RuledDefence:
    if "fields" in was:
        return local_defence_from(was)
    return MaskedDefence(_cover(was["cover"], about), rule or rule_from(was["rule"]), was["name"])


def _check_same(said: dict[str, Any], found: dict[str, Any], path: Path) -> None:
    """Refuse what is not the defence that was saved, naming the first thing that differs."""
    found = json.loads(json.dumps(found))
    for key in {**said, **found}:
        if said.get(key) != found.get(key):
            raise ClassifierError(
                f"expected the defence that was saved in {path}, with {key} {said.get(key)!r}, got {found.get(key)!r}"
            )


def _weights(classifier: Classifier) -> dict[str, Tensor]:
    """The tensors that the network computes with."""
    if classifier.backend != "torch" or not isinstance(classifier.model, nn.Module):
        got = f"{classifier.name} on {classifier.backend}"
        raise ClassifierError(f"expected a network on the backend torch to save, got {got}")
    network = classifier.model.network if isinstance(classifier.model, LocalLogits) else classifier.model
    state = network.state_dict()
    odd = next((key for key, value in state.items() if not isinstance(value, Tensor) or value.is_quantized), None)
    if odd is not None:
        raise ClassifierError(f"expected plain tensors as weights to save, got {odd} of {classifier.name}: pickle it")
    return {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says, and its tensors, which must be those that were written."""
    if not path.is_file():
        raise ClassifierError(f"expected a saved defence, got nothing at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["certmask"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if about["certmask_defence"] != DEFENCE_FORMAT:
            raise ValueError(f"format {about['certmask_defence']}")
        whole = tensors_digest(tensors.items()) == about["tensors_sha256"]
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise ClassifierError(f"expected a saved defence in {path}, got another file ({error})") from None
    if not whole:
        raise ClassifierError(f"expected the weights that were saved in {path}, got changed ones")
    return about, tensors


def _architecture(name: str, model: nn.Module | None, path: Path) -> nn.Module:
    """A copy of the network that was brought along, else one that can be had under the saved name."""
    if model is not None:
        if not isinstance(model, nn.Module):
            raise ClassifierError(f"expected an nn.Module of the saved architecture, got {model!r}")
        return copy.deepcopy(model)
    if not is_known(name):
        raise ClassifierError(f"expected a network beside {path}, got none: {name} is no name of a model")
    return load_architecture(name)


def _masks(cover: Cover) -> dict[str, Any]:
    """The masks of a cover, and those of its levels."""
    return {
        "masks": [[m.top, m.left, m.height, m.width, m.wraps] for m in cover.masks],
        "copies": cover.copies,
        "grids": cover.grids,
        "levels": [_masks(level) for level in cover.levels],
        "parts": [_masks(part) for part in cover.parts],
    }


def _cover(said: dict[str, Any], about: dict[str, Any]) -> Cover:
    """The cover, checked anew, mask by mask."""
    if "levels" in said:
        return stacked_cover([_cover(*level) for level in zip(said["levels"], about["levels"], strict=True)])
    if "parts" in said:
        patches = [Patch(*size) for size in said["patches"]]
        parts = [_cover(*part) for part in zip(said["parts"], about["parts"], strict=True)]
        return joined_cover(against(said), patches, parts)
    image, mask, fold = (tuple(said[key]) for key in ("image", "mask", "fold"))
    masks = tuple(Mask(*numbers) for numbers in about["masks"])
    grids = tuple(tuple(grid) for grid in about["grids"])
    told = (said["tiling"], image, against(said), mask, fold, masks, tuple(about["copies"]), grids)
    return Cover(*told, align=said.get("align", 1))
