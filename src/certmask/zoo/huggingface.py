"""Models that people bring as Hugging Face folders: image classifiers on this disk; nothing is downloaded, nothing run.

A folder has ``config.json``, ``preprocessor_config.json`` and weights in safetensors; transformers has the layers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends.graph import files_digest
from certmask.data import Framing
from certmask.errors import ClassifierError, first_line
from certmask.threat import Size
from certmask.zoo.card import Card
from certmask.zoo.classes import checked_names
from certmask.zoo.folder import (
    CONFIG,
    PROCESSOR,
    folder_files,
    import_transformers,
    kept_to,
    read_config,
    read_settings,
)
from certmask.zoo.processor import Preprocessing, followed

MOST_CLASSES = 1_000_000
LOG = logging.getLogger(__name__)


def recognises(name: str) -> bool:
    """Whether a name is that of a folder with a configuration."""
    return (Path(name) / CONFIG).is_file()


def read_card(name: str) -> Card:
    """Classes and preprocessing of a folder, with the digest of all its files that count."""
    folder = Path(name)
    files = folder_files(folder)
    config, own = read_config(folder), _preprocessing(folder)
    classes = _classes(config, folder)
    share = own.framing.share(own.size)
    return Card(_architecture(config, folder), classes, own.size, own.mean, own.std, share, files_digest(files))


def framing(name: str) -> Framing:
    """How photos become a folder's input, as its image processor does it."""
    return _preprocessing(Path(name)).framing


def read_network(name: str, _size: Size) -> nn.Module:
    """The network of a folder in float32; an error where a weight is missing or has another shape."""
    folder = Path(name)
    read_config(folder)
    options = {"use_safetensors": True, "output_loading_info": True}
    with kept_to(folder_files(folder)) as files:
        what = f"an image classifier in {folder}"
        network, loaded = _loaded("AutoModelForImageClassification", files, what, **options)
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
    read_settings(folder)
    pillow = (
        {"backend": "pil"} if int(import_transformers().__version__.partition(".")[0]) >= 5 else {"use_fast": False}
    )
    with kept_to([folder / CONFIG, path]) as files:
        return followed(_loaded("AutoImageProcessor", files, f"an image processor in {path}", **pillow), str(path))


def _loaded(reader: str, folder: Path, what: str, **options: Any) -> Any:
    """What transformers makes of a folder: nothing is downloaded, and no code runs but its own."""
    read = getattr(import_transformers(), reader).from_pretrained
    try:
        return read(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # whatever is in a folder of unknown origin can fail in any way
        reason = first_line(error).replace(str(folder), "it")
        raise ClassifierError(f"expected {what}, got {type(error).__name__}: {reason}") from None


def _architecture(config: Mapping[str, Any], folder: Path) -> str:
    """What the makers call the layers."""
    names = config.get("architectures") or [config["model_type"]]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ClassifierError(f"expected architectures as names in {folder / CONFIG}, got {names!r:.80}")
    return ", ".join(names)


def _classes(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The names of the classes in order; those that nobody named have their numbers."""
    names = config.get("id2label")
    if names is None:
        return tuple(map(str, range(_count(config.get("num_labels"), folder))))
    found = {str(key): str(name) for key, name in names.items()} if isinstance(names, dict) else {}
    order = [str(number) for number in range(len(found))]
    if len(found) < 2 or set(found) != set(order):
        got = list(found)[:4] if isinstance(names, dict) else names
        raise ClassifierError(f"expected id2label for classes 0, 1, … in {folder / CONFIG}, got {got!r:.80}")
    if all(found[key] == f"LABEL_{key}" for key in order):
        return tuple(order)
    return checked_names([found[key] for key in order], f"id2label of {folder / CONFIG}")


def _count(number: Any, folder: Path) -> int:
    """How many classes there are; transformers takes two where nobody says it."""
    if number is None:
        return 2
    if isinstance(number, bool) or not isinstance(number, int) or not 2 <= number <= MOST_CLASSES:
        raise ClassifierError(f"expected num_labels of 2 to {MOST_CLASSES} in {folder / CONFIG}, got {number!r:.80}")
    return number
