"""``certmask serve``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import (
    RULES,
    AggregateOption,
    AlignOption,
    BackendOption,
    BandOption,
    BatchOption,
    ClaimThresholdsOption,
    DefenceOption,
    DeviceOption,
    FoldOption,
    HostOption,
    LastResortOption,
    LevelsOption,
    MarginOption,
    MaskOption,
    ModelOption,
    PairsOption,
    PatchAreaOption,
    PatchesOption,
    PatchOption,
    PatchSizesOption,
    PooledOption,
    PortOption,
    PrecisionOption,
    ShareOption,
    SlopeOption,
    StrideOption,
    ThetaOption,
    ThresholdOption,
    ThresholdsOption,
    TilingOption,
    ViewsOption,
    WeightsOption,
)
from certmask.rules.registry import DEFAULT_PAIRS

if TYPE_CHECKING:
    from socket import socket

    from fastapi import FastAPI

    from certmask.cli.choices import Choices
    from certmask.deployed import Defence
    from certmask.service.limits import Limits, Replicas

TOKEN = "CERTMASK_TOKEN"
"""The environment variable that holds the token which clients must send, if any."""


def serve(
    model: ModelOption = "efficientnet-lite0",
    weights: WeightsOption = None,
    patch: PatchOption = None,
    patches: PatchesOption = 1,
    patch_area: PatchAreaOption = None,
    patch_sizes: PatchSizesOption = None,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="One of the rules that `certify` knows; default: zoom.", autocompletion=RULES),
    ] = None,
    defence: DefenceOption = None,
    levels: LevelsOption = None,
    thresholds: ThresholdsOption = None,
    claim_thresholds: ClaimThresholdsOption = None,
    pooled: PooledOption = False,
    last_resort: LastResortOption = None,
    align: AlignOption = None,
    tiling: TilingOption = None,
    mask: MaskOption = None,
    fold: FoldOption = None,
    pairs: PairsOption = DEFAULT_PAIRS,
    aggregate: AggregateOption = "mean-probability",
    threshold: ThresholdOption = None,
    band: BandOption = None,
    stride: StrideOption = None,
    theta: ThetaOption = None,
    share: ShareOption = None,
    slope: SlopeOption = None,
    margin: MarginOption = "auto",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    batch: BatchOption = None,
    backend: BackendOption = "auto",
    views: ViewsOption = "plain",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    most_bytes: Annotated[
        int, typer.Option("--most-bytes", min=1, help="Largest upload, in bytes of a request's body.")
    ] = 16 * 2**20,
    most_pixels: Annotated[
        int, typer.Option("--most-pixels", min=1, help="Largest photo, in pixels of its file.")
    ] = 50_000_000,
    most_photos: Annotated[int, typer.Option("--most-photos", min=1, help="Most photos in one batch request.")] = 16,
    most_passes: Annotated[
        int | None,
        typer.Option(
            "--most-passes",
            min=1,
            help="Most passes that one photo may take, else it is refused; default: as many as it needs. An attacked "
            "photo may need more than a clean one.",
        ),
    ] = None,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Most photos that may be in the house; others are told to come back.")
    ] = 64,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=3600, help="Longest time from a request to its answer.")
    ] = 60.0,
    decode_seconds: Annotated[
        float, typer.Option("--decode-seconds", min=0.1, max=3600, help="Longest time for which one photo is decoded.")
    ] = 10.0,
    most_connections: Annotated[
        int,
        typer.Option(
            "--most-connections", min=1, help="Most connections at once; at most half of the files that may be open."
        ),
    ] = 512,
    engine: Annotated[
        str, typer.Option("--engine", help="plain: this process (uvicorn); ray: replicas under Ray Serve.")
    ] = "plain",
    replicas: Annotated[int | None, typer.Option("--replicas", min=1, help="Replicas under Ray; default: 1.")] = None,
    cpus: Annotated[
        float | None,
        typer.Option("--cpus", min=0.01, help="Processors of each replica, or a fraction of one; default: 1."),
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", min=0.0, help="GPUs of each replica, or a fraction of one; default: 0.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="A Ray cluster that is running; default: Ray on this machine.")
    ] = None,
) -> None:
    """Answer about photos over HTTP: label, alert and what is guaranteed; GET /docs says how to ask.

    Listens to this machine alone unless --host says otherwise. If CERTMASK_TOKEN is set in the environment, clients
    must send it as a bearer token. SIGTERM and Ctrl-C end it once what it has taken on is answered.
    """
    from certmask.cli.choices import Choices
    from certmask.errors import UsageError, any_of
    from certmask.service import check_installed
    from certmask.service.address import bound
    from certmask.service.limits import Limits, Replicas

    rules = rule or (["zoom"] if defence is None else [])
    told = [*rules, *([str(defence)] if defence else [])]
    if len(told) > 1:
        raise UsageError(f"expected one rule, got {', '.join(told)}")
    if engine not in ("plain", "ray"):
        raise UsageError(f"expected the engine {any_of(('plain', 'ray'))}, got {engine!r}")
    given = {"replicas": replicas, "cpus": cpus, "gpus": gpus, "address": address}
    odd = [name for name, value in given.items() if value is not None]
    if odd and engine == "plain":
        raise UsageError(f"expected --{odd[0]} beside --engine ray, got it with the plain engine")
    choices = Choices(
        model, weights, rules, defence, patch, mask, tiling, fold, levels, align, thresholds, claim_thresholds,
        pooled, last_resort, pairs, aggregate, threshold, margin, device, precision, batch, backend, views, band,
        stride, theta, share, slope, patches, patch_area, patch_sizes,
    )  # fmt: skip
    choices.check()
    limits, token = (
        Limits(most_bytes, most_pixels, most_photos, most_passes, queue, seconds, decode_seconds, most_connections),
        _token(),
    )
    check_installed(engine)
    build, free = partial(_app, choices, limits, token), bound(host, port)
    _warn_strangers(host, token)
    if engine == "plain":
        _serve_here(build, free)
    else:
        _serve_replicas(build, limits, free, Replicas(replicas or 1, cpus or 1.0, gpus or 0.0), address)


def _token() -> str | None:
    from certmask.errors import UsageError

    token = os.environ.get(TOKEN)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise UsageError(f"expected a token of plain letters in {TOKEN}, got an empty or odd one")
    return token


def _app(choices: Choices, limits: Limits, token: str | None) -> FastAPI:
    """The app with the model that was chosen, loaded where this is called."""
    from certmask.service.app import service_app
    from certmask.zoo import framing_of

    return service_app(_shield(choices), framing_of(choices.model), limits, token)


def _shield(choices: Choices) -> Defence:
    """The defence that was chosen; its margin is measured on fixed pictures, as there are no photos yet."""
    from certmask.company import probes
    from certmask.deployed import Defence
    from certmask.engine import Engine
    from certmask.engine.margin import measured_margin

    classifier, margin = choices.classifier(), choices.fixed_margin()
    covers = choices.covers(classifier.grid)
    if margin is None:
        margin = measured_margin(Engine(classifier, covers), list(probes(classifier.size)))
    (defence,) = choices.defences(covers, margin, classifier)
    return Defence(classifier, defence)


def _warn_strangers(host: str, token: str | None) -> None:
    from certmask.cli.console import err
    from certmask.service.address import is_loopback

    if not is_loopback(host) and token is None:
        note = f"note: whoever reaches {host} may ask: set {TOKEN} to let only those in who know it"
        err.print(note, markup=False, soft_wrap=True)


def _serve_here(build: Callable[[], FastAPI], free: socket) -> None:
    from certmask.cli.console import out, waiting
    from certmask.service.address import reached
    from certmask.service.server import run

    with waiting("loading the model"):
        app = build()
    examiner = app.state.reception.examiner
    limits, most = examiner.limits, examiner.defence.most_passes
    out.print(f"{examiner.engine.classifier!r}", markup=False, soft_wrap=True)
    out.print(f"by {examiner.defence.name}: {examiner.defence.looks}", markup=False, soft_wrap=True)
    if limits.passes is not None and limits.passes < most:
        out.print(f"a photo may take up to {most:,} passes and is refused beyond {limits.passes:,}", soft_wrap=True)
    ready = partial(out.print, f"serving on {reached(free)}", markup=False, soft_wrap=True)
    run(app, free, limits, ready)


def _serve_replicas(
    build: Callable[[], FastAPI], limits: Limits, free: socket, replicas: Replicas, address: str | None
) -> None:
    from certmask.cli.console import out, waiting
    from certmask.service.replicas import started, until_told

    with waiting("starting the replicas"):
        where = started(build, limits, free, replicas, address)
    out.print(f"serving on {where}", markup=False, soft_wrap=True)
    until_told()
