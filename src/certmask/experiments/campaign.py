"""Experiments on models and data sets: the names a user gives, the trials that follow, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from certmask.certify import Progress, recorded, run_margin
from certmask.classifier import Classifier
from certmask.data import Dataset
from certmask.errors import CertmaskError
from certmask.experiments.experiment import Experiment
from certmask.experiments.trials import Limits, Trial, built_cover, check_patches, slug, trials
from certmask.threat import Size
from certmask.zoo import DEFAULT_MODEL
from certmask.zoo.card import read_card
from certmask.zoo.models import checkpoint_path
from certmask.zoo.timm_import import import_timm


@dataclass(frozen=True)
class Named:
    """What the user named: a label for files and tables, and the name, weights or path behind it."""

    label: str
    name: str
    weights: Path | None = None


def named_model(text: str) -> Named:
    """``NAME``, ``NAME=WEIGHTS`` or a checkpoint with a card; ``…/mine/model.safetensors`` is called mine."""
    name, _, weights = text.partition("=")
    path, label = Path(name), name
    if name.endswith(".safetensors"):
        label = path.resolve().parent.name if path.stem == "model" else path.stem
    return Named(slug(label), name, Path(weights) if weights else None)


def named_data(text: str) -> Named:
    """``NAME=SOURCE``, or a source that is called by its own name."""
    label, separator, source = text.partition("=")
    if not separator or Path(text).exists():
        return Named(slug(Path(text).name.split(".")[0]), text)
    return Named(slug(label), source)


def numbers(text: str | None) -> frozenset[str] | None:
    """``1,2,3`` → the numbers of patches, as text."""
    return None if text is None else frozenset(part.strip().removesuffix("%").strip() for part in text.split(","))


@dataclass(frozen=True)
class Campaign:
    """Experiments on every model and every data set; results go to ``folder``."""

    experiments: Sequence[Experiment]
    models: Sequence[Named]
    data: Sequence[Named]
    limits: Limits
    folder: Path

    def check(self) -> None:
        """An error for a choice that can be judged without photos or models."""
        if any(experiment.patches for experiment in self.experiments) and not self.data:
            raise CertmaskError("expected --data NAME=PATH with labelled photos (or --data demo), got none")
        for what, named in (("model", self.models), ("data set", self.data)):
            labels = [one.label for one in named]
            for label in labels:
                if labels.count(label) > 1:
                    raise CertmaskError(f"expected every {what} under its own name, got {label!r} twice")
        check_patches(self.experiments, [source.label for source in self.data], self.limits.patches)

    def planned(self) -> list[Trial]:
        """All trials, without weights or photos."""
        return [
            trial
            for experiment in self.experiments
            for model in self.models
            for source in self.data
            for trial in trials(experiment, model.label, source.label, input_size(model.name), self.limits)
        ]

    def run(
        self,
        load: Callable[[Named], Classifier],
        photos: Callable[[Named, Named, Classifier], Dataset],
        fixed: float | None,
        say: Callable[[str], None],
        bar: Callable[[int], AbstractContextManager[Progress]],
    ) -> None:
        """Do, or continue, every trial; without a ``fixed`` margin one is measured for each model and data set."""
        for model in self.models:
            torch.compiler.reset()  # torch stops compiling after a few models
            classifier = load(model)
            for source in self.data:
                dataset, margin = photos(model, source, classifier), fixed
                for experiment in self.experiments:
                    for trial in trials(experiment, model.label, source.label, classifier.size, self.limits):
                        path = trial.path(self.folder)
                        own = margin
                        if own is None or (fixed is None and path.exists()):
                            cover = built_cover(trial.declared[0], trial.patch, trial.image)
                            own, origin = run_margin(classifier, [cover], dataset, recorded(path)[0])
                            say(f"margin {own:.3g} ({origin})")
                        margin = own if margin is None else margin
                        _announce(trial, len(dataset.spread(trial.images)), say, given=fixed is not None)
                        with bar(len(dataset.spread(trial.images))) as progress:
                            trial.perform(classifier, dataset, self.folder, progress, own, given=fixed is not None)


def _announce(trial: Trial, count: int, say: Callable[[str], None], *, given: bool) -> None:
    left_out = [declared.name for declared in trial.declared if declared.in_logarithms and not given]
    if left_out:
        say(f"left out without --margin NUMBER: {'; '.join(left_out)}")
    few = f" (only {count}: a cover has so many masks)" if trial.few else ""
    say(f"{trial.path(Path()).stem}: {len(trial.declared)} defences, {count:,} images{few}")


def input_size(model: str) -> Size:
    """The size of a model's input, without its weights."""
    checkpoint = checkpoint_path(model)
    if checkpoint is not None:
        return read_card(checkpoint).size
    timm = import_timm()
    name = f"tf_{DEFAULT_MODEL.replace('-', '_')}" if model == DEFAULT_MODEL else model
    if not timm.is_model(name):
        raise CertmaskError(f"expected a checkpoint with a card or a model name that timm knows, got {model!r}")
    height, width = timm.get_pretrained_cfg(name).input_size[1:]
    return height, width
