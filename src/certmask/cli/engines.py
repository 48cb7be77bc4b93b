"""Who makes the rows of ``certmask certify``: this process, or workers on Ray."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from certmask.certificate import Guarantee
from certmask.certification import Defences, certify_run, recorded, run_margin
from certmask.cli.choices import Choices
from certmask.cli.console import images, out, progress_bar, waiting
from certmask.defences import PhotoDefence, RuledDefence, by_photo
from certmask.engine import Engine
from certmask.errors import DataError, UsageError

if TYPE_CHECKING:
    from certmask.data import Dataset
    from certmask.scale.pool import Pool
    from certmask.scale.survey import Survey
    from certmask.threat import PhotoPatch
    from certmask.votes import Margin

ENGINES = ("here", "ray")
Chosen = Sequence[RuledDefence] | Sequence[PhotoDefence]


@dataclass(frozen=True)
class Recipe:
    """What was chosen, as every worker builds it: one choice, or one for each patch that one in some photo becomes."""

    family: Sequence[Choices]
    wanted: PhotoPatch | None

    def engine(self) -> Engine:
        classifier = self.family[0].classifier()
        return Engine(classifier, [cover for one in self.family for cover in one.covers(classifier.grid)])

    def defences(self, engine: Engine, margin: Margin) -> Chosen:
        classifier = engine.classifier
        made = [one.defences(one.covers(classifier.grid), margin, classifier) for one in self.family]
        return by_photo(self.wanted, made) if self.wanted else made[0]


@dataclass(frozen=True)
class Task:
    """What to certify: the photos of a run, which may be a shard of the ``whole`` on which the margin is measured."""

    family: Sequence[Choices]
    wanted: PhotoPatch | None
    whole: Dataset
    dataset: Dataset
    out: Path
    votes: Path | None
    reached: str | None

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.family, self.wanted)

    @property
    def margin(self) -> Margin | None:
        return self.family[0].fixed_margin()


@dataclass(frozen=True)
class Certified:
    """Where the margin came from, and the photos that have no row, with the reasons."""

    origin: str
    set_aside: dict[str, str]


def chosen_pool(
    engine: str, address: str | None, workers: int | None, cpus: float | None, gpus: float | None, device: str
) -> Pool | None:
    """The workers that were asked for, without GPUs where these have nothing to do; None for this process alone."""
    if engine not in ENGINES:
        raise UsageError(f"expected engine to be {' or '.join(ENGINES)}, got {engine!r}")
    given = {"address": address, "workers": workers, "worker-cpus": cpus, "worker-gpus": gpus}
    if engine == "here":
        odd = next((name for name, value in given.items() if value is not None), None)
        if odd:
            raise UsageError(f"expected --{odd} beside --engine ray, got it alone")
        return None
    from certmask.scale.pool import Pool, import_ray

    import_ray()
    return Pool(workers, 1.0 if cpus is None else cpus, 0.0 if gpus is None and device == "cpu" else gpus, address)


def shard_of(told: str, photos: int) -> tuple[int, int]:
    """``2/4`` → the second of four shards."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", told)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise UsageError(f"expected --shard as i/n with i from 1 to n, got {told!r}")
    if of > photos:
        raise UsageError(f"expected at most a shard for each of {images(photos)}, got {of}")
    return number, of


def certified_here(task: Task) -> Certified:
    """The rows, made by this process."""
    with waiting("loading the model and measuring the margin"):
        engine, given = task.recipe.engine(), task.margin
        before, done = recorded(task.out)
        lead, origin = (given, "as given") if given is not None else run_margin(engine, task.whole, before)
    defences = task.recipe.defences(engine, lead)
    classifier = engine.classifier
    seen = f", mean of {' and '.join(classifier.views)}" if classifier.cost > 1 else ""
    _tell_setting(f"{classifier.name}, {classifier.precision} on {classifier.device}{seen}", task, defences)
    if done:
        out.print(f"{task.out} has {len(done)} of {len(task.dataset)} images already", markup=False)
    with progress_bar(len(task.dataset)) as progress:
        try:
            certify_run(engine, task.dataset, defences, task.out, votes=task.votes, progress=progress)
        except DataError as error:
            raise DataError(f"{error}; --skip-bad leaves such photos out (with an --out of its own)") from None
    return Certified(origin, {})


def certified_on_ray(task: Task, pool: Pool) -> Certified:
    """The rows, made by workers."""
    from certmask.scale.driver import certify_on_ray

    def told(found: Survey, fitted: Pool) -> None:
        model, workers = found.header["model"], f"{fitted.workers} worker{'s' if fitted.workers != 1 else ''}"
        _tell_setting(f"{model['name']}, {model['precision']} on {workers}, {model['device']}", task, found.defences)

    with progress_bar(len(task.dataset)) as progress:
        done = certify_on_ray(
            task.recipe, task.dataset, task.out, pool=pool, margin=task.margin, margin_photos=task.whole,
            votes=task.votes, progress=progress, told=told,
        )  # fmt: skip
    return Certified(done.survey.origin, done.set_aside)


def _tell_setting(computes: str, task: Task, defences: Defences) -> None:
    """Say what computes, on how many images, how each defence looks at them, and what a patch in the photos reaches."""
    out.print(f"{computes}; {images(len(task.dataset))}")
    if task.reached:
        out.print(task.reached, soft_wrap=True)
    for one in defences:
        if one.guarantee is not Guarantee.NONE:
            out.print(f"  {one.name}: {one.looks}", soft_wrap=bool(task.reached))
