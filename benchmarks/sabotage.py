"""How many attempts the gauntlet takes to notice a defence that was broken on purpose.

    PYTHONPATH=src python benchmarks/sabotage.py --model resnet26-cifar10 --data demo-cifar10 --device cuda \\
        --out results/attacks/sabotage-resnet26-cifar10.jsonl

Every fault is put into the engine or the rules of this process; the faulty defence certifies the photos and is attacked
until one of its certificates breaks, in pixels by the gauntlet and, where the rule is at fault, in votes by the vote
game. One row per fault, defence and seed; a run that was cut off, or whose ``--minutes`` are over, goes on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from certmask.attacks.attempts import Budget
from certmask.attacks.certified_run import read_certified
from certmask.attacks.gauntlet import Gauntlet
from certmask.attacks.target import Target
from certmask.attacks.vote_game import Play, VoteGame
from certmask.attacks.worst_case import worst_case
from certmask.certificate import Decision, Guarantee
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.covers import Cover, patchcleanser_cover, spread_cover, zoom_cover
from certmask.covers.default import suited_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.engine.forward import Forward
from certmask.engine.masking import MaskTable
from certmask.geometry import IntArray
from certmask.results.file import ResultsFile, Row, provenance
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser
from certmask.rules.aggregates import Leads
from certmask.rules.jury import JuryRule, Verdicts
from certmask.rules.levels import PoolsOf
from certmask.rules.rule import Asking, Proofs, majority
from certmask.rules.tournament import Duelling, Referee, double_masking, side_by_side, tournament
from certmask.rules.verdicts import Pools, settled
from certmask.threat import Patch
from certmask.votes import Votes, VoteStore
from certmask.zoo import class_aliases, framing_of, load_classifier

SHARE = 7
"""The patch's side is this part of the picture's: 32 of 224."""
MARGIN = 1e-4
"""What every certificate asks for, in probabilities."""
TOGETHER = {"cuda": 50, "cpu": 4}
"""Attempts that are made before their outcomes are looked at."""
AT_ONCE = {"cuda": 50, "cpu": 1}
"""Attempts that descend together: small networks leave a GPU time for many."""
SURE = 0.5
"""A lead of the bare picture that a faulty gate takes for certainty."""
DISTRICTS = 4
"""Places of a patch that are played on a cover of several levels."""
WAYS = ("pixels", "votes")
LEVELLED = ("zoom detection", "zoom recovery")
RECOVERY = ("jury recovery k=1", "jury recovery k=4", "PatchCleanser 4×4", LEVELLED[1])
EVERY = ("jury detection k=1", "jury detection k=4", *RECOVERY, LEVELLED[0])


def defences(side: int) -> list[MaskedDefence]:
    """What is sabotaged: both jury rules with one mask per place, with four, and with levels, and PatchCleanser."""
    threat = Patch(-(-side // SHARE), -(-side // SHARE))
    fourfold, zoom = suited_cover((side, side), threat, suits="many"), zoom_cover(side, threat)
    single = spread_cover(side, threat, fourfold.mask)
    return [
        MaskedDefence(single, JuryDetection(margin=MARGIN), EVERY[0]),
        MaskedDefence(fourfold, JuryDetection(margin=MARGIN), EVERY[1]),
        MaskedDefence(single, JuryRecovery("all", margin=MARGIN), EVERY[2]),
        MaskedDefence(fourfold, JuryRecovery("aligned", margin=MARGIN), EVERY[3]),
        MaskedDefence(patchcleanser_cover(side, threat, 4), PatchCleanser(margin=MARGIN), EVERY[4]),
        MaskedDefence(zoom, JuryRecovery(margin=MARGIN), LEVELLED[1]),
        MaskedDefence(zoom, JuryDetection(margin=MARGIN), LEVELLED[0]),
    ]


# ------------------------------------------------------------------------------------------------------------ faults

Patches = list[tuple[str, Any]]
"""What a fault puts in the place of which names of certmask."""


@dataclass(frozen=True)
class Fault:
    """A way to break a defence: its name, the patches that do it for a seed, and the defences that it concerns.

    A fault of the ``rule`` can be looked for in votes too.
    """

    name: str
    patches: Callable[[int], Patches]
    defences: tuple[str, ...] = EVERY
    rule: bool = False

    @contextmanager
    def injected(self, seed: int) -> Iterator[None]:
        with ExitStack() as stack:
            for name, faulty in self.patches(seed):
                stack.enter_context(patch(name, faulty))
            yield


def painted(change: Callable[[MaskTable, int], None]) -> Callable[[int], Patches]:
    """Every table of masks is changed once it is made."""
    honest = MaskTable.__init__

    def patches(seed: int) -> Patches:
        def faulty(self: MaskTable, covers: Sequence[Cover], image: tuple[int, int], device: torch.device) -> None:
            honest(self, covers, image, device)
            change(self, seed)

        return [("certmask.engine.masking.MaskTable.__init__", faulty)]

    return patches


def shortened(marks: Tensor, pixels: int) -> Tensor:
    """Masks along one axis, ``[masks, length]``, each piece without its last pixels."""
    for _ in range(pixels):
        marks = marks & torch.nn.functional.pad(marks[:, 1:], (0, 1))
    return marks


def short_on_the_right(pixels: int) -> Callable[[MaskTable, int], None]:
    def change(table: MaskTable, _: int) -> None:
        table.columns = shortened(table.columns, pixels)

    return change


def short_all_round(pixels: int) -> Callable[[MaskTable, int], None]:
    def change(table: MaskTable, _: int) -> None:
        for name in ("rows", "columns"):
            ahead = shortened(getattr(table, name), pixels)
            setattr(table, name, shortened(ahead.flip(1), pixels).flip(1))

    return change


def one_mask_unpainted(table: MaskTable, seed: int) -> None:
    table.rows[np.random.default_rng(seed).integers(len(table))] = False


def neighbours_mask(_: int) -> Patches:
    """A rule reads the vote of the next mask for that of each mask."""
    honest = MaskTable.index
    return [("certmask.engine.masking.MaskTable.index", lambda self, cover: np.roll(honest(self, cover), -1))]


def mean_fill(_: int) -> Patches:
    """Masks have the mean colour of the picture, to which the patch contributes."""

    def faulty(_: Forward, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        hidden = (rows[:, :, :, None] & columns[:, :, None, :]).any(dim=1)
        return torch.where(hidden[:, None], images.mean(dim=(2, 3), keepdim=True), images)

    return [("certmask.engine.forward.Forward._hide", faulty)]


Game = Callable[[IntArray], Duelling[Decision]]


def duels(change: Callable[[Game, int], Game]) -> Callable[[int], Patches]:
    """The second round of every recovery rule is changed; that of juries is played picture by picture."""

    def patches(seed: int) -> Patches:
        game = change(tournament, seed)

        def faulty(
            _votes: Votes, claims: IntArray, _leads: Leads, referee: Referee, _resort: str
        ) -> Asking[list[Decision]]:
            return side_by_side(map(game, claims), referee)

        return [
            ("certmask.rules.patchcleanser.double_masking", change(double_masking, seed)),
            ("certmask.rules.jury_recovery.recovered", faulty),
        ]

    return patches


def overruled(_game: Game, _: int) -> Game:
    """No dissenter is heard."""

    def faulty(claims: IntArray) -> Duelling[Decision]:
        yield from ()
        return Decision(majority(claims))

    return faulty


def skipped(game: Game, left_out: Callable[[IntArray, int], np.ndarray[Any, Any]]) -> Game:
    """Duels that ``left_out`` names among pairs ``[n, 2]`` of ``count`` hypotheses are taken as won by the first."""

    def faulty(claims: IntArray) -> Duelling[Decision]:
        duelling, told = game(claims), None
        while True:
            try:
                pairs = duelling.send(told)  # type: ignore[arg-type]
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            outcome = yield pairs
            told = np.where(left_out(pairs, len(claims)), claims[pairs[:, 0]], outcome)

    return faulty


def one_duel_left_out(game: Game, seed: int) -> Game:
    def left_out(pairs: IntArray, count: int) -> np.ndarray[Any, Any]:
        pair = np.sort(np.random.default_rng([seed, count]).choice(count, 2, replace=False))
        return np.asarray((np.sort(pairs, axis=1) == pair).all(axis=1))

    return skipped(game, left_out)


def one_opponent_left_out(game: Game, seed: int) -> Game:
    def left_out(pairs: IntArray, count: int) -> np.ndarray[Any, Any]:
        return np.asarray(pairs[:, 1] == np.random.default_rng([seed, count]).integers(count))

    return skipped(game, left_out)


def alert_swallowed(_: int) -> Patches:
    """Jury detection answers its districts' majority and never raises an alert."""

    def faulty(self: JuryDetection, votes: Votes) -> Asking[list[Decision]]:
        claims = yield from self.claims(votes)
        return [Decision(majority(own)) for own in claims]

    return [("certmask.rules.jury_detection.JuryDetection.deciding", faulty)]


