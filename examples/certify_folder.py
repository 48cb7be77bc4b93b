"""Certify a folder of photos from Python: python examples/certify_folder.py [FOLDER]

FOLDER holds one folder per class; without it, photos that come with the package foolbox. The results file is such as
``certmask certify`` writes: killed at any moment, the run goes on when started again; ``certmask table`` reads it.
"""

import sys
from pathlib import Path

import certmask as cm
from certmask.certification import recorded, run_margin
from certmask.zoo import class_aliases, framing_of

MODEL = "resnet26-cifar10"  # or a name that timm knows, or a checkpoint of yours that `certmask train` wrote
IMAGES = 8  # evenly spaced, so that no class is favoured; None takes all


def main(source: str = "demo-cifar10") -> None:
    classifier = cm.load_classifier(MODEL)  # device="cuda" where there is one
    photos = cm.load_dataset(source, class_aliases(classifier), framing_of(MODEL)).spread(IMAGES)
    out = Path("runs", f"{Path(source).name}.jsonl")

    cover = cm.patchcleanser_cover(classifier.size, cm.Patch(5, 5), per_axis=3)
    engine = cm.Engine(classifier, [cover])
    # By so much a label must lead in every vote that a proof rests on: more than the order of summing can change.
    margin = run_margin(engine, photos, recorded(out)[0])[0].probability
    # All defences look at the same votes; each pass is made once.
    defences = [
        cm.MaskedDefence(cover, cm.Undefended(), "undefended"),
        cm.MaskedDefence(cover, cm.JuryDetection(margin=margin), "jury detection"),
        cm.MaskedDefence(cover, cm.PatchCleanser(margin=margin), "PatchCleanser"),
    ]
    cm.certify_run(engine, photos, defences, out)

    for found in cm.figures(cm.read_run(out)):  # every figure that tables and reports show
        print(f"{found.defence}: {found.clean.percent} % answered rightly with {found.answer_passes:.0f} passes each")
        if found.certified:
            print(f"  certified {found.guarantee.value}: {found.certified.percent} % of {found.images} photos")
    print(f"{defences[-1].threat.on(defences[-1].image)}; saved in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
