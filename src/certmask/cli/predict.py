"""``certmask predict``."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certmask.cli.options import (
    AggregateOption,
    BackendOption,
    BatchOption,
    DeviceOption,
    DrawOption,
    FoldOption,
    JsonOption,
    MarginOption,
    MaskOption,
    ModelOption,
    PairsOption,
    PatchOption,
    PrecisionOption,
    ThresholdOption,
    TilingOption,
    WeightsOption,
)
from certmask.rules.registry import DEFAULT_PAIRS

if TYPE_CHECKING:
    from PIL import Image

    from certmask.defences import Explanation, MaskedDefence


def predict(
    photos: Annotated[list[Path], typer.Argument(help="Photos of any size.")],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = None,
    rule: Annotated[str, typer.Option("--rule", help="One of the rules that `certify` knows.")] = "jury-recovery",
    pairs: PairsOption = DEFAULT_PAIRS,
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = 0.5,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """Label each photo, say whether an alert is raised, and what is guaranteed. Exit code 3 if one raised an alert."""
    from certmask.cli.choices import Choices
    from certmask.data import read_photo, to_tensor
    from certmask.defences import explain
    from certmask.engine import Engine
    from certmask.engine.margin import measured_margin
    from certmask.zoo import framing_of

    choices = Choices(model, weights, patch, mask, tiling, fold, [rule], pairs, aggregate, threshold, margin)
    choices = choices.on(device, precision, batch, backend)
    fixed = choices.fixed_margin()
    classifier = choices.classifier()
    covers = choices.covers(classifier)
    engine = Engine(classifier, covers)
    framing = framing_of(choices.model)
    inputs = [framing(read_photo(photo), classifier.size) for photo in photos]
    tensors = [to_tensor(image) for image in inputs]
    if fixed is None:
        fixed = measured_margin(engine, tensors[:8])
    (defence,) = choices.defences(covers, fixed)
    found = explain(engine, tensors, defence)
    names = classifier.class_names
    if json:
        records = [_record(*one, names, defence) for one in zip(photos, found, strict=True)]
        typer.echo(jsonlib.dumps(records, ensure_ascii=False, indent=2))
    else:
        _print(photos, found, names, defence)
    if draw:
        _draw(found, inputs, names, defence, draw)
    if any(explanation.alert for explanation in found):
        raise typer.Exit(3)


def _sentence(explanation: Explanation, name: str) -> str:
    """What is guaranteed about this photo with any patch put on it."""
    return f"if this photo is clean and shows {name}: {explanation.certificate.sentence}"


def _record(photo: Path, explanation: Explanation, names: Sequence[str], defence: MaskedDefence) -> dict[str, Any]:
    name = names[explanation.label]
    return {
        "photo": str(photo),
        "label": explanation.label,
        "name": name,
        "alert": explanation.alert,
        "certified": explanation.certificate.holds,
        "guarantee": explanation.certificate.guarantee.value,
        "meaning": _sentence(explanation, name),
        "why": explanation.why(names),
        "passes": explanation.passes,
        "cover": str(defence.cover),
        "rule": defence.name,
    }


def _print(photos: Sequence[Path], found: Sequence[Explanation], names: Sequence[str], defence: MaskedDefence) -> None:
    from rich.markup import escape

    from certmask.certificate import Guarantee
    from certmask.cli.console import out

    for photo, one in zip(photos, found, strict=True):
        alert = "ALERT, this may be an attack" if one.alert else "no alert"
        name = names[one.label]
        said = f"{escape(str(photo))}: [bold]{name}[/bold] ({one.label}), {alert}, {one.passes} passes"
        out.print(f"{said}\n  {_sentence(one, name)}", soft_wrap=True)
    if defence.guarantee is not Guarantee.NONE:
        out.print(f"by {defence.name}: {defence.cover}", soft_wrap=True)


def _draw(
    found: Sequence[Explanation],
    inputs: Sequence[Image.Image],
    names: Sequence[str],
    defence: MaskedDefence,
    path: Path,
) -> None:
    from certmask.cli.console import err
    from certmask.report.drawing import draw_votes

    for number, (one, image) in enumerate(zip(found, inputs, strict=True)):
        target = path if len(found) == 1 else path.with_stem(f"{path.stem}-{number + 1}")
        title = f"{names[one.label]}{' — ALERT' if one.alert else ''}\n{one.certificate.sentence}"
        draw_votes(image, defence.cover, one.votes, names, title, target)
        err.print(f"drawn in {target}", markup=False, soft_wrap=True)
