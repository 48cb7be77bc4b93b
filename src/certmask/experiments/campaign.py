"""Experiments on models and data sets: the names a user gives, the trials that follow, one after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import torch

from certmask.certification import Progress, recorded, run_margin
from certmask.classifier import Classifier
from certmask.data import Dataset
from certmask.data.labels import CIFAR10, IMAGENET_CLASSES, IMAGENETTE
from certmask.errors import CertmaskError, UsageError
from certmask.evidence import LocalClassifier
from certmask.experiments.experiment import Experiment, data_key
from certmask.experiments.trials import Limits, Trial, check_patches, trials
from certmask.tuning import tuned_model
from certmask.votes import Margin
from certmask.zoo.models import card_of, framing_of, short_name
from certmask.zoo.networks import network_of


@dataclass(frozen=True)
class Named:
    """What the user named: a label for files and tables, and the name, weights or path behind it."""

    label: str
    name: str
    weights: Path | None = None


LoadModel = Callable[[Named], Classifier]
LoadData = Callable[[Named, Named], Dataset]
PAPER_DATA = ("imagenette", "imagenet", "cifar10")
"""The paper's data sets, as ``data_key`` writes them."""
Say = Callable[[str], None]
Bar = Callable[[int], AbstractContextManager[Progress]]


def slug(label: str) -> str:
    """A label as a part of file names, without ``--``."""
    found = re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("-.")
    if not found:
        raise CertmaskError(f"expected a name with letters or digits, got {label!r}")
    return found


def named_model(text: str) -> Named:
    """``NAME``, ``NAME=WEIGHTS`` or a checkpoint with a card; ``…/mine/model.safetensors`` is called mine."""
    name, _, weights = text.partition("=")
    return Named(slug(short_name(name)), name, Path(weights) if weights else None)


def named_data(text: str) -> Named:
    """``NAME=SOURCE``, or a source that is called by its own name."""
    label, separator, source = text.partition("=")
    if not separator or Path(text).exists():
        return Named(slug(Path(text).name.split(".")[0]), text)
    return Named(slug(label), source)


def own_data(classes: Sequence[str]) -> str:
    """The one of the paper's data sets whose classes these are; empty for others."""
    if len(classes) == IMAGENET_CLASSES:
        return "imagenet"
    return {frozenset(IMAGENETTE): "imagenette", frozenset(CIFAR10): "cifar10"}.get(frozenset(classes), "")


def patch_numbers(text: str | None) -> frozenset[str] | None:
    """``1,2,3`` → the numbers of patches, as text."""
    return None if text is None else frozenset(part.strip().removesuffix("%").strip() for part in text.split(","))