def gate_on_the_bare_picture(_: int) -> Patches:
    """Where the bare picture is sure, the finest level judges every place, else the coarsest; so does the proof."""

    def verdicts(
        self: JuryRule, votes: Votes, pictures: IntArray, things: IntArray, pools_of: PoolsOf, bars: Sequence[float]
    ) -> Asking[Verdicts]:
        bare = votes.ballot.bare[None]
        yield votes.ask(bare, np.unique(pictures))
        sure = votes.heads(bare, pictures).lead[:, 0] > SURE
        found = Verdicts.empty(len(things))
        found.levels[:] = np.where(sure, len(bars), 0)
        for level, some in ((len(bars), sure), (0, ~sure)):
            if some.any():
                pools = Pools(pictures[some], pools_of(things[some], level))
                yield votes.ask(pools.passes, pools.pictures)
                found.labels[some], _, found.leads[some] = settled(self.aggregate, votes, pools)
        return found

    def proving(self: JuryRule, votes: Votes, labels: IntArray) -> Asking[Proofs]:
        said = yield from self.claims(votes)
        if isinstance(self, JuryRecovery):
            opponents = self.levels(votes).opponents
            pictures, pairs = np.repeat(votes.everyone, len(opponents)), np.tile(opponents, (len(labels), 1))
            duels = yield from self.duels(votes, pictures, pairs)
            said = np.concatenate([said, duels.reshape(len(labels), -1)], axis=1)
        return Proofs(np.asarray((said == labels[:, None]).all(axis=1)), [None] * len(labels))

    def claims(self: JuryRule, votes: Votes) -> Asking[tuple[IntArray, np.ndarray[Any, Any]]]:
        said = yield from self.claims(votes)
        return said, np.ones(said.shape, dtype=bool)

    return [
        ("certmask.rules.jury.JuryRule._verdicts", verdicts),
        ("certmask.rules.jury_detection.JuryDetection._claims_until_split", claims),
        ("certmask.rules.jury_recovery.JuryRecovery.proving", proving),
        ("certmask.rules.jury_detection.JuryDetection.proving", proving),
    ]


