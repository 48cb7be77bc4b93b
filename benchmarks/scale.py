"""Measures `certmask certify --engine ray` beside the plain engine on one machine, and writes one JSON file.

    python -m benchmarks.scale --part engines --out results/speed/scale-engines.json    200 photos on the same cores
    python -m benchmarks.scale --part memory  --out results/speed/scale-memory.json     10,000 tiny photos

Every run is a process of its own, from the command to its end: what it takes to start Ray and to load the model counts.
Rows of all runs are compared. Runs of all kinds alternate, and the machine's load is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import mode
from typing import Any

from PIL import Image

from certmask.backends.devices import device_name
from certmask.data import CIFAR10
from certmask.results.file import provenance, read_results

Record = dict[str, Any]
COMMAND = (sys.executable, "-c", "from certmask.cli import main; main()", "certify")


def known(out: Path) -> dict[str, Record]:
    return {row["image"]: {key: row[key] for key in row if key != "seconds"} for row in read_results(out)[1]}


def noisy_photos(root: Path, count: int, side: int) -> Path:
    """Photos of smooth noise in ten class folders."""
    chance = random.Random(0)
    for number in range(count):
        path = root / CIFAR10[number % 10] / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (8, 8), chance.randbytes(192)).resize((side, side), Image.Resampling.BICUBIC).save(path)
    return root


def engines(folder: Path, photos: int, turns: int) -> Iterator[Record]:
    """The plain engine on some cores, and Ray with a worker on each of them: on all cores, and on one; turn by turn.

    Beside it the ceiling of what a second core gives: plain engines of a thread each side by side, with a shard of the
    photos for each, against one alone.
    """
    cores, data = os.cpu_count() or 1, noisy_photos(folder / "photos", photos, 32)
    options = ("--model", "resnet26-cifar10", "--rule", "patchcleanser", "--backend", "torch", "--margin", "0.0001")
    runs = []
    for turn in range(turns):
        files = []
        for count in (cores, 1):
            files += [folder / f"{name}-{count}-{turn}.jsonl" for name in ("here", "ray")]
            plain = watched(data, files[-2], *options, threads=count)
            by_ray = watched(data, files[-1], *options, "--engine", "ray", "--workers", str(count), workers=count)
            runs.append({"engine": f"here {count}", "threads": count, **_times(plain)})
            runs.append({"engine": f"ray {count}", "workers": count, **_times(by_ray)})
        runs.append({"engine": "shards", "shards": cores, **sharded(data, folder / f"shard-{turn}", cores, *options)})
        if any(known(file) != known(files[0]) for file in files):
            raise SystemExit("expected the same rows from every engine, got others")
        yield {
            "options": options,
            "runs": runs,
            "overhead": ratio(runs, f"ray {cores}", f"here {cores}") - 1,
            "overhead_on_one_core": ratio(runs, "ray 1", "here 1") - 1,
            "speedup": ratio(runs, "ray 1", f"ray {cores}", "working_seconds"),
            "speedup_with_start": ratio(runs, "ray 1", f"ray {cores}"),
            "ceiling": ratio(runs, "here 1", "shards", "working_seconds"),
        }


def _times(run: Record) -> Record:
    return {key: run[key] for key in run if key != "driver_memory"}


def sharded(data: Path, out: Path, count: int, *options: str) -> Record:
    """Plain engines side by side, with a shard of the photos each; their times are those of the last to end."""
    shards = [(f"{number}/{count}", out.with_suffix(f".{number}.jsonl")) for number in range(1, count + 1)]
    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(lambda shard: watched(data, shard[1], *options, "--shard", shard[0]), shards))
    sums = {key: sum(run[key] for run in done) for key in ("photos", "passes")}
    return {**sums, **{key: max(run[key] for run in done) for key in ("seconds", "working_seconds", "load")}}


def watched(data: Path, out: Path, *options: str, threads: int = 1, workers: int = 1) -> Record:
    """A run, with the time from its first row to its last, and the driver's memory whenever there are more rows."""
    start, memory = time.perf_counter(), list[tuple[int, int]]()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "COLUMNS": "160"}
    process = subprocess.Popen(
        [*COMMAND, str(data), *options, "--out", str(out)], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    moments: list[tuple[float, int]] = []
    while process.poll() is None:
        rows = max(out.read_bytes().count(b"\n") - 1, 0) if out.exists() else 0
        if rows and (not moments or rows > moments[-1][1]):
            moments.append((time.perf_counter(), rows))
            memory.append((rows, resident(process.pid)))
        time.sleep(0.2)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(process.stdout.read() if process.stdout else "")
    found = read_results(out)[1]
    working = (moments[-1][0] - moments[0][0]) * len(found) / (moments[-1][1] - _done(moments, workers))
    return {
        "photos": len(found), "passes": sum(row["passes"] for row in found), "seconds": seconds,
        "working_seconds": working, "load": os.getloadavg()[0], "driver_memory": memory[:: max(len(memory) // 40, 1)],
    }  # fmt: skip


def _done(moments: Sequence[tuple[float, int]], workers: int) -> int:
    """Photos that were as good as done when the first rows were seen: a block of every worker."""
    block = mode(later[1] - earlier[1] for earlier, later in pairwise([(0.0, 0), *moments]))
    return max(moments[0][1], workers * block)


def resident(process: int) -> int:
    """Bytes of memory that a process has to itself (files and what it shares with others left out)."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def memory(folder: Path, photos: int, _turns: int) -> Iterator[Record]:
    """Many tiny photos: whether the driver's memory grows with the rows that it has written."""
    data = noisy_photos(folder / "photos", photos, 16)
    options = ("--model", "resnet26-cifar10", "--rule", "zoom-detection", "--levels", "2", "--margin", "0.0001")
    run = watched(data, folder / "run.jsonl", *options, "--backend", "torch", "--engine", "ray")
    held = [bytes_ for rows, bytes_ in run["driver_memory"] if rows >= photos // 10 and bytes_]
    yield {"options": options, "runs": [run], "growth_bytes": held[-1] - held[0], "largest_bytes": max(held)}


def ratio(runs: list[Record], above: str, below: str, key: str = "seconds") -> float:
    """Of the best times of two kinds of run: what else the machine did, they did least beside it."""
    best = {kind: min(run[key] for run in runs if run["engine"] == kind) for kind in (above, below)}
    return float(best[above] / best[below])


PARTS = {"engines": (engines, 200), "memory": (memory, 10_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--photos", type=int)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    import ray
    import torch

    measure, photos = PARTS[asked.part]
    versions = {**provenance(), "ray": ray.__version__}
    about = {"part": asked.part, "device": device_name(torch.device("cpu")), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        for found in measure(Path(folder), asked.photos or photos, asked.turns):
            asked.out.write_text(json.dumps({**about, "versions": versions, **found}, indent=1) + "\n")
            print({key: value for key, value in found.items() if key != "runs"}, flush=True)


if __name__ == "__main__":
    main()
