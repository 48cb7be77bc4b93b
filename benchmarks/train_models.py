"""Trains the models of docs/models.md on one GPU, several at a time; the photos are read once and shared.

    python -m benchmarks.train_models --imagenette FOLDER --cifar FOLDER --weights FOLDER --out FOLDER \
        --lanes deit-none,deit-random deit-greedy resnet50-random

FOLDER of Imagenette holds ``train`` and ``val``; that of CIFAR-10 the python batches; that of the weights
``deit_tiny_patch16_224.safetensors`` and ``resnet50_v1.safetensors`` (ImageNet-1k). A lane trains its models one after
the other, lanes run side by side. Every job is what ``certmask train --crop 1`` does with the same options.

Jobs named ``choose-…`` are for choosing a recipe: examined on photos that no figure is reported for. Of Imagenette
these are validation photos other than the reported ones; of CIFAR-10 every tenth training photo, not learnt then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from certmask.data import Dataset, class_folders, load_dataset
from certmask.threat import Patch
from certmask.training import Exam, Lessons, Recipe, read_lessons, starting_point, train_and_examine


@dataclass(frozen=True)
class Job:
    """One model: on which photos, from which start, with which recipe."""

    data: str
    model: str
    recipe: dict[str, Any]
    weights: str | None = None
    after: str | None = None
    images: int = 1000
    compiled: bool = False
    crop: float = 1.0
    choosing: bool = False
    precision: str | None = None
    patch: int | None = None


DEIT = {"rate": 0.001}
RESNET = {"rate": 0.01}
SCRATCH = {"epochs": 20, "batch": 128, "schedule": "cosine", "warm_up": 3.0, "zoom": 0.5, "smoothing": 0.1}
SCRATCH_SGD = {**SCRATCH, "rate": 0.1, "weight_decay": 5e-4}
SCRATCH_ADAM = {**SCRATCH, "rate": 0.001, "weight_decay": 0.05, "optimizer": "adamw"}
CIFAR = {"epochs": 50, "batch": 512, "rate": 0.3, "schedule": "cosine", "warm_up": 5.0, "shift": 4,
         "weight_decay": 5e-4}  # fmt: skip
CIFAR_TUNE = {**CIFAR, "epochs": 8, "rate": 0.05, "warm_up": 0.0}
CIFAR_DEIT = {"rate": 0.003, "epochs": 4, "decay_every": 3, "batch": 128}

DEIT_START, DEIT_NAME = "deit_tiny_patch16_224", "deit_tiny_patch16_224"
LEVELS = (2, 3, 6, 12)
LONG = {"optimizer": "adamw", "rate": 1e-4, "weight_decay": 0.05, "schedule": "cosine", "warm_up": 1.0, "batch": 128}
AVERAGED = {**LONG, "average": 0.996}
PAIRED = {**AVERAGED, "cutout": "pairs", "patch": 32}
AGREED = {**PAIRED, "levels": LEVELS, "views": 2, "whole": True, "agreement": 0.5, "epochs": 10}
STRONG = {"zoom": 0.6, "colour": 0.3}

STEPS: dict[str, dict[str, Any]] = {
    "greedy": {**AVERAGED, "cutout": "greedy", "epochs": 5},
    "random": {**AVERAGED, "cutout": "random", "epochs": 35},
    "pairs-6": {**PAIRED, "epochs": 35},
    "pairs": {**PAIRED, "levels": LEVELS, "epochs": 35},
    "pairs-fill": {**PAIRED, "levels": LEVELS, "epochs": 35, "fill": "random"},
    "recall": {**PAIRED, "levels": LEVELS, "epochs": 35, "recall": 1.0},
    "worst": {**PAIRED, "levels": LEVELS, "epochs": 15, "tries": 4},
    "views": {**AGREED, "agreement": 0.0, "epochs": 12},
    "agreement": AGREED,
    "strong": {**AGREED, **STRONG},
    "pairs-strong": {**PAIRED, "levels": LEVELS, "epochs": 35, **STRONG},
}
"""Imagenette, DeiT-Tiny: some 105 passes for every photo, whatever the recipe (a backward pass counts as two)."""

SMALL = {**CIFAR, "epochs": 40, "warm_up": 4.0}
SMALL_PAIRS = {**SMALL, "cutout": "pairs", "patch": 5, "levels": LEVELS}
CIFAR_STEPS: dict[str, dict[str, Any]] = {
    "random": {**SMALL, "cutout": "random"},
    "random-first": {**SMALL, "cutout": "random", "epochs": 19},
    "greedy": {**CIFAR_TUNE, "epochs": 3, "cutout": "greedy"},
    "pairs-6": {**SMALL_PAIRS, "levels": ()},
    "pairs": SMALL_PAIRS,
    "average": {**SMALL_PAIRS, "average": 0.997},
    "recall": {**SMALL_PAIRS, "average": 0.997, "recall": 1.0},
    "whole": {**SMALL_PAIRS, "average": 0.997, "whole": True, "epochs": 20},
    "agreement": {**SMALL_PAIRS, "average": 0.997, "whole": True, "agreement": 0.5, "epochs": 17},
}
"""CIFAR-10 at 32×32: 120 passes for every photo; greedy goes on from a shorter random Cutout."""


def seeded(steps: dict[str, dict[str, Any]], job: Job, prefix: str, seeds: int = 3) -> dict[str, Job]:
    """A job for each step and seed."""
    return {
        f"{prefix}-{name}-{seed}": replace(job, recipe={"epochs": 10, **recipe, "seed": seed})
        for name, recipe in steps.items()
        for seed in range(seeds)
    }


ROW = {"schedule": "cosine", "warm_up": 1.0, "batch": 128, "cutout": "pairs", "levels": LEVELS, "average": 0.99}
ROW_SGD = {**ROW, "rate": 0.02, "weight_decay": 1e-4}
ROW_MLP = {**ROW, "rate": 0.001, "weight_decay": 0.05, "optimizer": "adamw", "warm_up": 3.0, "smoothing": 0.1}

JOBS = {
    "paper-resnetv2": Job("imagenette", "resnetv2_50", {**RESNET, "cutout": "random"}, images=500, compiled=True),
    "row-resnet50": Job("imagenette", "resnet50_v1", {**ROW_SGD, "patch": 32, "zoom": 0.6}, "resnet50_v1", images=500,
                        compiled=True),
    "row-resnetv2": Job("imagenette", "resnetv2_50", {**ROW_SGD, "rate": 0.05, "patch": 32, "epochs": 20, "zoom": 0.6},
                        "resnet50_v1", images=500, compiled=True),
    "row-resmlp": Job("imagenette", "resmlp_24_224", {**ROW_MLP, "patch": 32, "epochs": 40, "zoom": 0.4}, images=500,
                      compiled=True),
    "row-cifar-resnetv2": Job("cifar", "resnetv2_50", {**ROW_SGD, "rate": 0.05, "patch": 35, "epochs": 4, "shift": 28},
                              "resnet50_v1", images=500, compiled=True, patch=35),
    "row-cifar-resmlp": Job("cifar", "resmlp_24_224", {**ROW_MLP, "patch": 35, "epochs": 8, "shift": 28}, images=500,
                            compiled=True, patch=35),
    **seeded(STEPS, Job("imagenette", DEIT_NAME, {}, DEIT_START, choosing=True, images=800, compiled=True), "choose"),
    **seeded(CIFAR_STEPS, Job("cifar", "resnet26w2_cifar", {}, choosing=True, compiled=True), "choose-cifar"),
    "deit-none": Job("imagenette", "deit_tiny_patch16_224", {**DEIT, "cutout": "none"}, "deit_tiny_patch16_224"),
    "deit-random": Job("imagenette", "deit_tiny_patch16_224", {**DEIT, "cutout": "random"}, "deit_tiny_patch16_224"),
    "deit-greedy": Job("imagenette", "deit_tiny_patch16_224", {**DEIT, "cutout": "greedy"}, "deit_tiny_patch16_224"),
    "resnet50-none": Job("imagenette", "resnet50_v1", {**RESNET, "cutout": "none"}, "resnet50_v1", images=500),
    "resnet50-random": Job("imagenette", "resnet50_v1", {**RESNET, "cutout": "random"}, "resnet50_v1", images=500),
    "resnet50-greedy": Job("imagenette", "resnet50_v1", {**RESNET, "cutout": "greedy"}, "resnet50_v1", images=500),
    "resnetv2-random": Job("imagenette", "resnetv2_50", SCRATCH_SGD, images=500, compiled=True),
    "resmlp-random": Job("imagenette", "resmlp_24_224", SCRATCH_ADAM, images=500, compiled=True),
    "cifar-resnet-none": Job("cifar", "resnet26w2_cifar", {**CIFAR, "cutout": "none"}, images=2000, compiled=True),
    "cifar-resnet-random": Job("cifar", "resnet26w2_cifar", {**CIFAR, "cutout": "random"}, images=2000, compiled=True),
    "cifar-resnet-greedy": Job("cifar", "resnet26w2_cifar", {**CIFAR_TUNE, "cutout": "greedy"},
                               after="cifar-resnet-random", images=2000, compiled=True),
    "cifar-deit-none": Job("cifar", "deit_tiny_patch16_224", {**CIFAR_DEIT, "cutout": "none"}, "deit_tiny_patch16_224"),
    "cifar-deit-random": Job("cifar", "deit_tiny_patch16_224", {**CIFAR_DEIT, "cutout": "random"},
                             "deit_tiny_patch16_224"),
}  # fmt: skip


for _seed in range(3):
    JOBS[f"choose-cifar-greedy-{_seed}"] = replace(
        JOBS[f"choose-cifar-greedy-{_seed}"], after=f"choose-cifar-random-first-{_seed}"
    )


def size_of(job: Job) -> tuple[int, int]:
    return (32, 32) if "cifar" in job.model else (224, 224)


def read(options: argparse.Namespace, job: Job) -> tuple[Lessons, Lessons]:
    """Training and held-out photos of a job; Imagenette's are 224×224 already and are not cropped."""
    root = Path(options.imagenette if job.data == "imagenette" else options.cifar)
    sources = (str(root / "train"), str(root / "val")) if job.data == "imagenette" else (f"{root}:train", str(root))
    names = [(c,) for c in class_folders(sources[0])]
    sets = [load_dataset(source, names, job.crop) for source in sources]
    if job.choosing:
        sets = for_choosing(job, *sets)
    lessons, held_out = (read_lessons(d, size_of(job), lambda _: None) for d in sets)
    return lessons, held_out