FAULTS = [
    Fault("none", lambda _: []),
    *(Fault(f"right edge painted {n} px short", painted(short_on_the_right(n))) for n in (1, 2, 4)),
    *(Fault(f"every edge painted {n} px short", painted(short_all_round(n))) for n in (1, 2, 4)),
    Fault("one mask not painted", painted(one_mask_unpainted)),
    Fault("votes read from the next mask", neighbours_mask),
    Fault("masks in the picture's mean colour", mean_fill),
    Fault("majority overrules", duels(overruled), RECOVERY, rule=True),
    Fault("duels with one opponent left out", duels(one_opponent_left_out), RECOVERY, rule=True),
    Fault("one duel left out", duels(one_duel_left_out), RECOVERY, rule=True),
    Fault("alert swallowed", alert_swallowed, (*EVERY[:2], LEVELLED[0]), rule=True),
    Fault("bare picture chooses the level", gate_on_the_bare_picture, LEVELLED, rule=True),
]


# ----------------------------------------------------------------------------------------------------------- looking


@dataclass(frozen=True)
class Laboratory:
    """A model and photos, and where the files of faulty runs go."""

    classifier: Classifier
    dataset: Dataset
    options: argparse.Namespace
    weights: Path | None
    folder: Path

    def defences(self, fault: Fault) -> list[MaskedDefence]:
        names = [name for name in fault.defences if name in (self.options.defence or EVERY)]
        return [defence for defence in defences(self.classifier.size[0]) if defence.name in names]

    def rows(self, fault: Fault, seed: int, wanted: set[tuple[str, str]]) -> Iterator[Row]:
        """What comes of one fault: a row for each way to look and defence that is ``wanted``."""
        with fault.injected(seed):
            path, chosen = self.folder / f"{FAULTS.index(fault)}-{seed}.jsonl", self.defences(fault)
            engine = Engine(self.classifier, [defence.cover for defence in chosen])
            certify_run(engine, self.dataset, chosen, path)
            run = read_certified(path)
            held = {defence.name: [row["image"] for row in run.attackable(defence)] for defence in chosen}
            gauntlet = self.gauntlet(path, seed) if any(held.values()) else None
            for way, defence in ((way, d) for way in WAYS for d in chosen if (way, d.name) in wanted):
                images = held[defence.name]
                told = {
                    "way": way,
                    "fault": fault.name,
                    "defence": defence.name,
                    "seed": seed,
                    "certified": len(images),
                }
                if gauntlet is None or not images:
                    found: Row = {"attempts": 0, "first": None, "place": None}
                elif way == "pixels":
                    found = attempts_until_broken(gauntlet, defence.name)
                else:
                    found = self.plays_until_broken(defence, images, seed)
                yield {**told, **found}

    def gauntlet(self, certified: Path, seed: int) -> Gauntlet:
        """All attempts on what a faulty run has certified."""
        options, out = self.options, certified.with_name(f"{certified.stem}-attempts.jsonl")
        target = Target(certified, options.data, out, options.model, self.weights, options.device)
        budget = Budget(options.images, options.places, 1, options.steps, options.views, seed)
        at_once = options.at_once or AT_ONCE.get(self.classifier.device.type, 1)
        with patch("certmask.attacks.gauntlet.Gauntlet.check_painting"):  # which would see some faults at once
            return target.gauntlet(budget, at_once=at_once, save=0)

    def plays_until_broken(self, defence: MaskedDefence, images: Sequence[str], seed: int) -> Row:
        """How many plays of the vote game, photo after photo, it takes to break a certificate."""
        made, chance = Counted(), np.random.default_rng(seed)
        chosen = chance.permutation(list(images))[: self.options.played]
        with patch("certmask.attacks.vote_game.VoteGame.played", made.played):
            for image in chosen.tolist():
                votes, label = self.votes(defence, image)
                for district in some_districts(defence.cover, chance):
                    worst = worst_case(votes, defence.rule, label, district, plays=1, seed=seed)
                    if defence.rule.guarantee.broken_by(worst.decision, label):
                        return {"attempts": made.count, "first": made.count, "place": None}
        return {"attempts": made.count, "first": None, "place": None}

    def votes(self, defence: MaskedDefence, image: str) -> tuple[Votes, int]:
        """All votes of the clean photo that the rule may come to ask for, and its label."""
        (number,) = (n for n, sample in enumerate(self.dataset.samples) if sample.name == image)
        label, engine = self.dataset.samples[number].label, Engine(self.classifier, [defence.cover], cohort=1)

        def program(_: list[int], store: VoteStore) -> Asking[list[Votes]]:
            yield from defence.certifying(engine, store, np.array([label]))
            votes = engine.votes(defence.cover, store)
            yield votes.ask(votes.ballot.bare[None])
            for levels in [*votes.ballot.levels.values()] if defence.cover.levels else ():
                for level in range(len(levels)):
                    yield votes.ask(levels.claim_pools(np.arange(levels.places), level).reshape(1, -1))
                    if defence.guarantee is Guarantee.RECOVERY:
                        yield votes.ask(levels.pair_pools(levels.opponents, level).reshape(1, -1))
            store.probabilities = store.probabilities.cpu()
            return [engine.votes(defence.cover, store)]

        (finding,) = engine.run([self.dataset.tensor(number, self.classifier.size)], program)
        return finding.value, label


