"""A results file as a target: what it certified is rebuilt, attacked, and, picture by picture, judged again."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from certmask.attacks.attack import Job, defence_judge, rechecked
from certmask.attacks.attempts import Attempt, Budget, Prospect, plan_attempts
from certmask.attacks.certified_run import certified_photos, certified_scenes, check_weights, read_certified
from certmask.attacks.descent import Surrogate
from certmask.attacks.gauntlet import Gauntlet, broken_proof
from certmask.attacks.means import check_allowed
from certmask.attacks.pictures import read_picture
from certmask.attacks.scene import Scene
from certmask.attacks.uncertified import CANDIDATES, answered_rightly, plan_uncertified, with_each_resort
from certmask.certificate import Decision, class_name
from certmask.classifier import Classifier
from certmask.data import Dataset, Framing, check_source, in_memory, load_dataset, pixel_digest
from certmask.data.dataset import evenly_spaced
from certmask.defences import PhotoDefence, RuledDefence, defence_from
from certmask.engine import Engine
from certmask.errors import AttackError, BrokenCertificateError, ResultsError
from certmask.evidence import LocalClassifier
from certmask.function import check_function
from certmask.results.file import Row, picture_folder
from certmask.results.run import Run, read_run
from certmask.threat import Patch
from certmask.views import PLAIN
from certmask.zoo import class_aliases, framing_of, is_known, load_classifier, load_model

T = TypeVar("T")
ATTEMPTS_AT_ONCE = {"cuda": 32, "cpu": 1}
"""Attempts per batch, each with all its views. A CPU is fastest with few: larger batches outgrow its allocator."""


@dataclass(frozen=True)
class Target:
    """What to attack: a results file, its photos, the model it certified (None: as it names it), some of its rules.

    ``out`` is the file of attempts; an unfinished one is continued. Photos and model are given as ``certmask.certify``
    takes them: a name, or the very pictures and the network (or ``Classifier``) that were certified.
    """

    results: Path
    data: str | Dataset | Any
    out: Path
    model: str | Classifier | nn.Module | Callable[[Tensor], Tensor] | None = None
    weights: Path | None = None
    device: str = "auto"
    rules: Sequence[str] = ()

    def __post_init__(self) -> None:
        for key in ("results", "out"):
            object.__setattr__(self, key, Path(getattr(self, key)))

    def gauntlet(self, budget: Budget, *, at_once: int | None = None, save: int = 20) -> Gauntlet:
        """Everything that a budget buys against this target, checked and ready: ``gauntlet.attack()``."""
        certified = read_certified(self.results)
        run, defences = certified.run, certified.chosen(self.rules)
        attempts = plan_attempts(certified, defences, budget)
        if not attempts:
            raise AttackError(f"expected certified images to attack in {self.results}, got none")
        if isinstance(self.data, str):
            check_source(self.data)
        engine = self._engine(run, defences)
        dataset, names = self._dataset(run, engine.classifier), {attempt.image for attempt in attempts}
        photos = certified_photos(run, dataset, names, engine.classifier.size)
        families = [defence for defence in defences if isinstance(defence, PhotoDefence)]
        scenes = certified_scenes(run, dataset, names, families) if families else {}
        return self._ready(run, defences, attempts, engine, photos, budget, at_once, save, scenes)

    def uncertified(self, budget: Budget, *, at_once: int | None = None, save: int = 20) -> Gauntlet:
        """The same on photos that are answered rightly and not certified, against each last resort of the rules.

        Every last resort of a rule is attacked on the same photos, which it answers rightly, with the same budget.
        """
        certified = read_certified(self.results)
        run = certified.run
        chosen = [defence for defence in certified.chosen(self.rules) if not isinstance(defence, PhotoDefence)]
        if not chosen:
            raise AttackError(f"expected a run against a patch in the model's input, got another in {self.results}")
        rows = {defence: _some(certified.uncertified(defence), CANDIDATES * budget.images) for defence in chosen}
        if not any(rows.values()):
            raise AttackError(
                f"expected photos in {self.results} that are answered rightly and not certified, got none"
            )
        engine = self._engine(run, chosen)
        names = {row["image"] for some in rows.values() for row in some}
        photos = certified_photos(run, self._dataset(run, engine.classifier), names, engine.classifier.size)
        defences: list[RuledDefence] = []
        attempts: list[Attempt] = []
        for defence, some in rows.items():
            twins = with_each_resort(defence)
            prospects = [Prospect.of(row, row["defences"][defence.name]) for row in some]
            right = _some(answered_rightly(engine, twins, prospects, photos), budget.images)
            defences += twins
            attempts += plan_uncertified(twins, right, budget)
        return self._ready(run, defences, attempts, engine, photos, budget, at_once, save)

    def _ready(
        self,
        run: Run,
        defences: Sequence[RuledDefence | PhotoDefence],
        attempts: Sequence[Attempt],
        engine: Engine,
        photos: dict[str, Tensor],
        budget: Budget,
        at_once: int | None,
        save: int,
        scenes: Mapping[str, Scene] | None = None,
    ) -> Gauntlet:
        surrogate = self._surrogate(run, engine)
        together = at_once or ATTEMPTS_AT_ONCE.get(engine.classifier.device.type, 1)
        about = (run, defences, attempts, engine, surrogate, photos, budget, together, self.out, save)
        gauntlet = Gauntlet(*about, scenes or {})
        gauntlet.check_painting()
        return gauntlet

    def replay(self, number: int) -> Replay:
        """Judge the saved picture of row ``number`` (from 1) of the attempts file again."""
        certified = read_certified(self.results)
        run, (attempts, row) = certified.run, _saved_row(certified.run, self.out, number)
        picture = _saved_picture(self.out, row)
        if row.get("certified", True):
            (named,) = certified.chosen([row["defence"]])
            defence = _of_row(named, row)
        else:
            defence = defence_from(attempts.defences[row["defence"]])
        engine = self._engine(run, [defence])
        dataset, name = self._dataset(run, engine.classifier), row["image"]
        clean = certified_photos(run, dataset, {name}, engine.classifier.size)[name]
        patch, corners = _saved_patches(attempts, row)
        check_allowed(patch, defence.threat, defence.image, _certified_side(run, row))
        job = Job(clean[None], torch.tensor([row["label"]]), patch).checked()
        pictures, _ = rechecked(job, picture[None], corners)
        (decision,) = defence_judge(engine, defence)(pictures)
        return Replay(run, engine, defence, number, row, decision)

    def check_proofs(self, attempts: Run) -> None:
        """An error, with the command that replays it, if an attempt broke a proved certificate."""
        number = broken_proof(attempts)
        if number is not None:
            row = attempts.rows[number - 1]
            raise BrokenCertificateError(
                f"expected every proved certificate to hold, got that of {row['defence']} for {row['image']} broken; "
                f"replay: {self.replay_command(number)}"
            )

    def replay_command(self, row: int) -> str:
        """The command that judges one saved picture again."""
        if not isinstance(self.data, str) or not isinstance(self.model, (str, type(None))):
            return f"Target.replay({row})"
        words = ["certmask", "attack", str(self.results), self.data]
        words += ["--model", self.model] if self.model else []
        words += ["--weights", str(self.weights)] if self.weights else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join([*words, "--out", str(self.out), "--replay", str(row)])

    def model_name(self, run: Run) -> str:
        """The model that was asked for, else the one that the run names; an error if none can be had by that name."""
        if isinstance(self.model, str):
            return self.model
        if self.model is not None:
            raise AttackError(f"expected a torch network for gradients, got {run.model['name']} without one")
        name = str(run.model.get("name"))
        if not is_known(name):
            raise AttackError(f"expected --model FILE for a run of {name}, which is no name of a model, got none")
        return name

    def _engine(self, run: Run, defences: Sequence[RuledDefence | PhotoDefence]) -> Engine:
        """The function that was certified, with the precision, batch, backend and views that the results file names."""
        classifier = self._classifier(run)
        check_weights(run, classifier)
        covers = dict.fromkeys(cover for defence in defences for cover in defence.covers)
        engine = Engine(classifier, list(covers), fill=tuple(run.model["fill"]))
        for note in check_function(run.header, engine, [defence.rule for defence in defences], str(run.path)):
            warnings.warn(note, stacklevel=2)
        return engine

    def _classifier(self, run: Run) -> Classifier:
        """The model that was handed over, with the preprocessing that the file names, or the one of its name."""
        if isinstance(self.model, Classifier):
            return self.model
        options = {key: run.model[key] for key in ("precision", "batch", "compiled", "backend")}
        options["views"], local = run.model.get("views", PLAIN), "cells" in run.model
        if self.model is None or isinstance(self.model, str):
            return load_classifier(self.model_name(run), self.weights, device=self.device, local=local, **options)
        size, mean, std = (tuple(run.model[key]) for key in ("size", "mean", "std"))
        options |= {"mean": mean, "std": std, "device": self.device, "name": run.model["name"]}
        return LocalClassifier(self.model, size, **options) if local else Classifier(self.model, size, **options)

    def _dataset(self, run: Run, classifier: Classifier) -> Dataset:
        framing = Framing.described(run.data)
        if isinstance(self.model, (str, type(None))):
            framing = framing_of(self.model_name(run))
        return in_memory(self.data, framing) or load_dataset(str(self.data), class_aliases(classifier), framing)

    def _surrogate(self, run: Run, engine: Engine) -> Surrogate:
        """What the engine shows its network, with gradients from that network or from the one it was made from."""
        classifier = engine.classifier
        own = isinstance(classifier.model, nn.Module)
        network = None if own else load_model(self.model_name(run), self.weights)
        return Surrogate(classifier, network=network, engine=engine)


@dataclass(frozen=True)
class Replay:
    """A saved picture that was judged again: its row in the attempts file, the defence, and what it decides now."""

    run: Run
    engine: Engine
    defence: RuledDefence
    number: int
    row: Row
    decision: Decision

    @property
    def fell(self) -> bool:
        """Whether it decides otherwise than its guarantee would have it, certified or not."""
        return self.defence.rule.guarantee.broken_by(self.decision, self.row["label"])

    @property
    def broken(self) -> bool:
        return self.fell and bool(self.row.get("certified", True))

    @property
    def sentence(self) -> str:
        """The finding in words."""
        names, answer, label = self.engine.classifier.class_names, self.decision.label, self.row["label"]
        alert = "with an alert" if self.decision.alert else "without an alert"
        found = "broken" if self.row.get("certified", True) else "changed, and never certified"
        return (
            f"row {self.number}: {self.defence.name} answers {class_name(answer, names)} ({answer}) {alert}; "
            f"the true class is {names[label]} ({label}): {found if self.fell else 'not broken'}"
        )

    def check_proof(self) -> None:
        """An error if the picture breaks a proved certificate."""
        if self.broken and self.defence.rule.guarantee.proved:
            raise BrokenCertificateError(
                f"expected the certificate of {self.row['image']} to hold, got it broken again"
            )


def _of_row(defence: RuledDefence | PhotoDefence, row: Row) -> RuledDefence:
    """The defence that a row is about; an error if it has none of the row's class."""
    if not isinstance(defence, PhotoDefence):
        return defence
    found = defence.of(Patch(*row["photo"]["threat"]))
    if found is None:
        raise ResultsError(f"expected a class of {defence.name}, got {row['photo']['threat']}")
    return found