@dataclass(frozen=True)
class Campaign:
    """Experiments on models and data sets; results go to ``folder``.

    A network of one of the paper's data sets, where that is given, is not run on the others of the paper; else every
    model runs on every data set. ``tuned`` are files of defences, each with the name of the model that it is for; one
    for a single model need not say.
    """

    experiments: Sequence[Experiment]
    models: Sequence[Named]
    data: Sequence[Named]
    limits: Limits
    folder: Path
    tuned: Sequence[Path] = ()

    @property
    def pairs(self) -> list[tuple[Named, Named]]:
        """Every model with the data sets that it runs on; an error for data that none runs on."""
        found = [(model, source) for model in self.models for source in self._data_of(model)]
        for source in self.data:
            if source not in [one for _, one in found]:
                raise UsageError(f"expected a model for every data set, got none for {source.label}")
        return found

    def _data_of(self, model: Named) -> list[Named]:
        own, given = own_data(card_of(model.name).classes), [data_key(source.label) for source in self.data]
        others = {*PAPER_DATA} - {own} if own in given else set()
        return [source for source, key in zip(self.data, given, strict=True) if key not in others]

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
        if self.tuned:
            self._check_tuned()

    def _check_tuned(self) -> None:
        """An error if nothing is tuned in these experiments, or a file is for none of the models, or a second one."""
        declared = (one for e in self.experiments for patch in e.every_patch for one in e.defences(patch))
        if not any(one.tuned for one in declared):
            names = ", ".join(experiment.name for experiment in self.experiments)
            raise CertmaskError(f"expected --defence with an experiment that has a tuned one (zoom), got {names}")
        if len(self.models) == len(self.tuned) == 1:
            return
        models = [short_name(model.name) for model in self.models]
        for path in self.tuned:
            if models.count(name := tuned_model(path)) != 1:
                raise CertmaskError(f"expected --defence for one of {', '.join(models)}, got {path} for {name}")
            if [tuned_model(other) for other in self.tuned].count(name) > 1:
                raise CertmaskError(f"expected one --defence for each model, got several for {name}")

    def _tuned_for(self, model: Named) -> Path | None:
        if len(self.models) == len(self.tuned) == 1:
            return self.tuned[0]
        return next((path for path in self.tuned if tuned_model(path) == short_name(model.name)), None)

    def planned(self) -> list[Trial]:
        """All trials, without weights or photos; an error if there are none."""
        found = [
            trial
            for experiment in self.experiments
            for model, source in self.pairs
            for trial in self._trials(experiment, model, source)
        ]
        if not found and any(experiment.patches for experiment in self.experiments):
            models, data = (", ".join(one.label for one in named) for named in (self.models, self.data))
            names = ", ".join(experiment.name for experiment in self.experiments)
            photo = any(patch.photo for experiment in self.experiments for patch in experiment.every_patch)
            whole = (
                " (a patch in the photo: all of it, 32×32 or a whole number of times that, to 224×224)" if photo else ""
            )
            raise UsageError(f"expected a defence of {names} for {models} on data named {data}{whole}, got none")
        return found

    def _trials(self, experiment: Experiment, model: Named, source: Named) -> list[Trial]:
        """Those of which it is known what the patch reaches on this model's input."""
        card, limits = card_of(model.name), replace(self.limits, tuned=self._tuned_for(model))
        found = trials(experiment, model.label, source.label, card.size, limits, network_of(card))
        return [
            one for one in found if one.patch.photo is None or one.patch.known_on(card.size, framing_of(model.name))
        ]

    def run(self, model_of: LoadModel, data_of: LoadData, fixed: Margin | None, say: Say, bar: Bar) -> None:
        """Do, or continue, every trial; without a ``fixed`` margin one is measured for each model and data set."""
        for model, pairs in groupby(self.pairs, key=itemgetter(0)):
            torch.compiler.reset()  # torch stops compiling after a few models
            classifier = model_of(model)
            for _, source in pairs:
                dataset, margin = data_of(model, source), None
                for experiment in self.experiments:
                    for trial in self._trials(experiment, model, source):
                        margin = self._perform(trial, classifier, dataset, fixed, margin, say, bar)

    def _perform(
        self, trial: Trial, classifier: Classifier, dataset: Dataset, fixed: Margin | None, known: Margin | None,
        say: Say, bar: Bar,
    ) -> Margin | None:  # fmt: skip
        """Run a trial with the margin that is fixed, in its file, known from a trial before, or measured.

        Return what is known for the next one: a file has its margin only in the units of its own rules.
        """
        margin = known if fixed is None else fixed
        header = {} if fixed is not None else recorded(trial.path(self.folder))[0]
        engine = trial.engine(classifier)
        if margin is None or header:
            margin, origin = run_margin(engine, dataset, header)
            say(f"margin {_told(margin, classifier)} ({origin})")
            known = known if header else margin
        count = len(dataset.spread(trial.images))
        few = f" (only {count}: a cover has so many masks)" if trial.few else ""
        say(f"{trial.path(Path()).stem}: {len(trial.declared)} defences, {count:,} images{few}")
        with bar(count) as progress:
            trial.perform(engine, dataset, self.folder, progress, margin, self.limits.votes)
        return known


def _told(margin: Margin, classifier: Classifier) -> str:
    """A margin in the units that rules for this classifier read."""
    if isinstance(classifier, LocalClassifier):
        return f"{margin.evidence:.3g} in sums of local evidence"
    return f"{margin.probability:.3g} in probabilities, {margin.logarithm:.3g} in logarithms"
