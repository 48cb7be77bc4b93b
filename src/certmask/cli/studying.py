"""The commands that train, compare and report: their options. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import DeviceOption, WeightsOption


def train(
    data: Annotated[
        str, typer.Argument(help="Training photos: folder of class folders, tar, or CIFAR-10 (FOLDER:train).")
    ],
    validation: Annotated[str, typer.Option("--validation", help="Held-out photos, in any form that `certify` takes.")],
    model: Annotated[str, typer.Option("--model", help="A timm name, or a .safetensors with a card to start from.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints, card and curves; continued if there.")],
    weights: WeightsOption = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Start from timm's pretrained weights.")] = False,
    image: Annotated[str | None, typer.Option("--image", help="Input size; default: the model's own.")] = None,
    crop: Annotated[
        float | None, typer.Option("--crop", help="Share of the photo that is kept; default: the model's own.")
    ] = None,
    cutout: Annotated[str, typer.Option("--cutout", help="none, random (the paper's) or greedy.")] = "random",
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = 10,
    batch: Annotated[int, typer.Option("--batch", min=1)] = 64,
    rate: Annotated[float | None, typer.Option("--rate", help="Default: 0.001 for ViT and MLP, else 0.01.")] = None,
    decay_every: Annotated[int, typer.Option("--decay-every", min=1, help="Divide the rate by 10 so often.")] = 5,
    weight_decay: Annotated[float, typer.Option("--weight-decay", min=0.0)] = 0.0,
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd or adamw.")] = "sgd",
    schedule: Annotated[str, typer.Option("--schedule", help="steps (the paper's) or cosine.")] = "steps",
    warm_up: Annotated[float, typer.Option("--warm-up", help="Epochs in which the rate rises from 0.")] = 0.0,
    smoothing: Annotated[float, typer.Option("--smoothing", help="Label smoothing.")] = 0.0,
    zoom: Annotated[float, typer.Option("--zoom", help="Smallest share of a side that a random crop keeps.")] = 1.0,
    shift: Annotated[int, typer.Option("--shift", help="Most pixels by which a photo is moved.")] = 0,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    patch: Annotated[
        str | None, typer.Option("--patch", help="Patch of the final figures; default: 1/7 of the side.")
    ] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="Held-out photos for the certified figures.")] = 500,
    precision: Annotated[str, typer.Option("--precision", help="Of the certified figures; see `certify`.")] = "auto",
    half: Annotated[bool, typer.Option("--half", help="Save (and measure) the weights rounded to fp16.")] = False,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the network: worth it on a GPU.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train with occlusion (Cutout), write a checkpoint with its card, and measure what it certifies."""
    from certmask.cli.train import architecture, run
    from certmask.training import Recipe, paper_rate

    recipe = Recipe(
        epochs=epochs,
        batch=batch,
        rate=paper_rate(architecture(model)) if rate is None else rate,
        decay_every=decay_every,
        weight_decay=weight_decay,
        cutout=cutout,
        seed=seed,
        optimizer=optimizer,
        schedule=schedule,
        warm_up=warm_up,
        smoothing=smoothing,
        zoom=zoom,
        shift=shift,
    )
    start = None if weights is None else str(weights)
    run(data, validation, model, recipe, out, weights=start, pretrained=pretrained, image=image, crop=crop, patch=patch,
        images=images, precision=precision, half=half, compiled=compile, device=device)  # fmt: skip


def models(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with checkpoints and cards; default: models, if there is one.")
    ] = None,
) -> None:
    """List the models at hand with input size, normalization and figures."""
    from certmask.cli.models import run

    run(folder)
