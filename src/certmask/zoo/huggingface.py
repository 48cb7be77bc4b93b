"""Models that people bring as Hugging Face folders: image classifiers on this disk; nothing is downloaded, nothing run.

A folder has ``config.json``, ``preprocessor_config.json`` and weights in safetensors; transformers has the layers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends.graph import files_digest
from certmask.data import Framing
from certmask.errors import ClassifierError, first_line
from certmask.threat import Size
from certmask.zoo.card import Card
from certmask.zoo.processor import Preprocessing, followed
from certmask.zoo.timm_import import import_timm

CONFIG, PROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
SHARDS = f"{WEIGHTS}.index.json"
LOG = logging.getLogger(__name__)


def recognises(name: str) -> bool:
    """Whether a name is that of a folder with a configuration."""
    return (Path(name) / CONFIG).is_file()


def read_card(name: str) -> Card:
    """Classes and preprocessing of a folder, with the digest of all its files that count."""
    folder = Path(name)
    files = _files(folder)
    config, own = _config(folder), _preprocessing(folder)
    architecture = ", ".join(map(str, config.get("architectures") or [config["model_type"]]))
    classes = _classes(config, folder)
    return Card(architecture, classes, own.size, own.mean, own.std, own.framing.share(own.size), files_digest(files))


def framing(name: str) -> Framing:
    """How photos become a folder's input, as its image processor does it."""
    return _preprocessing(Path(name)).framing


def read_network(name: str, _size: Size) -> nn.Module:
    """The network of a folder in float32; an error where a weight is missing or has another shape."""
    folder = Path(name)
    _config(folder)
    options = {"use_safetensors": True, "output_loading_info": True}
    network, loaded = _loaded("AutoModelForImageClassification", folder, f"an image classifier in {folder}", **options)
    kind = type(network).__name__
    for what in ("missing", "mismatched"):
        odd = sorted(map(str, loaded[f"{what}_keys"]))
        if odd:
            raise ClassifierError(
                f"expected all weights of {kind} in {folder}, got {len(odd)} {what} (the first is {odd[0]})"
            )
    left = sorted(loaded["unexpected_keys"])
    if left:
        LOG.warning("%s has %d tensors that %s does not use: %s …", folder, len(left), kind, left[0])
    own: nn.Module = network.float()
    return own


def _preprocessing(folder: Path) -> Preprocessing:
    """What the folder's image processor does, if certmask can do the same."""
    path = folder / PROCESSOR
    if not path.is_file():
        raise ClassifierError(f"expected {PROCESSOR} in {folder}, got none: how photos become its input is not known")
    _check_no_code(_read(path), path)
    pillow = {"backend": "pil"} if int(_transformers().__version__.partition(".")[0]) >= 5 else {"use_fast": False}
    return followed(_loaded("AutoImageProcessor", folder, f"an image processor in {path}", **pillow), str(path))


def _loaded(reader: str, folder: Path, what: str, **options: Any) -> Any:
    """What transformers makes of a folder: nothing is downloaded, and no code runs but its own."""
    read = getattr(_transformers(), reader).from_pretrained
    try:
        with _quietly():
            return read(str(folder.resolve()), local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # whatever is in a folder of unknown origin can fail in any way
        raise ClassifierError(f"expected {what}, got {type(error).__name__}: {first_line(error)}") from None


def _files(folder: Path) -> list[Path]:
    """The files of a folder that make up the model; an error where one is missing, or weights are no safetensors."""
    weights = [folder / WEIGHTS]
    if not weights[0].is_file() and (folder / SHARDS).is_file():
        listed = _read(folder / SHARDS).get("weight_map")
        names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
        weights = [folder / SHARDS, *(folder / Path(name).name for name in names)]
    absent = next((path for path in weights if not path.is_file()), None)
    if absent is not None:
        raise ClassifierError(f"expected weights in safetensors in {folder}, got nothing at {absent}")
    return [path for path in (folder / CONFIG, folder / PROCESSOR) if path.is_file()] + weights


def _config(folder: Path) -> Mapping[str, Any]:
    """The configuration; an error for a model whose code transformers does not have."""
    config = _read(folder / CONFIG)
    _check_no_code(config, folder / CONFIG)
    if "model_type" not in config:
        timm = config.get("architecture")
        hint = f": take --model {timm} --weights {folder / WEIGHTS}" if timm else ""
        raise ClassifierError(f"expected a model_type of transformers in {folder / CONFIG}, got none{hint}")
    return config


def _check_no_code(told: Mapping[str, Any], path: Path) -> None:
    if "auto_map" in told:
        raise ClassifierError(
            f"expected a model whose code is that of transformers, got one that brings its own (auto_map in {path}), "
            "which is never run"
        )


def _classes(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The names of the classes in order; those that nobody named have their numbers."""
    names = config.get("id2label")
    if not isinstance(names, dict):
        return tuple(map(str, range(int(config.get("num_labels") or 2))))
    found = {str(key): str(name) for key, name in names.items()}
    order = [str(number) for number in range(len(found))]
    if len(found) < 2 or set(found) != set(order):
        raise ClassifierError(f"expected id2label for classes 0, 1, … in {folder / CONFIG}, got {list(found)[:4]}")
    if all(found[key] == f"LABEL_{key}" for key in order):
        return tuple(order)
    return tuple(found[key] for key in order)


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ClassifierError(f"expected JSON in {path}, got {first_line(error)}") from None
    if not isinstance(told, dict):
        raise ClassifierError(f"expected a JSON object in {path}, got {told!r:.80}")
    return told


def _transformers() -> Any:
    import_timm()  # transformers imports torchvision, too, which may need what is done there
    try:
        return import_module("transformers")
    except ImportError:
        raise ClassifierError(
            "expected the package transformers, got none: pip install 'certmask[huggingface]'"
        ) from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Without bars and remarks: what matters of them is an error here."""
    told = import_module("transformers.utils.logging")
    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    told.set_verbosity_error()
    told.disable_progress_bar()
    try:
        yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()