def _some(items: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of them, evenly spaced."""
    return evenly_spaced(items, min(count, len(items)))


def _saved_row(run: Run, attempts: Path, number: int) -> tuple[Run, Row]:
    """A file of attempts on this very run, and a row of it; an error unless its picture was saved."""
    made = read_run(attempts)
    if made.kind != "attack" or made.header["certified"]["digest"] != run.digest:
        raise ResultsError(f"expected attempts on {run.path}, got {attempts}, which is about something else")
    if not 1 <= number <= len(made.rows):
        raise ResultsError(f"expected a row from 1 to {len(made.rows)} of {attempts}, got {number}")
    if made.rows[number - 1]["picture"] is None:
        raise ResultsError(f"expected a row with a saved picture, got {number}: only successful attempts are saved")
    return made, made.rows[number - 1]


def _saved_patches(attempts: Run, row: Row) -> tuple[Patch, Tensor]:
    """What was put on the image of a row, and where, ``[1, 2]``, or ``[1, count, 2]``; an error if sizes differ."""
    patches = attempts.patches(row)
    sizes = {size for _, size in patches}
    if len(sizes) != 1:
        raise ResultsError(f"expected the patches of {row['attempt']}, all of one size, got {len(sizes)} sizes")
    corners = torch.tensor([[corner for corner, _ in patches]])
    return Patch(*sizes.pop(), len(patches)), corners if len(patches) > 1 else corners[0]


def _certified_side(run: Run, row: Row) -> int | None:
    """The side up to which the run certified the image of an attempt; None for the whole threat, and for nothing."""
    if not row.get("certified", True):
        return None
    (clean,) = (clean for clean in run.rows if clean["image"] == row["image"])
    side: int | None = clean["defences"][row["defence"]].get("side")
    return side or None


def _saved_picture(attempts: Path, row: Row) -> Tensor:
    raw = picture_folder(attempts) / row["picture"]
    picture = read_picture(raw)
    if pixel_digest(picture) != row["picture_sha256"]:
        raise ResultsError(f"expected the picture that was judged in {raw}, got other pixels")
    return picture