def some_districts(cover: Cover, chance: np.random.Generator) -> list[int | None]:
    """All at once, which is what None stands for; of a cover of levels, which has hundreds, some."""
    if not cover.levels:
        return [None]
    return [int(district) for district in chance.permutation(len(cover.districts))[:DISTRICTS]]


class Counted:
    """Counts the plays of all vote games."""

    def __init__(self) -> None:
        self.count = 0
        honest = VoteGame.played

        def played(game: VoteGame, strategies: Any) -> Iterator[Play]:
            for play in honest(game, strategies):
                self.count += 1
                yield play

        self.played = played


def attempts_until_broken(gauntlet: Gauntlet, name: str) -> Row:
    """The gauntlet's attempts on one defence in random order, some at a time, until a certificate breaks."""
    mine = [attempt for attempt in gauntlet.attempts if attempt.defence == name]
    order = [mine[n] for n in gauntlet.budget.chance("order", name).permutation(len(mine))]
    together = TOGETHER.get(gauntlet.engine.classifier.device.type, 4)
    made: list[Row] = []
    for start in range(0, len(order), together):
        some = order[start : start + together]
        rows = {row["attempt"]: row for row in replace(gauntlet, attempts=some).attack().rows}
        made += [rows[attempt.key] for attempt in some]
        broken = [number for number, row in enumerate(made, start=1) if row["broken"]]
        if broken:
            return {"attempts": len(made), "first": broken[0], "place": made[broken[0] - 1]["place"]}
    return {"attempts": len(made), "first": None, "place": None}


