"""Which zoom to ship: every setting that ``certmask tune`` tries, beside PatchCleanser, on photos for choosing.

    python -m benchmarks.shipped certify DATA --model NAME [--weights FILE] --out results/shipped/NAME.jsonl
    python -m benchmarks.shipped read results/shipped/*.jsonl.gz
    python -m benchmarks.shipped tuned results/shipped/NAME.jsonl.gz --passes 222 --out results/tuned/NAME.json

``read`` prints how far every setting is from PatchCleanser (or from the agreement of its masks) on each network, and
which one the rule of ``shipped`` takes; ``tuned`` writes the defence that ``certmask tune`` would take for one network.
The photos are not those that figures are reported for. The files without ``again`` were made before detection stopped
at the first contradiction: their passes to answer are those of a full look.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from certmask.certificate import Guarantee
from certmask.certification import certify_run, photo_margin
from certmask.cli.choices import Choices, photos_for
from certmask.covers import Cover, patchcleanser_cover
from certmask.defences import MaskedDefence, defence_from, engine_covers
from certmask.engine import Engine
from certmask.results.columns import Figures, figures
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, PatchCleanser, Undefended
from certmask.tuning import chosen, save_defence, settings
from certmask.votes import Margin

CLEANSER, AGREEMENT, BARE, DETECTION = "PatchCleanser 6×6", "6×6 agreement", "undefended", "detection: "
BESIDE = {Guarantee.RECOVERY: CLEANSER, Guarantee.DETECTION: AGREEMENT}


def defences(cover: Cover, margin: Margin) -> list[MaskedDefence]:
    """The undefended network, PatchCleanser and its masks' agreement, and every setting for recovery and detection."""
    cleanser, lead = patchcleanser_cover(cover.image, cover.patch, 6), margin.probability
    beside = [
        MaskedDefence(cleanser, Undefended(), BARE),
        MaskedDefence(cleanser, PatchCleanser(margin=lead), CLEANSER),
        MaskedDefence(cleanser, JuryDetection(margin=lead), AGREEMENT),
    ]
    tried = [*settings(cover.image, cover.patch, cover.align, margin=margin)]
    for own in settings(cover.image, cover.patch, cover.align, Guarantee.DETECTION, margin):
        tried.append(MaskedDefence(own.cover, own.rule, f"{DETECTION}{own.name}"))
    return [*beside, *tried]


def certify(options: argparse.Namespace) -> None:
    choices = Choices(options.model, options.weights, ["zoom"], device=options.device)
    dataset = photos_for(options.model, options.data[0]).spread(options.images)
    classifier = choices.classifier()
    (cover,) = choices.covers(classifier.grid)
    engine = Engine(classifier, engine_covers(defences(cover, Margin())))
    margin = photo_margin(engine, dataset)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    beside = (BARE, *BESIDE.values())
    every = [own for own in defences(cover, margin) if own.name in beside or re.search(options.only, own.name)]
    certify_run(engine, dataset, every, options.out)


def share(own: Figures) -> float:
    """Certified, in percent."""
    return 100 * own.certified.value if own.certified else 0.0


def shipped(networks: Sequence[dict[str, Figures]], guarantee: Guarantee) -> str:
    """Of the settings that cost fewer passes than what they stand beside on every network, to answer and to prove,
    the one whose lead in certificates, on the network where it is smallest, is the largest."""

    def ahead(name: str) -> float:
        return min(share(found[name]) - share(found[BESIDE[guarantee]]) for found in networks)

    def cheaper(name: str) -> bool:
        pairs = [(found[name], found[BESIDE[guarantee]]) for found in networks]
        return all(
            own.answer_passes < other.answer_passes and (own.proved_passes or 0) < (other.proved_passes or 0)
            for own, other in pairs
        )

    common = set.intersection(*(set(found) for found in networks))
    names = [n for n, own in networks[0].items() if own.guarantee is guarantee and n in common - {*BESIDE.values()}]
    return max(filter(cheaper, names), key=ahead)


def read(paths: Sequence[str]) -> None:
    networks = []
    for path in paths:
        found = {own.defence: own for own in figures(read_run(Path(path)))}
        networks.append(found)
        print(f"\n{Path(path).name}: {found[CLEANSER].images} photos, clean {100 * found[BARE].clean.value:.1f}")
        for own in found.values():
            if own.certified is not None:
                print(line(own, found[BESIDE[own.guarantee]]))
    for guarantee in BESIDE:
        print(f"\nto ship for {guarantee.value}: {shipped(networks, guarantee)}")


def line(own: Figures, beside: Figures) -> str:
    proved = f"{own.proved_passes:7.1f}" if own.proved_passes is not None else "      –"
    clean, more = 100 * own.clean.value, 100 * (own.clean.value - beside.clean.value)
    certified = f"{share(own):5.1f} {share(own) - share(beside):+5.1f}"
    passes = f"answer {own.answer_passes:6.1f}  proof {proved}"
    return f"{own.defence:60} {certified}  clean {clean:5.1f} {more:+5.1f}  {passes}"


def tuned(path: Path, passes: float, out: Path) -> None:
    run = read_run(path)
    names = [n for n in run.defences if n not in (BARE, *BESIDE.values()) and not n.startswith(DETECTION)]
    rows = tuple({**row, "defences": {name: row["defences"][name] for name in names}} for row in run.rows)
    header = {**run.header, "defences": {name: run.defences[name] for name in names}}
    taken = chosen(Run(run.name, run.path, run.digest, header, rows), passes).taken
    print(line(taken, next(own for own in figures(run) if own.defence == CLEANSER)))
    about = {"model": run.model, "budget": passes, "spent": "prove", "settings": names, "chosen_on": run.data}
    save_defence(out, defence_from(run.defences[taken.defence]), about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("certify", "read", "tuned"))
    parser.add_argument("data", nargs="+")
    parser.add_argument("--model")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--images", type=int)
    parser.add_argument("--only", default="", help="settings whose names match; all by default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--passes", type=float, default=222)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "certify":
        certify(options)
    elif options.what == "read":
        read(options.data)
    elif options.out is None:
        parser.error("expected --out with tuned, got none")
    else:
        tuned(Path(options.data[0]), options.passes, options.out)


if __name__ == "__main__":
    main()
