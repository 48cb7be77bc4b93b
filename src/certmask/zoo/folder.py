"""A Hugging Face folder on this disk: the files of it that count, and transformers kept to them and to this machine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

from certmask.errors import ClassifierError, first_line
from certmask.zoo.timm_import import import_timm

CONFIG, PROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
SHARDS = f"{WEIGHTS}.index.json"
JOINT, ADAPTER = "processor_config.json", "adapter_config.json"
ATTENTION = (None, "eager", "sdpa")
"""torch's own ways to compute attention; others are fetched from a hub."""
ELSEWHERE = ("quantization_config", "compression_config", "use_pretrained_backbone", "use_timm_backbone",
             "configuration_files", "transformers_weights")  # fmt: skip
"""Settings by which the weights or the configuration of the folder are not those that count."""
FOREIGN = ("timm_wrapper", "timm_backbone")
"""Kinds of models whose configuration names what timm shall load, from a hub or a pickle."""
SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
FLAGS = (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("transformers.utils.hub", "_is_offline_mode"))
"""What switches the hub off: in the surroundings, and where libraries keep what they read there."""
_turn = RLock()


def folder_files(folder: Path) -> list[Path]:
    """The files of a folder that make up the model; an error where one is missing, or weights are no safetensors."""
    weights = [folder / WEIGHTS]
    if not weights[0].is_file() and (folder / SHARDS).is_file():
        weights = [folder / SHARDS, *(folder / name for name in _shards(folder / SHARDS))]
    absent = next((path for path in weights if not path.is_file()), None)
    if absent is not None:
        raise ClassifierError(f"expected weights in safetensors in {folder}, got nothing at {absent}")
    if (folder / ADAPTER).exists():
        raise ClassifierError(f"expected whole weights in {folder}, got an adapter to others ({ADAPTER}): merge it")
    return [path for path in (folder / CONFIG, folder / PROCESSOR) if path.is_file()] + weights


def read_config(folder: Path) -> Mapping[str, Any]:
    """The configuration; an error for a model whose code and weights are not those of transformers and the folder."""
    path = folder / CONFIG
    config = read_object(path)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind in FOREIGN:
        got = "none" if kind is None else repr(kind)[:80]
        raise ClassifierError(f"expected a model_type of transformers in {path}, got {got}{_hint(config, folder)}")
    _check_settings(config, path)
    return config


def _hint(config: Mapping[str, Any], folder: Path) -> str:
    """What to do about a folder of timm's."""
    if config.get("model_type") in FOREIGN:
        return ": save the network of timm in it, and take --model NAME --weights FILE"
    timm = config.get("architecture")
    known = isinstance(timm, str) and import_timm().is_model(timm)
    return f": take --model {timm} --weights {folder / WEIGHTS}" if known else ""


def read_settings(folder: Path) -> Mapping[str, Any]:
    """The settings of the image processor; an error where they are missing, or others would count in their place."""
    path = folder / PROCESSOR
    if not path.is_file():
        raise ClassifierError(f"expected {PROCESSOR} in {folder}, got none: how photos become its input is not known")
    if (folder / JOINT).is_file() and "image_processor" in read_object(folder / JOINT):
        raise ClassifierError(
            f"expected the image processor in {PROCESSOR} alone, got another one in {folder / JOINT}: leave one of them"
        )
    settings = read_object(path)
    _check_settings(settings, path)
    return settings


def _check_settings(told: Mapping[str, Any], path: Path) -> None:
    """An error for settings, however deep, that ask for foreign code, other weights or converted ones."""
    for key, value in _settings(told):
        if key == "auto_map":
            raise ClassifierError(
                "expected a model whose code is that of transformers, got one that brings its own "
                f"(auto_map in {path}), which is never run"
            )
        foreign = (key == "model_type" and value in FOREIGN) or (key in ELSEWHERE and value)
        if foreign or (key.endswith("attn_implementation") and not _is_plain(value)):
            raise ClassifierError(
                f"expected a model of plain layers and weights in {path}, got {key} {json.dumps(value)[:80]}"
            )


def _settings(told: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All settings anywhere in an object of JSON, by name."""
    waiting: list[Any] = [told]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ClassifierError(f"expected JSON in {path}, got {first_line(error)}") from None
    if not isinstance(told, dict):
        raise ClassifierError(f"expected a JSON object in {path}, got {told!r:.80}")
    return told


def import_transformers() -> Any:
    """The package that has the layers, or what to install."""
    import_timm()  # transformers imports torchvision, too, which may need what is done there
    try:
        return import_module("transformers")
    except ImportError:
        raise ClassifierError(
            "expected the package transformers, got none: pip install 'certmask[huggingface]'"
        ) from None


@contextmanager
def kept_to(files: list[Path]) -> Iterator[Path]:
    """A folder with these files alone, and no way out: whatever they ask for, transformers finds nothing else.

    One at a time in a process, whose other downloads from Hugging Face have to wait until it is over.
    """
    import_transformers()
    with _turn, tempfile.TemporaryDirectory(prefix="certmask-") as own, _offline(), _quietly():
        for file in files:
            _link(file.resolve(), Path(own) / file.name)
        yield Path(own)


@contextmanager
def _offline() -> Iterator[None]:
    """The hub refuses every request, as its libraries have read it already and as those imported meanwhile would."""
    start_anew = getattr(import_module("huggingface_hub.utils"), "reset_sessions", lambda: None)  # before 1.0
    flags = [(import_module(module), name) for module, name in FLAGS if hasattr(import_module(module), name)]
    before = [getattr(*flag) for flag in flags]
    surroundings = {name: os.environ.get(name) for name in SWITCHES}
    os.environ.update(dict.fromkeys(SWITCHES, "1"))
    try:
        for flag in flags:
            setattr(*flag, True)
        start_anew()
        yield
    finally:
        for name, value in surroundings.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        for flag, own in zip(flags, before, strict=True):
            setattr(*flag, own)
        start_anew()


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


def _link(file: Path, place: Path) -> None:
    """The same file in another place; a copy where links are not allowed."""
    try:
        place.symlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def _shards(path: Path) -> list[str]:
    """The names of the files among which weights are shared out, all in the folder itself."""
    listed = read_object(path).get("weight_map")
    names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
    for name in names:
        if Path(name).name != name or "\\" in name or Path(name).suffix != ".safetensors":
            raise ClassifierError(f"expected names of safetensors files beside {path}, got {name!r:.80}")
    return names


def _is_plain(attention: Any) -> bool:
    """Whether attention, of the whole model or of each of its parts, is computed as torch does it."""
    return all(own in ATTENTION for own in (attention.values() if isinstance(attention, dict) else [attention]))
