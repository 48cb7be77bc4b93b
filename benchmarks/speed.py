"""Measures the engine against a plain loop, in one process on one device, and writes one JSON file.

    python -m benchmarks.speed --part models   --out results/speed-models.json      (a) and (b), per model
    python -m benchmarks.speed --part scaling  --out results/speed-scaling.json     cost against images and masks
    python -m benchmarks.speed --part real     --images FOLDER_OR_CSV …             (a) and (c) on labelled photos

(a) the plain loop; (b) certmask, same masks, all pairs, no early exit; (c) certmask as shipped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.plain_loop import certified, two_mask_labels
from certmask.backends.arithmetic import float32_mode
from certmask.backends.devices import device_name
from certmask.classifier import Classifier
from certmask.covers import Cover, patchcleanser_cover, spread_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine
from certmask.engine.engine import Program
from certmask.engine.margin import measured_margin
from certmask.results.file import provenance
from certmask.rules import PatchCleanser
from certmask.rules.rule import Asking
from certmask.threat import Patch
from certmask.votes import VoteStore
from certmask.zoo import DEFAULT_MODEL, framing_of, imagenet_names, imagenet_synsets, load_model
from certmask.zoo.timm_import import import_timm

PATCH = Patch(32, 32)
MODELS = ("vit_base_patch16_224", "resnet50", "deit_tiny_patch16_224", "tf_efficientnet_lite0")
Record = dict[str, Any]


def covers() -> dict[int, Cover]:
    """Covers of a 32×32 patch on 224×224 with 16, 36, 144 and 169 masks."""
    made = [
        patchcleanser_cover(224, PATCH, 4),
        patchcleanser_cover(224, PATCH, 6),
        patchcleanser_cover(224, PATCH, 12),
        spread_cover(224, PATCH, 64, 2),
    ]
    return {len(cover): cover for cover in made}


def timed(device: torch.device, work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result, with the device idle before and after."""
    synchronize(device)
    start = time.perf_counter()
    result = work()
    synchronize(device)
    return time.perf_counter() - start, result


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_peak(device: torch.device) -> float:
    """FLOP/s of a large bf16 matrix product on random data."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    repeats = 20
    seconds, _ = timed(device, lambda: [a @ b for _ in range(repeats)])
    return 2 * side**3 * repeats / seconds


def flops_per_image(name: str) -> int:
    """Floating-point operations of one pass; attention is unfused so that the counter sees its products."""
    timm = import_timm()
    timm.layers.set_fused_attn(False)
    model = timm.create_model(name, pretrained=False).eval()
    timm.layers.set_fused_attn(True)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.rand(1, 3, 224, 224))
    return int(counter.get_total_flops())


def everything(engine: Engine, cover: Cover) -> Program[bool]:
    """A program without early exit: all masks, all pairs, then the certificate of the undisturbed majority."""
    rule, pairs = PatchCleanser(), np.stack(np.triu_indices(len(cover), k=1), axis=1)

    def program(numbers: list[int], store: VoteStore) -> Asking[list[bool]]:
        votes = engine.votes(cover, store)
        ballot = votes.ballot
        yield votes.ask(np.concatenate([ballot.singles, ballot.pairs(pairs[:, 0], pairs[:, 1])])[None])
        singles = np.arange(len(cover))[:, None]
        labels = [int(votes.of(singles, place).mean(dim=0).argmax()) for place in range(len(numbers))]
        return list((yield from rule.certifying(votes, np.array(labels))))

    return program


def measure_all_pairs(classifier: Classifier, cover: Cover, images: Tensor, peak: float, flops: int) -> Record:
    """(b): passes per second of the engine on all pairs."""
    engine = Engine(classifier, [cover])
    warm, _ = timed(classifier.device, lambda: list(engine.run(images[:2], everything(engine, cover))))
    if classifier.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    sent = engine.forward.bytes_sent
    seconds, findings = timed(classifier.device, lambda: list(engine.run(images, everything(engine, cover))))
    passes = sum(finding.passes for finding in findings)
    memory = torch.cuda.max_memory_allocated() if classifier.device.type == "cuda" else None
    return {
        "model": classifier.name,
        "precision": classifier.precision,
        "batch": classifier.batch,
        "compiled": classifier.compiled,
        "masks": len(cover),
        "images": len(images),
        "passes": passes,
        "seconds": seconds,
        "warm_up_seconds": warm,
        "images_per_second": len(images) / seconds,
        "passes_per_second": passes / seconds,
        "share_of_matrix_peak": passes / seconds * flops / peak,
        "peak_memory_bytes": memory,
        "bytes_to_device": engine.forward.bytes_sent - sent,
    }


def measure_plain(model: nn.Module, name: str, cover: Cover, images: Tensor, device: torch.device) -> Record:
    """(a): passes per second of the plain loop."""
    model = model.to(device)
    normal = (images - 0.5) / 0.25
    two_mask_labels(model, normal[:1], patchcleanser_cover(224, PATCH, 2), device)
    seconds, _ = timed(device, lambda: two_mask_labels(model, normal, cover, device))
    passes = len(images) * (len(cover) + cover.pairs())
    return {"model": name, "masks": len(cover), "images": len(images), "passes": passes, "seconds": seconds,
            "passes_per_second": passes / seconds}  # fmt: skip


def part_models(device: torch.device, peak: float, options: argparse.Namespace) -> Record:
    """(a) and (b) for each model with 36 masks, all pairs, random weights and images."""
    rows = []
    generator = torch.Generator().manual_seed(0)
    for name in options.models or MODELS:
        model = import_timm().create_model(name, pretrained=False).eval()
        flops = flops_per_image(name)
        pictures = torch.rand(options.pictures, 3, 224, 224, generator=generator)
        plain = measure_plain(model, name, covers()[36], pictures[:16], device)
        classifier = Classifier(
            model, 224, mean=(0.5,) * 3, std=(0.25,) * 3, device=device, batch=options.batch, name=name
        )
        fast = measure_all_pairs(classifier, covers()[36], pictures, peak, flops)
        ratio = fast["passes_per_second"] / plain["passes_per_second"]
        rows.append({"flops_per_pass": flops, "plain": plain, "all_pairs": fast, "ratio": ratio})
        print(f"{name}: (a) {plain['passes_per_second']:.0f}/s, (b) {fast['passes_per_second']:.0f}/s = {ratio:.1f}×, "
              f"{100 * fast['share_of_matrix_peak']:.1f} % of the matrix peak", flush=True)  # fmt: skip
    return {"models": rows}


def part_scaling(device: torch.device, peak: float) -> Record:
    """(b) for one small model against the number of images and of masks."""
    model = import_timm().create_model("deit_tiny_patch16_224", pretrained=False).eval()
    flops = flops_per_image("deit_tiny_patch16_224")
    classifier = Classifier(model, 224, mean=(0.5,) * 3, std=(0.25,) * 3, device=device, name="deit_tiny_patch16_224")
    grid = [(16, 256), (16, 1024), (36, 64), (36, 256), (36, 1024), (144, 16), (144, 32), (169, 16), (169, 32)]
    rows = []
    for masks, count in grid:
        pictures = torch.rand(count, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        rows.append(measure_all_pairs(classifier, covers()[masks], pictures, peak, flops))
        print(f"{masks} masks, {count} images: {rows[-1]['seconds']:.2f} s, "
              f"{rows[-1]['passes_per_second']:.0f}/s", flush=True)  # fmt: skip
    return {"scaling": rows}


def part_real(device: torch.device, options: argparse.Namespace) -> Record:
    """(a) in fp32 and (c) in fp32 and bf16 on labelled photos: seconds, and whether the certified sets agree."""
    name, per_axis = options.model, options.per_axis
    model: Any = load_model(name, options.weights).eval()
    config = model.pretrained_cfg
    aliases = list(zip(imagenet_synsets(), imagenet_names(), strict=True))
    dataset = load_dataset(options.images, aliases, framing_of(name)).spread(options.count)
    pictures = torch.stack(list(dataset.tensors((224, 224))))
    labels = [sample.label for sample in dataset.samples]
    cover = patchcleanser_cover(224, PATCH, per_axis)
    rows: list[Record] = []
    sets = {}
    for precision in ("bf16", "fp32"):
        classifier = Classifier(model, 224, mean=tuple(config["mean"]), std=tuple(config["std"]), device=device,
                                precision=precision, backend=options.backend, name=name)  # fmt: skip
        engine = Engine(classifier, [cover])
        defence = MaskedDefence(cover, PatchCleanser())
        warm, _ = timed(device, lambda: list(examine(engine, pictures[:4], labels[:4], [defence])))  # noqa: B023
        seconds, findings = timed(device, lambda: list(examine(engine, pictures, labels, [defence])))  # noqa: B023
        margin = measured_margin(engine, list(pictures[:64]))
        sets[precision] = {f.number for f in findings if f.value[0].certified}
        rows.append({"engine": "certmask", "backend": options.backend, "precision": precision,
                     "batch": classifier.batch, "images": len(pictures), "seconds": seconds,
                     "warm_up_seconds": warm, "passes": sum(f.passes for f in findings),
                     "certified": len(sets[precision]), "measured_margin": margin})  # fmt: skip
        print(rows[-1], flush=True)
    mean, std = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    model, count = model.to(device), min(options.plain_count, len(pictures))
    normal = (pictures[:count] - mean) / std
    with float32_mode(device, tf32=False):
        seconds, table = timed(device, lambda: two_mask_labels(model, normal, cover, device))
    plain = set(certified(table, torch.tensor(labels[:count])).nonzero().flatten().tolist())
    passes = count * (len(cover) + cover.pairs())
    rows.append({"engine": "plain loop", "precision": "fp32", "batch": 16, "images": count, "seconds": seconds,
                 "passes": passes, "certified": len(plain)})  # fmt: skip
    rate = {row["precision"]: row["images"] / row["seconds"] for row in rows[:-1]}
    differs = {precision: sorted({n for n in found if n < count} ^ plain) for precision, found in sets.items()}
    result = {
        "model": name,
        "data": dataset.describe(),
        "masks": len(cover),
        "runs": rows,
        "speedup": {precision: images_per_second * seconds / count for precision, images_per_second in rate.items()},
        "differs_from_plain_loop": differs,
    }
    print({k: v for k, v in result.items() if k not in ("data", "runs")}, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("models", "scaling", "real"), required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", default="demo", help="labelled photos, for --part real")
    parser.add_argument("--count", type=int, default=None, help="only the first so many photos")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="for --part real")
    parser.add_argument("--weights", help="local checkpoint, for --part real")
    parser.add_argument("--backend", default="torch", help="torch or openvino, for --part real")
    parser.add_argument("--per-axis", type=int, default=6, help="masks per axis, for --part real")
    parser.add_argument("--plain-count", type=int, default=10**9, help="only so many photos for the plain loop")
    parser.add_argument("--models", nargs="*", help="timm names, for --part models")
    parser.add_argument("--batch", type=int, help="images per forward pass")
    parser.add_argument("--pictures", type=int, default=256, help="random images, for --part models")
    options = parser.parse_args()
    device = torch.device(options.device)
    peak = matrix_peak(device)
    print(f"{device_name(device)}: bf16 matrix peak {peak / 1e12:.1f} TFLOP/s", flush=True)
    if options.part == "models":
        result = part_models(device, peak, options)
    elif options.part == "scaling":
        result = part_scaling(device, peak)
    else:
        result = part_real(device, options)
    header = {"device": device_name(device), "matrix_peak_flops": peak, "versions": provenance()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**header, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
