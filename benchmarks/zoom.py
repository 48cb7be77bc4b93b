"""How fast single defences answer and prove, beside the network alone, all in one process and on the same photos.

python -m benchmarks.zoom DATA --model deit_tiny_patch16_224 --weights FILE --out results/speed/zoom-h200.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.plain_loop import certified, two_mask_labels
from certmask.backends.arithmetic import float32_mode
from certmask.backends.devices import device_name
from certmask.classifier import Classifier
from certmask.cli.choices import photos_for
from certmask.covers import default_cover, patchcleanser_cover, zoom_cover
from certmask.covers.default import default_patch
from certmask.defences import MaskedDefence, engine_covers, examine
from certmask.engine import Engine
from certmask.results.file import provenance
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser
from certmask.threat import Size
from certmask.zoo import load_classifier, load_model

Record = dict[str, Any]


def defences(image: Size) -> list[MaskedDefence]:
    """Zoom as shipped, its cheapest form, detection, and PatchCleanser, as published."""
    patch = default_patch(image)
    zoom, coarse = default_cover(image, patch), zoom_cover(image, patch, (3, 6))
    return [
        MaskedDefence(zoom, JuryRecovery(), "zoom"),
        MaskedDefence(coarse, JuryRecovery(thresholds=0.1, claim_thresholds=0.1), "zoom 3-6, 0.1"),
        MaskedDefence(zoom, JuryDetection(), "zoom detection"),
        MaskedDefence(patchcleanser_cover(image, patch, 6), PatchCleanser(), "PatchCleanser 6×6"),
    ]


def timed(engine: Engine, images: Sequence[Tensor], labels: Sequence[int], defence: MaskedDefence) -> Record:
    """One run over all photos."""
    begin = time.perf_counter()
    found = list(examine(engine, images, labels, [defence]))
    seconds, passes = time.perf_counter() - begin, sum(finding.passes for finding in found)
    certified = sum(bool(finding.value[0].certified) for finding in found)
    record = {"defence": defence.name, "seconds": seconds, "passes": passes, "certified": certified}
    return {**record, "photos_per_second": len(images) / seconds, "passes_per_second": passes / seconds}


def plain_loop(model: nn.Module, images: Sequence[Tensor], labels: Sequence[int], classifier: Classifier) -> Record:
    """PatchCleanser's certificate by the loop that peers run, on the same photos."""
    pixels = torch.stack(list(images))
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (classifier.mean, classifier.std))
    cover = patchcleanser_cover(classifier.size, default_patch(classifier.size), 6)
    model = model.to(classifier.device)
    with float32_mode(classifier.device, tf32=False):
        begin = time.perf_counter()
        table = two_mask_labels(model, (pixels - mean) / std, cover, classifier.device)
        seconds = time.perf_counter() - begin
    found = certified(table, torch.tensor(labels))
    record = {"defence": "plain loop, PatchCleanser 6×6", "photos": len(pixels), "certified": int(found.sum())}
    return {**record, "seconds": seconds, "photos_per_second": len(pixels) / seconds}


def network_alone(engine: Engine, seconds: float = 3.0) -> float:
    """Passes per second of full batches without any rule."""
    forward, device = engine.forward, engine.classifier.device
    slots, sets = np.zeros(forward.batch, dtype=np.int64), np.arange(forward.batch)[:, None] % len(forward.masks)
    begin, batches = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(20 if device.type == "cuda" else 1):
            forward(slots, sets)
            batches += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
    return batches * forward.batch / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--images", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--plain", type=int, default=0, help="so many of the photos through the plain loop as well")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classifier = load_classifier(options.model, options.weights, device=device)
    dataset = photos_for(options.model, options.data).spread(options.images)
    images, labels = list(dataset.tensors(classifier.size)), [sample.label for sample in dataset.samples]
    every = defences(classifier.size)
    engine = Engine(classifier, engine_covers(every))
    engine.fingerprint()
    rows = []
    for _ in range(options.repeat):
        for defence in every:
            rows.append(timed(engine, images, labels, defence))
            print(rows[-1], flush=True)
    alone = network_alone(engine)
    best = {d.name: max(r["passes_per_second"] for r in rows if r["defence"] == d.name) / alone for d in every}
    if options.plain:
        plain = dataset.spread(options.plain)
        truth = [sample.label for sample in plain.samples]
        model = load_model(options.model, options.weights).eval()
        rows.append(plain_loop(model, list(plain.tensors(classifier.size)), truth, classifier))
        print(rows[-1], flush=True)
    told = {"device": device_name(classifier.device), "model": classifier.describe(), "data": dataset.describe()}
    content = {**told, "versions": provenance(), "network_alone_passes_per_second": alone, "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**content, "best_share_of_network": best}, indent=1) + "\n", encoding="utf-8")
    print(f"network alone {alone:,.0f} passes/s; share of it {best}")


if __name__ == "__main__":
    main()
