"""``certmask attack``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import DeviceOption, WeightsOption

if TYPE_CHECKING:
    from certmask.attacks.gauntlet import Gauntlet
    from certmask.attacks.target import Target


def attack(
    results: Annotated[Path, typer.Argument(help="Results file of `certify` or `demo`: what to attack.")],
    data: Annotated[str, typer.Argument(help="The photos of that run.")],
    model: Annotated[
        str | None, typer.Option("--model", help="As for `certify`; default: the model that the run names.")
    ] = None,
    weights: WeightsOption = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only these of the run's rules; repeatable.")] = None,
    uncertified: Annotated[
        bool,
        typer.Option("--uncertified", help="Attack photos answered rightly and *not* certified, for each last resort."),
    ] = False,
    images: Annotated[int, typer.Option("--images", min=1, help="Images per rule.")] = 20,
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
    """Try to break what a run certified: one row per attempt, then a table. Exit code 1 if a proved one breaks.

    With --uncertified, how often answers fall that nothing was proved about: no certificate is at stake.
    """
    from certmask.attacks.attempts import Budget
    from certmask.attacks.certified_run import read_certified
    from certmask.attacks.target import Target
    from certmask.cli.choices import pick_device
    from certmask.cli.console import waiting
    from certmask.cli.outputs import check_continued
    from certmask.cli.usage import asked_rightly

    pick_device(device)
    target, certified = Target(results, data, out, model, weights, device, rule or []), read_certified(results)
    with asked_rightly():
        certified.chosen(target.rules)
    check_continued(out)
    if replay is not None:
        _replay(target, replay)
        return
    budget = Budget(images, locations, restarts, steps, masks_per_step, seed)
    with waiting("loading the model and its photos"):
        gather = target.uncertified if uncertified else target.gauntlet
        gauntlet = gather(budget, at_once=attempts_at_once, save=save)
    _attack(target, gauntlet)


def _attack(target: Target, gauntlet: Gauntlet) -> None:
    """Make the attempts and print what came of them."""
    from certmask.attacks.gauntlet import strength, written
    from certmask.cli.console import attack_table, out, working
    from certmask.results.columns import attack_figures
    from certmask.results.file import picture_folder

    with working("attacking", len(gauntlet.attempts), "attempts") as progress:
        attempts = gauntlet.attack(progress)
    title = f"{len(attempts.rows):,} attempts, {attempts.model['name']}"
    out.print(attack_table(attack_figures(attempts), title))
    out.print(strength(attempts))
    if gauntlet.scenes:
        out.print(written(attempts))
    saved = sum(row["picture"] is not None for row in attempts.rows)
    pictures = f", {saved} pictures in {picture_folder(target.out)}" if saved else ""
    out.print(f"saved in {target.out}{pictures}", markup=False, soft_wrap=True)
    target.check_proofs(attempts)


def _replay(target: Target, row: int) -> None:
    """Judge one saved picture again and print the finding."""
    from certmask.cli.console import out

    again = target.replay(row)
    out.print(again.sentence, markup=False)
    again.check_proof()
