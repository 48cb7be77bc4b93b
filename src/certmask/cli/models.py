"""``certmask models``."""

from __future__ import annotations

from pathlib import Path

import typer

from certmask.errors import ClassifierError
from certmask.results.kinds import percent
from certmask.zoo import DEFAULT_MODEL, Card, shipped_models
from certmask.zoo.card import read_card
from certmask.zoo.models import SHIPPED
from certmask.zoo.timm_import import import_timm

HERE = Path("models")


def run(folder: Path | None) -> None:
    """The embedded model, the shipped ones, checkpoints with cards, and how many names timm knows."""
    checkpoints = _checkpoints(HERE) if folder is None else _given(folder)
    timm = import_timm()
    config = timm.get_pretrained_cfg("tf_efficientnet_lite0")
    _print(DEFAULT_MODEL, Card("", ("",) * 1000, config.input_size[1:], config.mean, config.std, config.crop_pct))
    for name in shipped_models():
        _print(name, read_card(SHIPPED / f"{name}.safetensors"))
    for checkpoint in checkpoints:
        try:
            _print(str(checkpoint), read_card(checkpoint))
        except ClassifierError as error:
            typer.echo(f"left out: {error}")
    typer.echo(
        f"{len(timm.list_models(pretrained=True)):,} timm models can be downloaded by name, among them the paper's:\n"
        "  vit_base_patch16_224, resnetv2_50, resmlp_24_224; any timm model takes local weights with --weights FILE"
    )


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.safetensors"))


def _given(folder: Path) -> list[Path]:
    """The checkpoints in a folder that the user named; an error if there is none."""
    if not folder.is_dir():
        got = f"the file {folder}" if folder.exists() else f"nothing at {folder}"
        raise ClassifierError(f"expected a folder with checkpoints (.safetensors), got {got}")
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        raise ClassifierError(f"expected checkpoints (.safetensors) in {folder}, got none")
    return checkpoints


def _print(name: str, card: Card) -> None:
    mean, std = (" ".join(f"{value:.3g}" for value in values) for values in (card.mean, card.std))
    typer.echo(f"{name}\n  {len(card.classes)} classes, input {card.size[0]}×{card.size[1]}, mean {mean}, std {std}")
    if card.metrics:
        clean, certified = (percent(card.metrics.get(k)) for k in ("clean_accuracy", "certified_recovery_two_masks"))
        patch = "×".join(str(side) for side in card.metrics.get("patch", ["?", "?"]))
        typer.echo(
            f"  clean {clean} %, certified recovery against any {patch} patch (PatchCleanser 6×6) {certified} % "
            f"on {card.metrics.get('images', '?')} held-out photos"
        )
