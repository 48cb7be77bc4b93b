"""``certmask demo``: zoom beside other defences of one real model on 20 real photos, and an attack on one of these."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import BackendOption, DeviceOption, PrecisionOption

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from certmask.attacks import Surrogate
    from certmask.data import Dataset
    from certmask.defences import MaskedDefence
    from certmask.engine import Engine
    from certmask.results.run import Run

MODEL, PHOTOS = "resnet26-cifar10", "demo-cifar10"
STEPS, VIEWS, TRIED = 50, 10, 5
"""Gradient steps, masked views in each, and how many photos are attacked until a patch fools what it should."""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Results file; an unfinished one is continued.")] = Path(
        "runs/demo.jsonl"
    ),
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    backend: BackendOption = "auto",
) -> None:
    """Certify 20 real photos with a real model under four defences, and attack one: about a minute on 2 cores."""
    from certmask.certification import certify_run, recorded, run_margin
    from certmask.cli.choices import check_engine_room, photos_for, pick_backend, pick_device
    from certmask.cli.console import out as screen
    from certmask.cli.console import progress_bar, waiting
    from certmask.cli.outputs import check_continued
    from certmask.defences import engine_covers
    from certmask.defences.demo import PATCH, demo_defences
    from certmask.engine import Engine
    from certmask.results.run import read_run
    from certmask.zoo import load_classifier

    start = time.monotonic()
    device = pick_device(device)
    backend = pick_backend(backend, device)
    check_engine_room(backend, precision, device)
    check_continued(out)
    dataset = photos_for(MODEL, PHOTOS)
    with waiting("loading the model and measuring the margin"):
        classifier = load_classifier(MODEL, device=device, precision=precision, backend=backend)
        engine = Engine(classifier, engine_covers(demo_defences()))
        defences = demo_defences(run_margin(engine, dataset, recorded(out)[0])[0].probability)
    screen.print(f"{len(dataset)} CIFAR-10 photos, a ResNet trained for occlusion, {PATCH.on(classifier.size)}")
    with progress_bar(len(dataset)) as progress:
        certify_run(engine, dataset, defences, out, progress=progress)
    found = read_run(out)
    with waiting("attacking a certified photo"):
        attacked = _attacked(engine, dataset, defences, found)
    screen.print(_table(found, attacked))
    screen.print(
        "Certified recovery: the true class is answered, whatever such a patch shows and wherever it is. The published "
        f"rule calls {_passed(found)} photos certified; no theorem does."
    )
    if attacked:
        picture = out.with_name(f"{out.stem}-attacked.png")
        _draw(attacked, picture)
        screen.print(f"The attacked photo: {picture}", markup=False, soft_wrap=True)
    seconds = time.monotonic() - start
    screen.print(f"All figures: certmask table {out}   ({seconds:.0f} s)", markup=False, soft_wrap=True)
    screen.print("20 photos are few: docs/results.md has these defences on 2,000 of them, and on other networks.")
    screen.print("Next, on a photo of yours: certmask predict PHOTO.jpg --draw sure.png", markup=False)


@dataclass(frozen=True)
class Attacked:
    """A certified photo, the same with a patch on it, and what every defence answers about that."""

    clean: Tensor
    picture: Tensor
    corner: tuple[int, int]
    label: int
    answers: dict[str, int]
    names: Sequence[str]

    def said(self, defence: str) -> str:
        """What a defence answers, and whether that is right."""
        answer = self.answers[defence]
        return f"{self.names[answer]}, {'right' if answer == self.label else 'WRONG'}"


def _attacked(engine: Engine, dataset: Dataset, defences: Sequence[MaskedDefence], run: Run) -> Attacked | None:
    """A patch made against the published rule that fools it and the bare network; None if a few photos withstand."""
    import torch

    from certmask.attacks import AdaptiveAttack, Descent, Job, defence_judge
    from certmask.attacks.goals import SPARE_ONE
    from certmask.defences import examine
    from certmask.defences.demo import PATCH, PUBLISHED, UNDEFENDED

    by_name = {defence.name: defence for defence in defences}
    rows = {row["image"]: row["defences"] for row in run.rows}
    proved = [
        number
        for number, sample in enumerate(dataset.samples)
        if all(outcome["certified"] is not False for outcome in rows[sample.name].values())
    ]
    attack = AdaptiveAttack(_surrogate(engine), by_name[PUBLISHED], Descent(STEPS), goals=(SPARE_ONE,), views=VIEWS)
    for number in proved[:TRIED]:
        clean, label = dataset.tensor(number, engine.classifier.size), dataset.samples[number].label
        job = Job(clean[None], torch.tensor([label]), PATCH)
        found = attack(job, defence_judge(engine, by_name[PUBLISHED]))
        (finding,) = examine(engine, found.pictures, None, defences)
        answers = {name: outcome.label for name, outcome in zip(by_name, finding.value, strict=True)}
        if label not in (answers[UNDEFENDED], answers[PUBLISHED]):
            top, left = found.corners[0].tolist()
            return Attacked(clean, found.pictures[0], (top, left), label, answers, engine.classifier.class_names)
    return None


def _surrogate(engine: Engine) -> Surrogate:
    """The network with gradients: the engine's own, or the one that it was made from."""
    from torch import nn

    from certmask.attacks import Surrogate
    from certmask.zoo import load_model

    own = isinstance(engine.classifier.model, nn.Module)
    return Surrogate(engine.classifier, network=None if own else load_model(MODEL), engine=engine)


def _table(run: Run, attacked: Attacked | None) -> Table:
    """One row per defence: right on clean photos, certified, passes, and the answer about the attacked photo."""
    from rich import box
    from rich.table import Table

    from certmask.certificate import Guarantee
    from certmask.results.columns import figures

    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("defence", no_wrap=True)
    for heading in ("right on\nclean, %", "certified\nrecovery, %", "passes to\nanswer", "passes to\nprove"):
        grid.add_column(heading, justify="right")
    if attacked:
        grid.add_column("attacked\nphoto", no_wrap=True)
    for own in figures(run):
        recovery = own.certified_as(Guarantee.RECOVERY)
        proof = None if recovery is None else own.proof_passes
        numbers = (None if recovery is None else recovery.percent, f"{own.answer_passes:.0f}", proof and f"{proof:.0f}")
        shown = (own.clean.percent, *numbers)
        grid.add_row(own.defence, *(n or "–" for n in shown), *([attacked.said(own.defence)] if attacked else []))
    return grid


def _passed(run: Run) -> str:
    """How many photos pass the published test, in words."""
    from certmask.defences.demo import PUBLISHED

    return f"{sum(row['defences'][PUBLISHED]['certified'] for row in run.rows)} of {len(run.rows)}"


def _draw(attacked: Attacked, path: Path) -> None:
    """The photo before and after, the patch outlined, with what the network alone and zoom say."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from certmask.defences.demo import PATCH, UNDEFENDED, ZOOM
    from certmask.report.drawing import save_figure

    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, picture in zip(panels, (attacked.clean, attacked.picture), strict=True):
        axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_axis_off()
    top, left = attacked.corner
    panels[1].add_patch(
        Rectangle((left - 0.5, top - 0.5), PATCH.width, PATCH.height, fill=False, edgecolor="red", lw=2)
    )
    panels[0].set_title(f"clean:\n{attacked.names[attacked.label]}")
    panels[1].set_title(f"attacked: undefended {attacked.said(UNDEFENDED)},\nzoom {attacked.said(ZOOM)}")
    save_figure(figure, path)
