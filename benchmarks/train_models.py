"""Trains the models of docs/models.md on one GPU, several at a time; the photos are read once and shared.

    python -m benchmarks.train_models --imagenette FOLDER --cifar FOLDER --weights FOLDER --out FOLDER \
        --lanes deit-none,deit-random deit-greedy resnet50-random

FOLDER of Imagenette holds ``train`` and ``val``; that of CIFAR-10 the python batches; that of the weights
``deit_tiny_patch16_224.safetensors`` and ``resnet50_v1.safetensors`` (ImageNet-1k). A lane trains its models one after
the other, lanes run side by side. Every job is what ``certmask train --crop 1`` does with the same options.
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

from certmask.data import class_folders, load_dataset
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


DEIT = {"rate": 0.001}
RESNET = {"rate": 0.01}
SCRATCH = {"epochs": 20, "batch": 128, "schedule": "cosine", "warm_up": 3.0, "zoom": 0.5, "smoothing": 0.1}
SCRATCH_SGD = {**SCRATCH, "rate": 0.1, "weight_decay": 5e-4}
SCRATCH_ADAM = {**SCRATCH, "rate": 0.001, "weight_decay": 0.05, "optimizer": "adamw"}
CIFAR = {"epochs": 50, "batch": 512, "rate": 0.3, "schedule": "cosine", "warm_up": 5.0, "shift": 4,
         "weight_decay": 5e-4}  # fmt: skip
CIFAR_TUNE = {**CIFAR, "epochs": 8, "rate": 0.05, "warm_up": 0.0}
CIFAR_DEIT = {"rate": 0.003, "epochs": 4, "decay_every": 3, "batch": 128}

JOBS = {
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


def size_of(job: Job) -> tuple[int, int]:
    return (32, 32) if "cifar" in job.model else (224, 224)


def read(options: argparse.Namespace, job: Job) -> tuple[Lessons, Lessons]:
    """Training and held-out photos of a job; Imagenette's are 224×224 already and are not cropped."""
    root = Path(options.imagenette if job.data == "imagenette" else options.cifar)
    sources = (str(root / "train"), str(root / "val")) if job.data == "imagenette" else (f"{root}:train", str(root))
    names = [(c,) for c in class_folders(sources[0])]
    sets = [load_dataset(source, names, job.crop) for source in sources]
    lessons, held_out = (read_lessons(d, size_of(job), lambda _: None) for d in sets)
    return lessons, held_out


def train(name: str, options: argparse.Namespace, lessons: Lessons, held_out: Lessons) -> None:
    job, folder = JOBS[name], Path(options.out)
    recipe = Recipe(**{"epochs": 10, **job.recipe, **({"epochs": options.epochs} if options.epochs else {})})
    source = f"{options.cifar}:train" if job.data == "cifar" else f"{options.imagenette}/train"
    name_or_file = str(folder / job.after / "model.safetensors") if job.after else job.model
    weights = Path(options.weights) / f"{job.weights}.safetensors" if job.weights else None
    model, card = starting_point(name_or_file, class_folders(source), size_of(job), weights=weights, seed=recipe.seed)
    start = card.data["start"] + (" (ImageNet-1k)" if weights else "")
    card = replace(card, sha256="", data={"start": start})
    side = size_of(job)[0]
    exam = Exam(Patch(round(side / 7), round(side / 7)), options.images or job.images, options.precision)
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
    return f"{JOBS[name].data} {size_of(JOBS[name])}"


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
