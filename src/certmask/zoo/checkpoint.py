"""Weights from local files: safetensors or a plain state dict, never code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from certmask.errors import ClassifierError, first_line

StateDict = dict[str, Tensor]


def read_state_dict(path: Path) -> StateDict:
    """The tensors of a ``.safetensors`` file or of a state dict that ``torch.save`` wrote, half precision widened."""
    if not path.is_file():
        raise ClassifierError(f"expected a weights file, got nothing at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of unknown origin can fail in any way
        raise ClassifierError(
            f"expected safetensors or a plain state dict in {path}, got {type(error).__name__}: {first_line(error)}"
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise ClassifierError(f"expected a state dict of tensors in {path}, got {type(content).__name__}")
    return {name: t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for name, t in content.items()}


def load_weights(model: nn.Module, weights: StateDict, name: str, source: Path | str) -> None:
    """Put the weights into the model; an error that says what differs unless every tensor fits."""
    own = model.state_dict()
    optional = {key for key in own if key.endswith("num_batches_tracked")}
    missing = [key for key in own if key not in weights and key not in optional]
    unknown = [key for key in weights if key not in own]
    odd = [key for key in own if key in weights and own[key].shape != weights[key].shape]
    for what, keys in (("missing", missing), ("unknown", unknown), ("of another shape", odd)):
        if keys:
            raise ClassifierError(
                f"expected weights of {name} in {source}, got {len(keys)} tensors {what} (the first is {keys[0]})"
            )
    model.load_state_dict(weights, strict=False)


def checkpoints_below(folder: Path) -> list[Path]:
    """All models in a folder and its folders, by name: ``.safetensors`` and ``.onnx`` files, Hugging Face folders."""
    folders = {path.parent for path in folder.glob("**/config.json")}
    files = [path for suffix in ("safetensors", "onnx") for path in folder.glob(f"**/*.{suffix}")]
    return sorted([*folders, *(path for path in files if path.parent not in folders)])


def given_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder that the user named; an error if there is none."""
    if not folder.is_dir():
        got = f"the file {folder}" if folder.exists() else f"nothing at {folder}"
        raise ClassifierError(f"expected a folder with checkpoints (.safetensors), got {got}")
    checkpoints = checkpoints_below(folder)
    if not checkpoints:
        raise ClassifierError(f"expected checkpoints (.safetensors) in {folder}, got none")
    return checkpoints
