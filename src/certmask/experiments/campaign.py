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
from certmask.engine import Engine
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


LoadModel = Callable[[Named], Classifier]
LoadData = Callable[[Named, Named, Classifier], Dataset]
Say = Callable[[str], None]
Bar = Callable[[int], AbstractContextManager[Progress]]


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


def patch_numbers(text: str | None) -> frozenset[str] | None:
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

    def run(self, model_of: LoadModel, data_of: LoadData, fixed: float | None, say: Say, bar: Bar) -> None:
        """Do, or continue, every trial; without a ``fixed`` margin one is measured for each model and data set."""
        for model in self.models:
            torch.compiler.reset()  # torch stops compiling after a few models
            classifier = model_of(model)
            for source in self.data:
                dataset, margin = data_of(model, source, classifier), fixed
                for experiment in self.experiments:
                    for trial in trials(experiment, model.label, source.label, classifier.size, self.limits):
                        own = self._margin(trial, classifier, dataset, margin, say, given=fixed is not None)
                        margin = own if margin is None else margin
                        _announce(trial, dataset, say, given=fixed is not None)
                        with bar(len(dataset.spread(trial.images))) as progress:
                            trial.perform(classifier, dataset, self.folder, progress, own, given=fixed is not None)

    def _margin(
        self, trial: Trial, classifier: Classifier, dataset: Dataset, known: float | None, say: Say, *, given: bool
    ) -> float:
        """As given, as in the trial's file, as known from the trial before, or measured."""
        path = trial.path(self.folder)
        if known is not None and (given or not path.exists()):
            return known
        engine = Engine(classifier, [built_cover(trial.declared[0], trial.patch, trial.image)])
        margin, origin = run_margin(engine, dataset, recorded(path)[0])
        say(f"margin {margin:.3g} ({origin})")
        return margin


def _announce(trial: Trial, dataset: Dataset, say: Say, *, given: bool) -> None:
    left_out = [declared.name for declared in trial.declared if declared.in_logarithms and not given]
    if left_out:
        say(f"left out without --margin NUMBER: {'; '.join(left_out)}")
    count = len(dataset.spread(trial.images))
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
