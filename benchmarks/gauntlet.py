"""Certifies photos under defences of one model until enough are certified, then attacks what was certified.

    PYTHONPATH=src python benchmarks/gauntlet.py --model deit_tiny_patch16_224 --weights FILE --data FOLDER \\
        --defence zoom --attempts 300 --uncertified 300 --seconds 540 --out results/attacks/zoom-deit-tiny

writes ``OUT-certified.jsonl``, ``OUT-attempts.jsonl`` and, for ``--uncertified``, ``OUT-uncertified.jsonl``: attempts
on photos that are answered rightly and not certified, for either last resort. All are append-only: a run that was cut
off, or whose ``--seconds`` are over, goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from certmask.attacks.attempts import Budget
from certmask.attacks.gauntlet import Gauntlet, strength
from certmask.attacks.target import Target
from certmask.certification import certified_rows, photo_margin, recorded, recorded_margin, run_header
from certmask.covers import minimal_cover, offset_cover, patchcleanser_cover, spread_cover, zoom_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import MaskedDefence
from certmask.defences.protocol import engine_covers
from certmask.engine import Engine
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, attack_figures
from certmask.results.file import ResultsFile, Row
from certmask.results.run import Run, check_begun
from certmask.rules import (
    HiCert,
    JuryDetection,
    JuryHiCert,
    JuryRecovery,
    MinorityReports,
    PatchCleanser,
    Published,
    Undefended,
)
from certmask.threat import Patch
from certmask.zoo import class_aliases, framing_of, load_classifier

SHARE = 7
"""The patch's side is this part of the picture's: 32 of 224, 5 of 32."""
UNDEFENDED = "undefended"


def defences(side: int, margin: float, align: int | None = None) -> list[MaskedDefence]:
    """The published rule as its paper has it and with k = 1, and every rule with a guarantee, against a 2 % patch."""
    patch = Patch(-(-side // SHARE), -(-side // SHARE))
    small, middle, large = (-(-side * part // 14) for part in (3, 4, 5))
    single, fourfold = minimal_cover(side, patch, middle), spread_cover(side, patch, large, 2)
    zoom, cleanser = zoom_cover(side, patch, align=align), patchcleanser_cover(side, patch, 6)
    return [
        MaskedDefence(single, Undefended(), UNDEFENDED),
        MaskedDefence(zoom, JuryRecovery(margin=margin), "zoom"),
        MaskedDefence(zoom, JuryDetection(margin=margin), "zoom detection"),
        MaskedDefence(offset_cover(side, patch, small, (2, 3)), Published(margin), f"published rule k=6, mask {small}"),
        MaskedDefence(single, Published(margin), f"published rule k=1, mask {middle}"),
        MaskedDefence(fourfold, JuryDetection(margin=margin), f"jury detection k=4, mask {large}"),
        MaskedDefence(single, MinorityReports(0.5, margin), f"minority reports, mask {middle}"),
        MaskedDefence(single, JuryRecovery("all", margin=margin), f"jury recovery k=1, mask {middle}"),
        MaskedDefence(fourfold, JuryRecovery("aligned", margin=margin), f"jury recovery k=4, mask {large}"),
        MaskedDefence(cleanser, PatchCleanser(margin=margin), "PatchCleanser 6×6"),
        MaskedDefence(cleanser, PatchCleanser(margin=margin, challenger=True), "PatchCleanser 6×6, challenger"),
        MaskedDefence(single, HiCert(margin=margin), f"HiCert, mask {middle}"),
        MaskedDefence(zoom, JuryHiCert(margin=margin), "zoom HiCert"),
    ]


def chosen(side: int, margin: float, names: Sequence[str], align: int | None) -> list[MaskedDefence]:
    """The undefended model, which shows how strong the attack is, and the defences of these names; all, without any."""
    every = defences(side, margin, align)
    unknown = set(names) - {defence.name for defence in every}
    if unknown:
        raise SystemExit(f"expected --defence among {', '.join(d.name for d in every)}, got {', '.join(unknown)}")
    return [defence for defence in every if not names or defence.name in (UNDEFENDED, *names)]


def shuffled(dataset: Dataset) -> Dataset:
    """The same photos in an order that favours no class, so that a run may stop when it has enough of them."""
    order = np.random.default_rng(0).permutation(len(dataset))
    return replace(dataset, samples=tuple(dataset.samples[number] for number in order))


def enough(rows: Sequence[Row], names: Sequence[str], certified: int, uncertified: int) -> bool:
    """Whether every defence has certified so many photos, and has left so many that it answers rightly."""
    for name in names:
        outcomes = [(row["defences"][name], row["label"]) for row in rows]
        proved = sum(bool(outcome["certified"]) for outcome, _ in outcomes)
        left = sum(not o["certified"] and not o["alert"] and o["label"] == label for o, label in outcomes)
        if proved < certified or left < uncertified:
            return False
    return True


def certify(
    engine: Engine, dataset: Dataset, found: Sequence[MaskedDefence], options: argparse.Namespace, path: Path
) -> int:
    """Certify photo after photo until there are enough to attack; return how many were looked at."""
    names = [defence.name for defence in found if defence.name != UNDEFENDED]
    wanted = (names, -(-options.attempts // options.places), -(-options.uncertified // options.places))
    with ResultsFile(path, run_header(engine, dataset, found)) as results:
        check_begun(path, results.header, results.rows)
        rows = certified_rows(engine, dataset.without(frozenset(row["image"] for row in results.rows)), found)
        while not enough(results.rows, *wanted) and (row := next(rows, None)) is not None:
            results.write(row)
        rows.close()
        return len(results.rows)


def told(name: str, attempts: Run) -> None:
    print(markdown_grid(brief_table(name, ATTACK_COLUMNS, attack_figures(attempts))), flush=True)


def attacked(gauntlet: Gauntlet, end: float) -> Run:
    """All attempts for which there is time, with what became of them on the way."""
    made = 0

    def progress(more: int) -> None:
        nonlocal made
        made += more
        print(f"{made} of {len(gauntlet.attempts)} attempts, {end - time.monotonic():.0f} s left", flush=True)

    return gauntlet.attack(progress, end - time.monotonic())


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--defence", action="append", default=[], help="may be given more than once; all by default")
    parser.add_argument("--align", type=int, help="what edges of zoom's masks are multiples of; the model's tokens")
    parser.add_argument("--images", type=int, help="photos to certify at most, all of them by default")
    parser.add_argument("--attempts", type=int, default=150, help="on certified photos, per defence")
    parser.add_argument("--uncertified", type=int, default=0, help="on photos that are not, per last resort")
    parser.add_argument("--places", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further attempts after so long")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    end = time.monotonic() + options.seconds
    path = Path(f"{options.out}-certified.jsonl")
    classifier = load_classifier(options.model, options.weights, device=options.device, precision=options.precision)
    dataset = load_dataset(options.data, class_aliases(classifier), framing_of(options.model))
    dataset = shuffled(dataset.spread(options.images))
    align = options.align or (classifier.grid if classifier.grid > 1 else None)
    side = classifier.size[0]
    header, _ = recorded(path)
    if header:
        margin = recorded_margin(header)
    else:
        margin = photo_margin(Engine(classifier, engine_covers(chosen(side, 0.0, options.defence, align))), dataset)
    found = chosen(side, margin.probability, options.defence, align)
    count = certify(Engine(classifier, engine_covers(found)), dataset, found, options, path)
    print(f"{options.model}: {count} photos looked at, margin {margin.probability:.3g}", flush=True)

    def target(kind: str, *rules: str) -> Target:
        out = Path(f"{options.out}-{kind}.jsonl")
        return Target(path, options.data, out, options.model, options.weights, options.device, rules)

    def budget(attempts: int) -> Budget:
        return Budget(-(-attempts // options.places), options.places, 1, options.steps, options.views)

    aim = target("attempts")
    attempts = attacked(aim.gauntlet(budget(options.attempts), at_once=options.at_once, save=2), end)
    told(options.model, attempts)
    print(strength(attempts))
    if options.uncertified:
        rules = [defence.name for defence in found if "last_resort" in defence.rule.describe()]
        left = target("uncertified", *rules)
        told(options.model, attacked(left.uncertified(budget(options.uncertified), at_once=options.at_once), end))
    aim.check_proofs(attempts)


if __name__ == "__main__":
    main()
