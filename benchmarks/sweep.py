"""One sweep: runs the command lines of docs/appendix/runs.md with one version of the code, several at a time.

    python -m benchmarks.sweep IMAGENET=imagenet.csv CIFAR10=cifar-10-batches-py IMAGENETTE=imagenette-val \
        --models FOLDER --out runs/reproduce --lanes 4

FOLDER has the weights, ``NAME.safetensors``. A command whose photos or weights are not there is named and left out.
With ``--part 10`` a tenth of the photos is run, some of those of the whole run: enough to see whether this version, on
this machine, comes to the verdicts in results/reproduce.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/appendix/runs.md"
START = "    certmask reproduce "
RUN, FAILED, LEFT = "run", "failed", "left out"


@dataclass(frozen=True)
class Command:
    """Arguments of ``certmask`` and the files that they name."""

    words: tuple[str, ...]
    files: tuple[Path, ...]

    def is_ready(self) -> bool:
        return all(file.exists() for file in self.files)


def commands(page: str) -> list[str]:
    """The command lines of a page that run something, without their first word."""
    found = [line for line in page.splitlines() if line.startswith(START) and " --data " in line]
    return [line.removeprefix("    certmask ") for line in found]


def filled(line: str, models: Path, photos: Mapping[str, str], part: int = 1) -> Command:
    """A command line with paths in place of capitals, on a tenth of its photos where ``part`` is 10."""
    words, files = line.split(), []
    for number, (option, value) in enumerate(pairwise(words), start=1):
        name, _, place = value.partition("=")
        if option == "--data":
            files.append(Path(photos.get(place, place)))
            words[number] = f"{name}={files[-1]}"
        elif option == "--model" and (place or value.endswith(".safetensors")):
            files.append(models / f"{name.removesuffix('.safetensors')}.safetensors")
            words[number] = f"{name}={files[-1]}" if place else str(files[-1])
        elif option in ("--images", "--few-images"):
            words[number] = str(max(1, int(value) // part))
    return Command(tuple(words), tuple(files))


def run(command: Command, out: Path, until: float) -> str:
    """Run a command where it is ready and not too late for it; what became of it, in a word."""
    said, began = " ".join(command.words), time.time()
    if not command.is_ready():
        print(f"left out, without photos or weights: {said}", flush=True)
        return LEFT
    if began > until:
        print(f"left out, too late: {said}", flush=True)
        return LEFT
    done = subprocess.run([sys.executable, "-m", "certmask", *command.words, "--out", str(out)], check=False)
    print(f"{time.time() - began:.0f} s, exit {done.returncode}: {said}", flush=True)
    return FAILED if done.returncode else RUN


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", nargs="+", help="NAME=SOURCE for the names in capitals")
    parser.add_argument("--commands", type=Path, default=PAGE, help="a page with command lines")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lanes", type=int, default=1, help="so many commands at a time")
    parser.add_argument("--part", type=int, default=1, help="10: a tenth of the photos")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which nothing more is begun")
    options = parser.parse_args()
    photos, until = dict(one.split("=", 1) for one in options.photos), time.time() + options.seconds
    lines = commands(options.commands.read_text(encoding="utf-8"))
    found = [filled(line, options.models, photos, options.part) for line in lines]
    with ThreadPoolExecutor(options.lanes) as lanes:
        became = Counter(lanes.map(lambda command: run(command, options.out, until), found))
    print(", ".join(f"{became[word]} {word}" for word in (RUN, FAILED, LEFT)))
    return int(became[FAILED] > 0)


if __name__ == "__main__":
    sys.exit(main())
