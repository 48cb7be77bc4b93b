"""Trains the models of docs/models.md on one GPU, several at a time; the photos are read once and shared.

    python -m benchmarks.train_models --imagenette FOLDER --cifar FOLDER --weights FOLDER --out FOLDER \
        --lanes deit-none,deit-random deit-greedy resnet50-random

FOLDER of Imagenette holds ``train`` and ``val``; that of CIFAR-10 the python batches; that of the weights
``deit_tiny_patch16_224.safetensors`` and ``resnet50_v1.safetensors`` (ImageNet-1k). A lane trains its models one after
the other, lanes run side by side. Every job is what ``certmask train --crop 1`` does with the same options.

The jobs are in training_jobs.py. Those named ``choose-…`` are for choosing a recipe: examined on photos that no figure
is reported for. Of Imagenette these are validation photos other than the reported ones; of CIFAR-10 every tenth
training photo, not learnt then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.training_jobs import JOBS, Job
from certmask.data import Dataset, class_folders, load_dataset
from certmask.threat import Patch
from certmask.training import Exam, Lessons, Recipe, Teachers, read_lessons, starting_point, train_and_examine


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
        return [train, unreported(held_out)]
    kept = tuple(sample for number, sample in enumerate(train.samples) if number % 10)
    return [replace(train, samples=kept), replace(train, samples=train.samples[::10]).spread(1000)]


def unreported(held_out: Dataset) -> Dataset:
    """A thousand photos of a validation set, none of them among the thousand that figures are reported for."""
    return held_out.without(frozenset(sample.name for sample in held_out.spread(1000).samples)).spread(1000)


def train(name: str, options: argparse.Namespace, lessons: Lessons, held_out: Lessons) -> None:
    job, folder = JOBS[name], Path(options.out)
    asked = {"epochs": options.epochs} if options.epochs else {}
    recipe = Recipe(**{"seed": options.seed, **job.recipe, **asked})
    source = f"{options.cifar}:train" if job.data == "cifar" else f"{options.imagenette}/train"
    name_or_file = str(folder / job.after / "model.safetensors") if job.after else job.model
    weights = Path(options.weights) / f"{job.weights}.safetensors" if job.weights else None
    model, card = starting_point(name_or_file, class_folders(source), size_of(job), weights=weights, seed=recipe.seed)
    start = card.data["start"] + (" (ImageNet-1k)" if weights else "")
    card = replace(card, sha256="", data={"start": start})
    side = job.patch or round(size_of(job)[0] / 7)
    exam = Exam(Patch(side, side), options.images or job.images, job.precision or options.precision)
    compiled = job.compiled and options.device == "cuda"
    taught_by = [folder / name / "model.safetensors" for name in job.teachers]
    teachers = Teachers(taught_by, card.classes, options.device, compiled) if taught_by else None
    began = time.time()
    done = train_and_examine(model, card, recipe, lessons, held_out, exam, folder / name, device=options.device,
                             half=True, compiled=compiled, teachers=teachers,
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
    parser.add_argument("--seed", type=int, default=0)
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
