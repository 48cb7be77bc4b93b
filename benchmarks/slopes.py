"""Which slope suits Clipped BagNet on a network: each certifies the same photos, which are not to be reported.

    python -m benchmarks.slopes data/imagenette-choose --model bagnet17/model.safetensors --patch 32 --images 200 \\
        --out results/tuned/slopes.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

from certmask.certification import certify_run, photo_margin
from certmask.cli.choices import photos_for
from certmask.defences import LocalDefence
from certmask.deployed.local import local_fields
from certmask.engine import Engine
from certmask.evidence import ClippedBagNet
from certmask.results.columns import figures
from certmask.results.run import read_run
from certmask.zoo import load_classifier

SLOPES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("--model", required=True)
    options.add_argument("--patch", type=int, required=True)
    options.add_argument("--images", type=int, default=200)
    options.add_argument("--batch", type=int, default=None)
    options.add_argument("--device", default="cpu")
    options.add_argument("--out", type=Path, required=True)
    asked = options.parse_args()
    classifier = load_classifier(asked.model, device=asked.device, batch=asked.batch, local=True)
    engine, dataset = Engine(classifier, []), photos_for(asked.model, asked.data).spread(asked.images)
    margin, fields = photo_margin(engine, dataset).evidence, local_fields(classifier)
    defences = [LocalDefence(ClippedBagNet(asked.patch, own, margin), fields, f"slope {own:g}") for own in SLOPES]
    certify_run(engine, dataset, defences, asked.out)
    for line in figures(read_run(asked.out)):
        certified = line.certified.percent if line.certified else ""
        print(f"{line.defence}: clean {line.clean.percent}, certified {certified} % of {line.images}")


if __name__ == "__main__":
    main()
