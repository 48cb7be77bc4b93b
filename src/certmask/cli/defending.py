"""The commands that defend: their options. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certmask.cli.options import (
    DeviceOption,
    WeightsOption,
)


def attack(
    results: Annotated[Path, typer.Argument(help="Results file of `certify` or `demo`: what to attack.")],
    data: Annotated[str, typer.Argument(help="The photos of that run.")],
    model: Annotated[
        str | None, typer.Option("--model", help="As for `certify`; default: the model that the run names.")
    ] = None,
    weights: WeightsOption = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only these of the run's rules; repeatable.")] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="Certified images per rule.")] = 20,
    locations: Annotated[int, typer.Option("--locations", min=1, help="Places for the patch per image.")] = 5,
    restarts: Annotated[int, typer.Option("--restarts", min=1, help="Attempts per place.")] = 1,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Gradient steps per attempt.")] = 60,
    masks_per_step: Annotated[
        int, typer.Option("--masks-per-step", min=1, help="Masked views per gradient step, drawn anew each time.")
    ] = 16,
    attempts_at_once: Annotated[
        int | None, typer.Option("--attempts-at-once", min=1, help="Attempts per batch; default: by device.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    save: Annotated[int, typer.Option("--save", min=0, help="Pictures to keep per rule of attacks that worked.")] = 20,
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option("--out", help="Attempts file; an unfinished one is continued.")] = Path(
        "runs/attack.jsonl"
    ),
    replay: Annotated[
        int | None, typer.Option("--replay", min=1, help="Only judge the saved picture of this row of --out again.")
    ] = None,
) -> None:
    """Try to break what a run certified: one row per attempt, then a table. Exit code 1 if a proved one breaks."""
    from certmask.attacks.budget import Budget
    from certmask.cli.attack import Target, run, run_replay

    target = Target(results, data, model, weights, device, rule or [], out)
    if replay is not None:
        run_replay(target, replay)
        return
    budget = Budget(images, locations, restarts, steps, masks_per_step, seed)
    run(target, budget, at_once=attempts_at_once, save=save)
