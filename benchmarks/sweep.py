"""One sweep: runs the command lines of docs/appendix/runs.md with one version of the code, several at a time.

    python -m benchmarks.sweep IMAGENET=imagenet.csv CIFAR10=cifar-10-batches-py IMAGENETTE=imagenette-val \
        --models FOLDER --out runs/reproduce --lanes 4

FOLDER has the weights, ``NAME.safetensors``. A command whose photos or weights are not there is left out, or waited for
with ``--wait``. With ``--every 10`` a tenth of the photos is run, some of those of the whole run: enough to see whether
this version, on this machine, comes to the verdicts in results/reproduce.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/appendix/runs.md"
START = "    certmask reproduce "


@dataclass(frozen=True)
class Command:
    """Arguments of ``certmask`` and the files that they name."""

    words: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def ready(self) -> bool:
        return all(file.exists() for file in self.files)


def commands(page: str) -> list[str]:
    """The command lines of a page, without their first word."""
    return [line.removeprefix("    certmask ") for line in page.splitlines() if line.startswith(START)]


def filled(line: str, models: Path, photos: Mapping[str, str], every: int = 1) -> Command:
    """A command line with paths in place of capitals, on every so-manieth of its photos."""
    words, files = line.split(), []
    for number, (option, value) in enumerate(zip(words, words[1:], strict=False), start=1):
        name, _, own = value.partition("=")
        if option == "--data":
            files.append(Path(photos[own]))
            words[number] = f"{name}={photos[own]}"
        elif option == "--model" and (own or value.endswith(".safetensors")):
            files.append(models / f"{name.removesuffix('.safetensors')}.safetensors")
            words[number] = f"{name}={files[-1]}" if own else str(files[-1])
        elif option in ("--images", "--few-images"):
            words[number] = str(max(1, int(value) // every))
    return Command(tuple(words), tuple(files))


def run_all(waiting: Sequence[Command], options: argparse.Namespace) -> int:
    """Run commands in their order, ``lanes`` at a time, as soon as their files are there; how many failed."""
    left, lanes, failed, began = list(waiting), [], 0, time.time()
    while left or lanes:
        late = time.time() - began > options.seconds
        for own in [own for own in left if own.ready] if not late else []:
            if len(lanes) < options.lanes:
                left.remove(own)
                lanes.append((own, time.time(), started(own, options.out)))
        for lane in [lane for lane in lanes if lane[2].poll() is not None]:
            lanes.remove(lane)
            failed += lane[2].returncode != 0
            print(f"{time.time() - lane[1]:.0f} s, exit {lane[2].returncode}: {' '.join(lane[0].words)}", flush=True)
        if not lanes and (late or not options.wait) and not any(own.ready for own in left if not late):
            break
        time.sleep(0.2)
    for own in left:
        print(f"left out: {' '.join(own.words)}")
    return failed


def started(own: Command, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "certmask", *own.words, "--out", str(out)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", nargs="+", help="NAME=SOURCE for the names in capitals")
    parser.add_argument("--commands", type=Path, default=PAGE, help="a page with command lines")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth photo")
    parser.add_argument("--wait", action="store_true", help="for photos and weights that are not there yet")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which nothing more is begun")
    options = parser.parse_args()
    photos = dict(one.split("=", 1) for one in options.photos)
    lines = commands(options.commands.read_text(encoding="utf-8"))
    sys.exit(run_all([filled(line, options.models, photos, options.every) for line in lines], options) > 0)


if __name__ == "__main__":
    main()