def wanted(fault: Fault, names: Sequence[str]) -> set[tuple[str, str]]:
    """The rows that a fault needs for one seed: by pixels, and where the rule is at fault by votes too."""
    return {(way, name) for way in WAYS[: 1 + fault.rule] for name in fault.defences if name in names}


def header(engine: Engine, dataset: Dataset, options: argparse.Namespace) -> Row:
    budget = asdict(Budget(options.images, options.places, 1, options.steps, options.views))
    return {
        "kind": "sabotage",
        "model": engine.describe(),
        "data": dataset.describe(),
        "defences": {defence.name: defence.describe() for defence in defences(engine.classifier.size[0])},
        "budget": {**{key: value for key, value in budget.items() if key != "seed"}, "played": options.played},
        "versions": provenance(),
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet26-cifar10", help="NAME or NAME=WEIGHTS")
    parser.add_argument("--data", default="demo-cifar10")
    parser.add_argument("--photos", type=int, default=None, help="photos to certify, all of them by default")
    parser.add_argument("--images", type=int, default=20, help="certified images to attack per defence")
    parser.add_argument("--places", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--played", type=int, default=5, help="photos in the vote game")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fault", action="append", help="only this one; may be given more than once")
    parser.add_argument("--defence", action="append", help="likewise")
    parser.add_argument("--at-once", type=int, default=None)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=8.5, help="begin no further fault after so long")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options, begun = parsed(), time.monotonic()
    options.model, _, weights = options.model.partition("=")
    classifier = load_classifier(
        options.model, weights or None, device=options.device, precision=options.precision, compiled=False
    )
    dataset = load_dataset(options.data, class_aliases(classifier), framing_of(options.model)).spread(options.photos)
    whole = Engine(classifier, [defence.cover for defence in defences(classifier.size[0])])
    faults = [fault for fault in FAULTS if not options.fault or fault.name in options.fault]
    with ResultsFile(options.out, header(whole, dataset, options)) as results, tempfile.TemporaryDirectory() as folder:
        work = Laboratory(classifier, dataset, options, Path(weights) if weights else None, Path(folder))
        for seed in range(options.seeds):
            for fault in faults:
                mine = [row for row in results.rows if row["fault"] == fault.name and row["seed"] == seed]
                left = wanted(fault, options.defence or EVERY) - {(row["way"], row["defence"]) for row in mine}
                if left and time.monotonic() - begun < 60 * options.minutes:
                    for row in work.rows(fault, seed, left):
                        results.write(row)
                        print(f"{time.monotonic() - begun:.0f} s: {row}", flush=True)
        names = {fault.name for fault in faults}
        complete = {(row["fault"], row["seed"]) for row in results.rows if row["fault"] in names}
        print(f"{len(complete)} of {len(faults) * options.seeds} faults and seeds begun or done")


if __name__ == "__main__":
    main()
