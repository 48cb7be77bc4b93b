"""``certmask attack``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from certmask.attacks.budget import Budget, plan_attempts
from certmask.attacks.certified_run import CertifiedRun, certified_photos, check_function, check_weights, read_certified
from certmask.attacks.gauntlet import Gauntlet, is_proved
from certmask.attacks.replay import replay
from certmask.attacks.surrogate import Surrogate
from certmask.backends.devices import device_name
from certmask.certificate import Guarantee
from certmask.classifier import Classifier
from certmask.cli.choices import pick_device
from certmask.cli.console import attack_table, err, out
from certmask.data import Dataset, check_source, load_dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.errors import AttackError, BrokenCertificateError
from certmask.results.columns import attack_figures
from certmask.results.file import Row, picture_folder
from certmask.results.run import read_run
from certmask.zoo import class_aliases, framing_of, is_known, load_classifier, load_model

AT_ONCE = {"cuda": 32, "cpu": 1}
"""Attempts per batch, each with all its views. A CPU is fastest with few: larger batches outgrow its allocator."""


@dataclass(frozen=True)
class Target:
    """What to attack: a results file, its photos, the model it certified (None: as it names it), some of its rules."""

    results: Path
    data: str
    model: str | None
    weights: Path | None
    device: str
    rules: Sequence[str]
    out: Path

    def model_name(self, run: CertifiedRun) -> str:
        """The model that was asked for, else the one that the run names; an error if none can be had by that name."""
        if self.model is not None:
            return self.model
        name = str(run.model.get("name"))
        if not is_known(name):
            raise AttackError(f"expected --model FILE for a run of {name}, which is no name of a model, got none")
        return name

    def classifier(self, run: CertifiedRun) -> Classifier:
        """The classifier with the precision, batch and backend that the results file names."""
        wanted = run.model
        return load_classifier(
            self.model_name(run),
            self.weights,
            device=pick_device(self.device),
            precision=wanted["precision"],
            batch=wanted["batch"],
            compiled=wanted["compiled"],
            backend=wanted["backend"],
        )

    def replay_command(self, row: int) -> str:
        """The command that judges one saved picture again."""
        words = ["certmask", "attack", str(self.results), self.data]
        words += ["--model", self.model] if self.model else []
        words += ["--weights", str(self.weights)] if self.weights else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join([*words, "--out", str(self.out), "--replay", str(row)])


def run(target: Target, budget: Budget, *, at_once: int | None, save: int) -> None:
    """Attack what a results file says is certified, print the table; an error if a proved certificate broke."""
    certified = read_certified(target.results)
    defences = certified.chosen(target.rules)
    attempts = plan_attempts(certified, defences, budget)
    if not attempts:
        raise AttackError(f"expected certified images to attack in {target.results}, got none")
    check_source(target.data)
    classifier, engine = _deployed(target, certified, defences)
    photos = certified_photos(
        certified, _dataset(target, certified, classifier), {a.image for a in attempts}, classifier.size
    )
    name = target.model_name(certified)
    network = None if isinstance(classifier.model, nn.Module) else load_model(name, target.weights)
    surrogate = Surrogate(classifier, [s.cover for s in defences], network=network, fill=engine.fill)
    together = at_once or AT_ONCE.get(classifier.device.type, 1)
    with _progress_bar(len(attempts)) as progress:
        gauntlet = Gauntlet(certified, engine, surrogate, photos, budget, together, save, progress)
        header, rows = gauntlet.attack(attempts, defences, target.out)
    _report(target, header, rows)


def run_replay(target: Target, row: int) -> None:
    """Judge one saved picture again; an error if it breaks a proved certificate."""
    certified = read_certified(target.results)
    again = replay(certified, target.out, row)
    classifier, engine = _deployed(target, certified, [again.defence])
    photos = certified_photos(certified, _dataset(target, certified, classifier), {again.image}, classifier.size)
    decision, broken = again.judged(engine, photos[again.image])
    alert = "with an alert" if decision.alert else "without an alert"
    out.print(
        f"row {row}: {again.defence.name} answers {classifier.class_names[decision.label]} ({decision.label}) {alert}; "
        f"the true class is {classifier.class_names[again.label]} ({again.label}): "
        f"{'broken' if broken else 'not broken'}",
        markup=False,
    )
    if broken and is_proved(again.defence.describe()):
        raise BrokenCertificateError(f"expected the certificate of {again.image} to hold, got it broken again")


def _deployed(target: Target, certified: CertifiedRun, defences: Sequence[MaskedDefence]) -> tuple[Classifier, Engine]:
    classifier = target.classifier(certified)
    check_weights(certified, classifier)
    engine = Engine(classifier, [defence.cover for defence in defences], fill=tuple(certified.model["fill"]))
    engine.forward.warm_up()
    check_function(certified, engine)
    here = device_name(classifier.device)
    if here != certified.model["device"]:
        err.print(f"certified on {certified.model['device']}, attacked on {here}", markup=False)
    return classifier, engine


def _dataset(target: Target, certified: CertifiedRun, classifier: Classifier) -> Dataset:
    return load_dataset(target.data, class_aliases(classifier), framing_of(target.model_name(certified)))


def _report(target: Target, header: Row, rows: Sequence[Row]) -> None:
    lines = attack_figures(read_run(target.out))
    out.print(attack_table(lines, f"{len(rows):,} attempts, {header['model']['name']}"))
    bare = [line for line in lines if line.guarantee is Guarantee.NONE and line.attempts]
    if bare:
        share = 100 * sum(line.label_changed for line in bare) / sum(line.attempts for line in bare)
        out.print(f"The same attack changes the undefended model's label in {share:.0f} % of its attempts.")
    else:
        out.print("The undefended model was not among the rules: how strong the attack is, is not on record.")
    saved = sum(row["picture"] is not None for row in rows)
    pictures = f", {saved} pictures in {picture_folder(target.out)}" if saved else ""
    out.print(f"saved in {target.out}{pictures}", markup=False, soft_wrap=True)
    for number, row in enumerate(rows, start=1):
        if row["broken"] and is_proved(header["defences"][row["defence"]]):
            raise BrokenCertificateError(
                f"expected every proved certificate to hold, got that of {row['defence']} for {row['image']} broken; "
                f"replay: {target.replay_command(number)}"
            )


@contextmanager
def _progress_bar(attempts: int) -> Iterator[Callable[[int], None]]:
    columns = (
        TextColumn("attacking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("attempts ·"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=attempts)
        yield lambda count: bar.update(task, advance=count)
