"""Certifies photos under eight defences of one model, then attacks everything that was certified.

    python -m benchmarks.gauntlet DATA --model deit_tiny_patch16_224 --weights FILE --out results/attacks/deit-tiny

writes ``OUT-certified.jsonl`` and ``OUT-attempts.jsonl``, both append-only: a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from certmask.attacks.attempts import Budget
from certmask.attacks.gauntlet import strength
from certmask.attacks.target import Target
from certmask.certification import certify_run, photo_margin
from certmask.covers import minimal_cover, offset_cover, patchcleanser_cover, spread_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, attack_figures
from certmask.results.file import read_results
from certmask.rules import JuryDetection, JuryRecovery, MinorityReports, PatchCleanser, Published, Undefended
from certmask.threat import Patch
from certmask.zoo import class_aliases, framing_of, load_classifier

PATCH = Patch(32, 32)


def defences(margin: float) -> list[MaskedDefence]:
    """The paper's own setting, its rule with k = 1, and every rule with a guarantee, against a 32×32 patch on 224."""
    single, fourfold = minimal_cover(224, PATCH, 64), spread_cover(224, PATCH, 80, 2)
    return [
        MaskedDefence(single, Undefended(), "undefended"),
        MaskedDefence(offset_cover(224, PATCH, 48, (2, 3)), Published(margin), "published rule k=6, mask 48"),
        MaskedDefence(single, Published(margin), "published rule k=1, mask 64"),
        MaskedDefence(fourfold, JuryDetection(margin=margin), "jury detection k=4, mask 80"),
        MaskedDefence(single, MinorityReports(0.5, margin), "minority reports, mask 64"),
        MaskedDefence(single, JuryRecovery("all", margin=margin), "jury recovery k=1, mask 64"),
        MaskedDefence(fourfold, JuryRecovery("aligned", margin=margin), "jury recovery k=4, mask 80"),
        MaskedDefence(patchcleanser_cover(224, PATCH, 6), PatchCleanser(margin=margin), "PatchCleanser 6×6"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--images", type=int, default=160, help="photos to certify")
    parser.add_argument("--attacked", type=int, default=30, help="certified images to attack per defence")
    parser.add_argument("--places", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    certified = Path(f"{options.out}-certified.jsonl")
    classifier = load_classifier(options.model, options.weights, device=options.device)
    dataset = load_dataset(options.data, class_aliases(classifier), framing_of(options.model)).spread(options.images)
    engine = Engine(classifier, [defence.cover for defence in defences(0.0)])
    if certified.is_file():
        margin = max(s["rule"]["margin"] for s in read_results(certified)[0]["defences"].values())
    else:
        margin = photo_margin(engine, dataset).probability
    chosen = defences(margin)
    engine = Engine(classifier, [defence.cover for defence in chosen])
    certify_run(engine, dataset, chosen, certified)
    print(f"{options.model}: {len(dataset)} photos certified, margin {margin:.3g}")
    weights = None if options.weights is None else Path(options.weights)
    out = Path(f"{options.out}-attempts.jsonl")
    target = Target(certified, options.data, out, options.model, weights, options.device)
    budget = Budget(options.attacked, options.places, 1, options.steps, options.views)
    attempts = target.gauntlet(budget, save=2).attack()
    print(markdown_grid(brief_table(options.model, ATTACK_COLUMNS, attack_figures(attempts))))
    print(strength(attempts))
    target.check_proofs(attempts)


if __name__ == "__main__":
    main()
