"""Examines a trained network on the photos of reported figures: its card's questions, with more masks and views.

    python -m benchmarks.examine models/mine/model.safetensors IMAGENETTE/val --patch 32 --views plain,mirror --out FILE

One mask, two masks (PatchCleanser's 6×6, and the same on the network's tokens), zoom as shipped: a results file.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.train_models import unreported
from certmask.certification import certify_run, photo_margin
from certmask.covers import patchcleanser_cover
from certmask.data import load_dataset
from certmask.defences import AnyDefence, MaskedDefence, engine_covers
from certmask.engine import Engine
from certmask.identity import token_side
from certmask.rules import PatchCleanser
from certmask.threat import Patch
from certmask.training.course import MASKS_PER_AXIS, questions
from certmask.training.recipe import Recipe
from certmask.votes import Margin
from certmask.zoo import load_checkpoint, load_classifier

GRID = "patchcleanser, token grid"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("photos")
    parser.add_argument("--patch", type=int, required=True)
    parser.add_argument("--views", default="plain")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--choosing", action="store_true", help="photos that no figure is reported for")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    began = time.time()
    classifier = load_classifier(
        options.model, device=options.device, precision=options.precision, views=tuple(options.views.split(","))
    )
    classes = load_checkpoint(Path(options.model))[1].classes
    dataset = load_dataset(options.photos, [(name,) for name in classes], 1.0)
    dataset = (unreported(dataset) if options.choosing else dataset).spread(options.images)
    patch = Patch(options.patch, options.patch)
    asked = questions(Recipe(), classifier, patch)
    tokens = token_side(classifier.model, classifier.size)

    def defences(margin: Margin) -> list[AnyDefence]:
        found = list(asked.defences(margin))
        if tokens > 1:
            cover = patchcleanser_cover(classifier.size, patch, MASKS_PER_AXIS, align=tokens)
            found.append(MaskedDefence(cover, PatchCleanser(margin=margin.probability), GRID))
        return found

    engine = Engine(classifier, engine_covers([own for own in defences(Margin()) if isinstance(own, MaskedDefence)]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    certify_run(engine, dataset, defences(photo_margin(engine, dataset)), options.out)
    print(f"{options.out} in {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
