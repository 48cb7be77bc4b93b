"""``certmask demo``: several defences of one real model on 20 real photos."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import BackendOption, DeviceOption, PrecisionOption


def demo(
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/demo.jsonl"
    ),
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
) -> None:
    """Certify 20 real photos with a real ImageNet model under several defences: one to two minutes on 2 cores."""
    from certmask.certification import certify_run
    from certmask.cli.choices import check_engine_room, photos_for, pick_backend, pick_device
    from certmask.cli.console import figures_table, progress_bar, waiting
    from certmask.cli.console import out as screen
    from certmask.cli.outputs import check_continued
    from certmask.defences import engine_covers
    from certmask.defences.demo import PATCH, demo_defences
    from certmask.engine import Engine
    from certmask.results.columns import figures
    from certmask.results.run import read_run
    from certmask.zoo import DEFAULT_MODEL, load_classifier

    start = time.monotonic()
    device = pick_device(device)
    backend = pick_backend(backend, device)
    check_engine_room(backend, precision, device)
    check_continued(out)
    dataset, defences = photos_for(DEFAULT_MODEL, "demo"), demo_defences()
    with waiting("loading the model"):
        classifier = load_classifier(DEFAULT_MODEL, device=device, precision=precision, backend=backend)
        engine = Engine(classifier, engine_covers(defences))
    screen.print(
        f"EfficientNet-Lite0 ({classifier.precision}, {backend} on {device}), {len(dataset)} ImageNet photos, "
        f"threat: {PATCH} anywhere on the 224×224 input"
    )
    with progress_bar(len(dataset)) as progress:
        certify_run(engine, dataset, defences, out, progress=progress)
    found = read_run(out)
    screen.print(figures_table(figures(found), f"{len(found.rows)} photos"))
    screen.print("What a certified photo is guaranteed:")
    for defence in defences:
        screen.print(f"  {defence.name + ':':24}{defence.guarantee.sentence}")
    screen.print(
        "False alerts: clean photos on which an alert is raised. Clean: answered rightly and without an alert.\n"
        f"Saved in {out}; `certmask table {out}` prints it again. {time.monotonic() - start:.0f} s."
    )
