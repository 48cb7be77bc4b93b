"""Which zoom to ship: every setting that ``certmask tune`` tries, beside PatchCleanser, on photos for choosing.

    python -m benchmarks.shipped certify DATA --model NAME [--weights FILE] --out results/shipped/NAME.jsonl
    python -m benchmarks.shipped read results/shipped/*.jsonl

``read`` prints, for every setting, how far it is from PatchCleanser on each network. Nothing else is chosen here: the
photos are not those that figures are reported for.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from certmask.certificate import Guarantee
from certmask.certification import certify_run, photo_margin
from certmask.cli.choices import Choices, photos_for
from certmask.covers import Cover, patchcleanser_cover
from certmask.defences import MaskedDefence, engine_covers
from certmask.engine import Engine
from certmask.results.columns import Figures, figures
from certmask.results.run import read_run
from certmask.rules import JuryDetection, PatchCleanser, Undefended
from certmask.tuning import settings
from certmask.votes import Margin

CLEANSER, AGREEMENT, BARE = "PatchCleanser 6×6", "6×6 agreement", "undefended"


def defences(shipped: Cover, margin: Margin) -> list[MaskedDefence]:
    """The undefended network, PatchCleanser and its masks' agreement, and every setting for recovery and detection."""
    cleanser, lead = patchcleanser_cover(shipped.image, shipped.patch, 6), margin.probability
    beside = [
        MaskedDefence(cleanser, Undefended(), BARE),
        MaskedDefence(cleanser, PatchCleanser(margin=lead), CLEANSER),
        MaskedDefence(cleanser, JuryDetection(margin=lead), AGREEMENT),
    ]
    tried = [*settings(shipped.image, shipped.patch, shipped.align, margin=margin)]
    for own in settings(shipped.image, shipped.patch, shipped.align, Guarantee.DETECTION, margin):
        tried.append(MaskedDefence(own.cover, own.rule, f"detection: {own.name}"))
    return [*beside, *tried]


def certify(options: argparse.Namespace) -> None:
    choices = Choices(options.model, options.weights, ["zoom"], device=options.device)
    dataset = photos_for(options.model, options.data[0]).spread(options.images)
    classifier = choices.classifier()
    (shipped,) = choices.covers(classifier.grid)
    engine = Engine(classifier, engine_covers(defences(shipped, Margin())))
    margin = photo_margin(engine, dataset)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    certify_run(engine, dataset, defences(shipped, margin), options.out)


def read(paths: list[str]) -> None:
    for path in paths:
        found = {own.defence: own for own in figures(read_run(Path(path)))}
        print(f"\n{Path(path).stem}: {found[CLEANSER].images} photos, clean {100 * found[BARE].clean.value:.1f}")
        for own in found.values():
            if own.certified is not None:
                print(_line(own, found[AGREEMENT if own.defence.startswith("detection") else CLEANSER]))


def _line(own: Figures, beside: Figures) -> str:
    proved = f"{own.proved_passes:7.1f}" if own.proved_passes is not None else "      –"
    certified = 100 * own.certified.value if own.certified else 0.0
    ahead = certified - (100 * beside.certified.value if beside.certified else 0.0)
    clean, more = 100 * own.clean.value, 100 * (own.clean.value - beside.clean.value)
    costs = f"answer {own.answer_passes:6.1f}  proof {proved}"
    return f"{own.defence:60} {certified:5.1f} {ahead:+5.1f}  clean {clean:5.1f} {more:+5.1f}  {costs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("certify", "read"))
    parser.add_argument("data", nargs="+")
    parser.add_argument("--model")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--images", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "read":
        read(options.data)
    else:
        certify(options)


if __name__ == "__main__":
    main()
