"""``certmask models``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from certmask.zoo import Card

RULES = {
    "certified_recovery_two_masks": "PatchCleanser 6×6",
    "certified_recovery_smoothing": "smoothing",
    "certified_recovery_patchguard": "PatchGuard",
    "certified_recovery_clipped_bagnet": "Clipped BagNet",
}
"""The figures of recovery that cards have, and by which rule."""


def models(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with checkpoints and cards; default: models, if there is one.")
    ] = None,
) -> None:
    """List the models at hand with input size, normalization and figures."""
    from certmask.errors import ClassifierError
    from certmask.zoo import models_at_hand
    from certmask.zoo.timm_import import import_timm

    for name, card in models_at_hand(folder):
        if isinstance(card, ClassifierError):
            typer.echo(f"left out: {card}")
        else:
            _print(name, card)
    typer.echo(
        f"{len(import_timm().list_models(pretrained=True)):,} timm models can be downloaded by name, among them the "
        "paper's:\n  vit_base_patch16_224, resnetv2_50, resmlp_24_224; any timm model takes local weights with "
        "--weights FILE"
    )


def _print(name: str, card: Card) -> None:
    from certmask.results.kinds import percent

    mean, std = (" ".join(f"{value:.3g}" for value in values) for values in (card.mean, card.std))
    typer.echo(f"{name}\n  {len(card.classes)} classes, input {card.size[0]}×{card.size[1]}, mean {mean}, std {std}")
    if card.metrics:
        figures = [name for name in RULES if name in card.metrics] or [next(iter(RULES))]
        certified = ", ".join(f"({RULES[name]}) {percent(card.metrics.get(name))} %" for name in figures)
        patch = "×".join(str(side) for side in card.metrics.get("patch", ["?", "?"]))
        typer.echo(
            f"  clean {percent(card.metrics.get('clean_accuracy'))} %, certified recovery against any {patch} patch "
            f"{certified} on {card.metrics.get('images', '?')} held-out photos"
        )
