"""Zoom beside PatchCleanser and the old default on real photos: `python benchmarks/zoom.py NETWORK OUT [--images N]`.

Settings are chosen on one set of photos and reported on another. Expects the photos and weights where SETS says.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certmask.backends.devices import device_name
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.cli.choices import photos_for
from certmask.covers import patchcleanser_cover, spread_cover, zoom_cover
from certmask.covers.default import default_fold, default_mask
from certmask.data import Dataset
from certmask.defences import AnyDefence, MaskedDefence, engine_covers, examine
from certmask.engine import Engine
from certmask.results.file import provenance
from certmask.results.run import read_run
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Undefended
from certmask.threat import Patch
from certmask.tuning import affordable, chosen, settings
from certmask.zoo import load_classifier

IMAGENET = "data/imagenet-val-tune-600/imagenet-val-tune-600.csv", "data/imagenet-val-1000/imagenet-val-1000.csv"


@dataclass(frozen=True)
class Network:
    """A model, the photos for choosing and for reporting, and the side of the patch."""

    model: str
    weights: str | None
    choosing: str
    reporting: str
    patch: int


SETS = {
    "deit-tiny": Network("deit_tiny_patch16_224", "weights/deit_tiny_patch16_224.fp16.safetensors", *IMAGENET, 32),
    "resnet50": Network("resnet50_v1", "weights/resnet50_v1.fp16.safetensors", *IMAGENET, 32),
    "efficientnet-lite0": Network("efficientnet-lite0", None, *IMAGENET, 32),
    "imagenette": Network("deit_tiny-imagenette", None, "data/imagenette-choose", "data/imagenette-val", 32),
    "cifar10": Network("resnet26-cifar10", None, "data/cifar10-choose/cifar10-choose", "data/cifar10/cifar10-test", 5),
}


BUDGET = 250.0
"""Passes of a completed proof, on average, that a tuned defence may take."""
FIRST = 32
"""Photos on which settings that are too dear are found out."""
SHIPPABLE = (
    "zoom 2-3-6-12 replace 0.9,0.2,0.2",
    "zoom 2-3-6-12 replace 0.9,0.3,0.2",
    "zoom 2-3-6-12 replace 0.9,0.5,0.3",
    "zoom 3-6-12 replace 0.2",
)
"""Reported for every network, whatever is chosen for it: one of them is shipped."""


def compared(classifier: Classifier, patch: Patch) -> list[MaskedDefence]:
    """What zoom is held against, and zoom as it is shipped."""
    size, grid = classifier.size, classifier.grid
    align = grid if grid > 1 else None
    six = patchcleanser_cover(size, patch, 6)
    mask = default_mask(size, patch)
    old = spread_cover(size, patch, mask, default_fold(patch, mask))
    zoom = zoom_cover(size, patch, align=align)
    found = [
        MaskedDefence(six, Undefended(), "undefended"),
        MaskedDefence(six, PatchCleanser(), "PatchCleanser 6×6"),
        MaskedDefence(six, PatchCleanser(challenger=True), "PatchCleanser 6×6 challenger"),
        MaskedDefence(six, PatchCleanser(last_resort="bare"), "PatchCleanser 6×6 bare"),
        MaskedDefence(old, JuryRecovery(last_resort="majority"), "jury recovery k=4 (old default)"),
        MaskedDefence(six, JuryDetection(), "6×6 agreement"),
        MaskedDefence(zoom, JuryDetection(), "zoom detection"),
        MaskedDefence(zoom_cover(size, patch, (3, 6, 12), align), JuryDetection(), "zoom detection 3-6-12"),
        MaskedDefence(zoom, JuryRecovery(last_resort="majority"), "zoom majority"),
    ]
    if align:
        six_aligned = patchcleanser_cover(size, patch, 6, align=align)
        found.append(MaskedDefence(six_aligned, PatchCleanser(), "PatchCleanser 6×6 on tokens"))
    return found


def run(name: str, engine: Engine, dataset: Dataset, defences: Sequence[AnyDefence], out: Path) -> Path:
    """Certify and pack the results file."""
    begin = time.perf_counter()
    engine.fingerprint()
    compiled, begin = time.perf_counter() - begin, time.perf_counter()
    path = out / f"{name}.jsonl"
    _, rows = certify_run(engine, dataset, defences, path)
    seconds, passes = time.perf_counter() - begin, sum(row["passes"] for row in rows)
    print(f"{name}: {len(rows)} photos, {passes:,} passes, {seconds:.1f} s ({compiled:.1f} s to compile), "
          f"{passes / seconds:,.0f} passes/s", flush=True)  # fmt: skip
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


def speeds(engine: Engine, dataset: Dataset, defences: Sequence[MaskedDefence]) -> dict[str, Any]:
    """Photos and passes per second of single defences, to answer and prove, beside the network alone."""
    size, device = engine.classifier.size, engine.classifier.device
    labels, images = [sample.label for sample in dataset.samples], list(dataset.tensors(size))
    found: dict[str, Any] = {"photos": len(images), "device": device_name(device), "versions": provenance()}
    for defence in defences:
        found[defence.name] = []
        for _ in range(3):
            begin = time.perf_counter()
            findings = list(examine(engine, images, labels, [defence]))
            seconds, passes = time.perf_counter() - begin, sum(finding.passes for finding in findings)
            certified = sum(bool(finding.value[0].certified) for finding in findings)
            found[defence.name].append({"seconds": seconds, "passes": passes, "certified": certified})
            told = f"{len(images) / seconds:,.0f} photos/s, {passes / seconds:,.0f} passes/s"
            print(f"{defence.name}: {told}, {certified} certified", flush=True)
    forward, batches = engine.forward, 200 if device.type == "cuda" else 2
    slots, sets = np.zeros(forward.batch, dtype=np.int64), np.arange(forward.batch)[:, None] % len(forward.masks)
    begin = time.perf_counter()
    for _ in range(batches):
        forward(slots, sets)
    if device.type == "cuda":
        torch.cuda.synchronize()
    found["network_alone_passes_per_second"] = batches * forward.batch / (time.perf_counter() - begin)
    print(f"network alone: {found['network_alone_passes_per_second']:,.0f} passes/s", flush=True)
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("network", choices=SETS)
    asked.add_argument("out", type=Path)
    asked.add_argument("--images", type=int)
    asked.add_argument("--mirror", action="store_true", help="average over the mirror image, on photos for reporting")
    asked.add_argument("--old", action="store_true", help="with the old default, which takes many passes")
    asked.add_argument("--speed", action="store_true", help="time single defences, too")
    options = asked.parse_args()
    warnings.filterwarnings("ignore")
    network, name = SETS[options.network], options.network
    options.out.mkdir(parents=True, exist_ok=True)
    views = ("plain", "mirror") if options.mirror else ("plain",)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classifier = load_classifier(network.model, network.weights, device=device, views=views)
    patch, align = Patch(network.patch, network.patch), classifier.grid if classifier.grid > 1 else None
    tried = list(settings(classifier.size, patch, align))
    reporting = photos_for(network.model, network.reporting).spread(options.images)
    if options.mirror:
        some = [d for d in compared(classifier, patch) if "PatchCleanser" in d.name]
        some += [d for d in tried if d.name in SHIPPABLE]
        run(f"{name}-mirror", Engine(classifier, engine_covers(some)), reporting, some, options.out)
        return
    held = [d for d in compared(classifier, patch) if options.old or "old" not in d.name]
    engine = Engine(classifier, engine_covers([*held, *tried]))
    choosing = photos_for(network.model, network.choosing).spread(options.images)
    first = read_run(run(f"{name}-first", engine, choosing.spread(FIRST), tried, options.out))
    left = affordable(first, tried, BUDGET)
    choice = chosen(read_run(run(f"{name}-choosing", engine, choosing, left, options.out)), BUDGET)
    print("taken", choice.taken.defence, "front", [f.defence for f in choice.front], flush=True)
    kept = {choice.taken.defence, *SHIPPABLE}
    run(name, engine, reporting, [*held, *(d for d in tried if d.name in kept)], options.out)
    if options.speed:
        timed = [d for d in [*held, *tried] if d.name in (choice.taken.defence, *SHIPPABLE[:2], "PatchCleanser 6×6")]
        (options.out / f"{name}-speed.json").write_text(json.dumps(speeds(engine, reporting, timed)))


if __name__ == "__main__":
    main()
