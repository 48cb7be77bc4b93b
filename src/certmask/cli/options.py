"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from certmask.backends import BACKENDS, PRECISIONS, backends_help
from certmask.evidence.registry import LOCAL_REGISTER
from certmask.rules.registry import REGISTER
from certmask.threat import MOST_PATCHES
from certmask.views import VIEWS


def _offered(*words: str) -> Callable[[str], list[str]]:
    """What shell completion offers for an option."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


RULES = _offered(*(row.option for row in (*REGISTER, *LOCAL_REGISTER)))

ImageOption = Annotated[
    str | None,
    typer.Option("--image", help="Size of the model's input, e.g. 224x320 (height x width); default: 224."),
]
PatchOption = Annotated[
    str | None,
    typer.Option("--patch", help="Largest patch, in pixels of the model's input; default: 1/7 of it (32 on 224)."),
]
PatchesOption = Annotated[
    int, typer.Option("--patches", min=1, max=MOST_PATCHES, help="So many patches of that size at once, at most.")
]
PatchAreaOption = Annotated[
    str | None,
    typer.Option(
        "--patch-area",
        help="Instead: a rectangle of any shape of so many pixels, or of this share of the input (1024, 2%).",
    ),
]
PatchSizesOption = Annotated[
    str | None,
    typer.Option(
        "--patch-sizes",
        help="Instead: a square whose size is not known, up to the largest of these (16,32,48, or 48); every image is "
        "certified for the largest that it can be.",
    ),
]
PatchInPhotoOption = Annotated[
    str | None,
    typer.Option(
        "--patch-in-photo",
        help="Largest patch in the stored photo, in its pixels (60, 60x40) or in percent of its shorter side (5%).",
    ),
]
BeforeJpegOption = Annotated[
    bool, typer.Option("--before-jpeg", help="The patch in the photo was there before the file was compressed.")
]
MaskOption = Annotated[
    str | None,
    typer.Option("--mask", help="Mask size for rules of one cover; default: 4x4 such masks cover every place, or 6x6."),
]
TilingOption = Annotated[
    str | None,
    typer.Option(
        "--tiling",
        help="zoom (the default of zoom rules), or spread (of others), minimal, replicated, offset, patchcleanser.",
        autocompletion=_offered("zoom", "spread", "minimal", "replicated", "offset", "patchcleanser"),
    ),
]
FoldOption = Annotated[
    str | None,
    typer.Option("--fold", help="Masks over each place, per axis; default: 2x2 for jury-recovery on spread, else 1x1."),
]
LevelsOption = Annotated[
    str | None,
    typer.Option("--levels", help="Masks per axis of zoom's levels, e.g. 2,3,6,12; 6:2 is 6 per axis, 2x2 times."),
]
AlignOption = Annotated[
    int | None,
    typer.Option("--align", min=1, help="Grid that zoom's masks lie on; default: the model's tokens, else a 56th."),
]
ThresholdsOption = Annotated[
    str | None,
    typer.Option("--thresholds", help="Lead that settles a level of zoom: 0.5, or one for each level but the last."),
]
ClaimThresholdsOption = Annotated[
    str | None,
    typer.Option("--claim-thresholds", help="The same for single places; --thresholds is then for pairs of them."),
]
PooledOption = Annotated[
    bool, typer.Option("--pooled", help="Finer votes of zoom are pooled with coarser ones instead of replacing them.")
]
LastResortOption = Annotated[
    str | None,
    typer.Option(
        "--last-resort",
        help="What answers where no place that claims another class is unbeaten: bare (zoom, juries) or majority "
        "(PatchCleanser as published).",
        autocompletion=_offered("bare", "majority"),
    ),
]
DefenceOption = Annotated[
    Path | None, typer.Option("--defence", help="A defence that `certmask tune` wrote; --rule adds others.")
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="A name from `certmask models` or of timm, a .safetensors or .onnx with a card, a Hugging Face folder.",
    ),
]
WeightsOption = Annotated[Path | None, typer.Option("--weights", help="Local checkpoint: safetensors or state dict.")]
DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, or auto.", autocompletion=_offered("cpu", "cuda", "auto"))
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision", help=f"{', '.join(PRECISIONS)}, or auto.", autocompletion=_offered(*PRECISIONS, "auto")
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Images per forward pass, part of the certificate; default: by device."),
]
HostOption = Annotated[
    str, typer.Option("--host", help="Address to listen on; another than a loopback one lets other machines in.")
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
BackendOption = Annotated[
    str,
    typer.Option(
        "--backend", help=backends_help(), autocompletion=_offered(*(backend.name for backend in BACKENDS), "auto")
    ),
]
ViewsOption = Annotated[
    str,
    typer.Option(
        "--views",
        help=f"What the model is shown, averaged: {', '.join(VIEWS)}, e.g. plain,mirror. A pass each.",
        autocompletion=_offered(*VIEWS, "plain,mirror"),
    ),
]
VotesOption = Annotated[
    Path | None,
    typer.Option("--votes", help="Folder to keep votes in; what it has of this model and photo is not made again."),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help=f"{', '.join(row.option for row in (*REGISTER, *LOCAL_REGISTER))}; repeatable; default: undefended, zoom.",
        autocompletion=RULES,
    ),
]
PairsOption = Annotated[
    str,
    typer.Option(
        "--pairs", help="Pairs that jury recovery pools: aligned or all.", autocompletion=_offered("aligned", "all")
    ),
]
AggregateOption = Annotated[
    str,
    typer.Option(
        "--aggregate",
        help="mean-probability, mean-log-probability, label-majority.",
        autocompletion=_offered("mean-probability", "mean-log-probability", "label-majority"),
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option("--threshold", help="Confidence of minority-reports and hicert, lead of zoom-hicert; default: 0.5."),
]
BandOption = Annotated[
    int | None,
    typer.Option("--band", min=1, help="Width of what smoothing leaves; default: as in training, else a 12th."),
]
StrideOption = Annotated[
    int | None, typer.Option("--stride", min=1, help="From one band to the next; default: 1, every band.")
]
ThetaOption = Annotated[
    float | None,
    typer.Option("--theta", help="Probability from which a band counts for a class; default: its first class alone."),
]
ShareOption = Annotated[
    float | None,
    typer.Option("--share", help="Share of its evidence above which a class loses its strongest window; default: 0."),
]
SlopeOption = Annotated[
    float | None,
    typer.Option("--slope", help="How steeply clipped-bagnet squashes local logits; default: 0.05, as published."),
]
MarginOption = Annotated[
    str, typer.Option("--margin", help="Lead that every certified verdict must exceed: a number, or auto (measured).")
]
ShardOption = Annotated[
    str | None,
    typer.Option("--shard", help="Only every n-th photo from the i-th on, as i/n; `certmask merge` puts all together."),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="here, in this process, or ray: workers on this machine, or on those of a cluster.",
        autocompletion=_offered("here", "ray"),
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="A running Ray cluster: auto, or HOST:PORT; default: one for this run alone."),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="With Ray: workers, at most; default: as many as have room.")
]
WorkerCpusOption = Annotated[
    float | None,
    typer.Option("--worker-cpus", help="With Ray: CPUs, and so threads, of each worker; default: 1."),
]
WorkerGpusOption = Annotated[
    float | None,
    typer.Option(
        "--worker-gpus", help="With Ray: GPUs of each worker, or a share of one; default: 1 if there are any."
    ),
]
DrawOption = Annotated[Path | None, typer.Option("--draw", help="Save a picture (PNG, PDF or SVG).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
