"""All commands and their options. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make an image classifier provably safe against adversarial patches, and say exactly what was proved.",
    epilog="Exit codes: 0 done, 1 error (one line on stderr; a traceback with --debug), 2 wrong usage, 3 alert raised.",
)

ImageOption = Annotated[
    str, typer.Option("--image", help="Size of the model's input, e.g. 224 or 224x320 (height x width).")
]
PatchOption = Annotated[
    str, typer.Option("--patch", help="Largest patch to defend against, in pixels of the model's input.")
]
MaskOption = Annotated[
    str | None, typer.Option("--mask", help="Mask size; default: the one that needs 6 masks per axis.")
]
TilingOption = Annotated[str, typer.Option("--tiling", help="minimal, spread, replicated, offset or patchcleanser.")]
FoldOption = Annotated[str, typer.Option("--fold", help="How often each place is covered, per axis: 2x2 or 3x2 or 1.")]
ModelOption = Annotated[
    str, typer.Option("--model", help="efficientnet-lite0 (embedded), a .safetensors with a card, or a timm name.")
]
WeightsOption = Annotated[Path | None, typer.Option("--weights", help="Local checkpoint: safetensors or state dict.")]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto.")]
PrecisionOption = Annotated[str, typer.Option("--precision", help="fp32, tf32, bf16, fp16, or auto.")]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Images per forward pass, part of the certificate; default: by device."),
]
BackendOption = Annotated[str, typer.Option("--backend", help="torch, openvino (faster on CPUs), or auto.")]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help="jury-recovery, jury-detection, patchcleanser[-challenger], minority-reports, published, undefended.",
    ),
]
PairsOption = Annotated[str, typer.Option("--pairs", help="Pairs that jury recovery pools: aligned or all.")]
AggregateOption = Annotated[
    str, typer.Option("--aggregate", help="mean-probability, mean-log-probability, label-majority.")
]
ThresholdOption = Annotated[float, typer.Option("--threshold", help="Confidence threshold of minority-reports.")]
MarginOption = Annotated[
    str, typer.Option("--margin", help="Lead that every certified verdict must exceed: a number, or auto (measured).")
]
DrawOption = Annotated[Path | None, typer.Option("--draw", help="Save a picture (PNG, PDF or SVG).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _version(value: bool) -> None:
    if value:
        from certmask import __version__

        typer.echo(f"certmask {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def plan(
    image: ImageOption = "224",
    patch: PatchOption = "32",
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = "1x1",
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Most passes that one recovery certificate may take.")
    ] = None,
    json: JsonOption = False,
    draw: DrawOption = None,
) -> None:
    """What a cover costs: masks, verified fold, districts, pairs, beside the exact minimum and the paper's count."""
    from certmask.cli.plan import run

    run(image, patch, mask, tiling, fold, budget=budget, as_json=json, draw=draw)


@app.command()
def predict(
    photos: Annotated[list[Path], typer.Argument(help="Photos of any size.")],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = "32",
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = "1x1",
    rule: Annotated[str, typer.Option("--rule", help="One of the rules that `certify` knows.")] = "jury-recovery",
    pairs: PairsOption = "aligned",
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
    from certmask.cli.predict import run

    choices = Choices(model, weights, patch, mask, tiling, fold, [rule], pairs, aggregate, threshold, margin)
    alerted = run(photos, choices.on(device, precision, batch, backend), as_json=json, draw=draw)
    if alerted:
        raise typer.Exit(3)


@app.command()
def certify(
    data: Annotated[str, typer.Argument(help="Folder of class folders, tar, CSV, CIFAR-10 or 'demo'.")],
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = "32",
    mask: MaskOption = None,
    tiling: TilingOption = "spread",
    fold: FoldOption = "1x1",
    rule: RuleOption = None,
    pairs: PairsOption = "aligned",
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = 0.5,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    images: Annotated[int | None, typer.Option("--images", min=1, help="Only the first so many images.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photos that cannot be read.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/certify.jsonl"
    ),
) -> None:
    """Certify labelled photos: one row per image in a results file, then the table. Repeat --rule for several rules."""
    from certmask.cli.certify import run
    from certmask.cli.choices import Choices

    rules = rule or ["undefended", "jury-recovery"]
    choices = Choices(model, weights, patch, mask, tiling, fold, rules, pairs, aggregate, threshold, margin)
    run(data, choices.on(device, precision, batch, backend), images, out, skip_bad=skip_bad)


@app.command()
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
    cutout: Annotated[str, typer.Option("--cutout", help="none, random (the paper's) or greedy.")] = "random",
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = 10,
    batch: Annotated[int, typer.Option("--batch", min=1)] = 64,
    rate: Annotated[float | None, typer.Option("--rate", help="Default: 0.001 for ViT and MLP, else 0.01.")] = None,
    decay_every: Annotated[int, typer.Option("--decay-every", min=1, help="Divide the rate by 10 so often.")] = 5,
    weight_decay: Annotated[float, typer.Option("--weight-decay", min=0.0)] = 0.0,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    patch: Annotated[
        str | None, typer.Option("--patch", help="Patch of the final figures; default: 1/7 of the side.")
    ] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="Held-out photos for the certified figures.")] = 500,
    device: DeviceOption = "auto",
) -> None:
    """Train with occlusion (Cutout), write a checkpoint with its card, and measure what it certifies."""
    from certmask.cli.train import run
    from certmask.training import Recipe, paper_rate

    recipe = Recipe(
        epochs=epochs,
        batch=batch,
        rate=rate or paper_rate(model),
        decay_every=decay_every,
        weight_decay=weight_decay,
        cutout=cutout,
        seed=seed,
    )
    start = None if weights is None else str(weights)
    run(data, validation, model, recipe, out, weights=start, pretrained=pretrained, image=image, patch=patch,
        images=images, device=device)  # fmt: skip


@app.command()
def models(
    folder: Annotated[Path, typer.Argument(help="Folder with checkpoints and cards.")] = Path("models"),
) -> None:
    """List the models at hand with input size, normalization and figures."""
    from certmask.cli.models import run

    run(folder)


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(help="Results files.")],
    json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Print the figures of results files."""
    from certmask.cli.table import run

    run(runs, as_json=json, markdown=markdown)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/demo.jsonl"
    ),
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
) -> None:
    """Certify 20 real photos with a real ImageNet model under several defences: one to two minutes on 2 cores."""
    from certmask.cli.demo import run

    run(out, device, precision, backend)
