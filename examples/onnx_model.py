"""Export a network to ONNX, write the card beside it, and certify with the file: python examples/onnx_model.py

``certmask certify FOLDER --model models/resnet26-cifar10.onnx`` takes the same file: pip install 'certmask[onnx]'.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import certmask as cm
from certmask.zoo import card_of, load_model

MODEL = "resnet26-cifar10"  # or a network of your own


def export(name: str, path: Path) -> None:
    """The network in ``path``, for batches of any size; beside it what no ONNX file says: classes and preprocessing."""
    network, card = load_model(name).eval(), card_of(name)
    example, batch = torch.zeros(2, 3, *card.size), torch.export.Dim("batch")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        network, (example,), path, dynamic_shapes=({0: batch},), dynamo=True, external_data=False, verbose=False
    )
    told = {
        "classes": card.classes,
        "mean": card.mean,  # of colours in [0, 1]; for a network that takes 0 to 255, mean 0 and std 1/255
        "std": card.std,
        "resize": "bicubic",
        "crop": card.crop,  # or "resized": 256, the shorter side before the centre is cut out
    }
    path.with_suffix(".json").write_text(json.dumps(told))


def main() -> None:
    path = Path("models", f"{MODEL}.onnx")
    export(MODEL, path)
    for model, precision in ((MODEL, "fp32"), (str(path), "auto")):
        run = cm.certify(model, "demo-cifar10", "zoom", patch=5, images=2, batch=8, precision=precision)
        rows = [row["defences"]["zoom"] for row in run.rows]
        right = sum(row["label"] == own["label"] for row, own in zip(run.rows, rows, strict=True))
        proved = sum(row["certified"] for row in rows)
        print(f"{run.model['backend']}: {right} of {len(rows)} answered rightly, {proved} certified")


if __name__ == "__main__":
    main()