def for_choosing(job: Job, train: Dataset, held_out: Dataset) -> list[Dataset]:
    """What is learnt, and photos for choosing, of which none is reported on."""
    if job.data == "imagenette":
        reported = frozenset(sample.name for sample in held_out.spread(1000).samples)
        return [train, held_out.without(reported).spread(1000)]
    kept = tuple(sample for number, sample in enumerate(train.samples) if number % 10)
    return [replace(train, samples=kept), replace(train, samples=train.samples[::10]).spread(1000)]


def train(name: str, options: argparse.Namespace, lessons: Lessons, held_out: Lessons) -> None:
    job, folder = JOBS[name], Path(options.out)
    recipe = Recipe(**{"epochs": 10, **job.recipe, **({"epochs": options.epochs} if options.epochs else {})})
    source = f"{options.cifar}:train" if job.data == "cifar" else f"{options.imagenette}/train"
    name_or_file = str(folder / job.after / "model.safetensors") if job.after else job.model
    weights = Path(options.weights) / f"{job.weights}.safetensors" if job.weights else None
    model, card = starting_point(name_or_file, class_folders(source), size_of(job), weights=weights, seed=recipe.seed)
    start = card.data["start"] + (" (ImageNet-1k)" if weights else "")
    card = replace(card, sha256="", data={"start": start})
    side = job.patch or round(size_of(job)[0] / 7)
    exam = Exam(Patch(side, side), options.images or job.images, job.precision or options.precision)
    began = time.time()
    done = train_and_examine(model, card, recipe, lessons, held_out, exam, folder / name, device=options.device,
                             half=True, compiled=job.compiled and options.device == "cuda",
                             progress=lambda entry: print(f"{name} {time.time() - began:.0f} s {entry}"))  # fmt: skip
    print(f"{name} done in {time.time() - began:.0f} s: {done.metrics}")


def lane(names: list[str], options: argparse.Namespace, photos: dict[str, tuple[Lessons, Lessons]]) -> int:
    """Train one after the other; one that fails does not stop the next."""
    failed = 0
    for name in names:
        try:
            train(name, options, *photos[key_of(name)])
        except Exception:
            traceback.print_exc()
            failed = 1
    return failed


def key_of(name: str) -> str:
    return f"{JOBS[name].data} {size_of(JOBS[name])} {JOBS[name].choosing}"


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("imagenette", "cifar", "weights", "out"):
        parser.add_argument(f"--{option}", default="")
    parser.add_argument("--lanes", nargs="+", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--images", type=int)
    options = parser.parse_args()
    lanes = [names.split(",") for names in options.lanes]
    torch.set_num_threads(1)  # a process that has used OpenMP threads must not fork
    began = time.time()
    photos: dict[str, tuple[Lessons, Lessons]] = {}
    for name in (name for names in lanes for name in names):
        if key_of(name) not in photos:
            photos[key_of(name)] = read(options, JOBS[name])
    print(f"photos read in {time.time() - began:.0f} s")
    children = []
    for names in lanes:
        child = os.fork()
        if not child:
            os._exit(lane(names, options, photos))
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main()
