"""Table 1's nine defences at once, by several versions of the source in turn, beside the network alone.

    python -m benchmarks.at_once DATA --model deit_tiny_patch16_224 --weights FILE --source before=OLD/src \
        --source after=src --out results/speed/at-once-h200.json

Every version runs ``certmask reproduce table1`` in processes of its own, one after the other, ``--repeat`` times; the
passes and seconds are those of its meter (compiling left out). All versions must come to the same outcomes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoom import network_alone
from certmask.backends.devices import device_name
from certmask.covers import patchcleanser_cover
from certmask.engine import Engine
from certmask.results.file import provenance, read_results
from certmask.threat import Patch
from certmask.zoo import load_classifier

CALL = "from certmask.cli import main; main()"
Record = dict[str, Any]


def reproduced(source: Path, options: argparse.Namespace, folder: Path) -> tuple[Record, Record]:
    """Passes and seconds of one run, and the outcome of every defence on every photo."""
    named = f"{options.model}={options.weights}" if options.weights else options.model
    command = [
        sys.executable,
        "-c",
        CALL,
        "reproduce",
        "table1",
        "--model",
        named,
        "--data",
        f"imagenet={options.data}",
    ]
    command += ["--patch-share", "2", "--margin", "0", "--precision", options.precision]
    command += ["--batch", str(options.batch), "--out", str(folder)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(source)}, check=True, stdout=subprocess.DEVNULL)
    (meter,), (rows,) = folder.glob("table1/*.meter.json"), folder.glob("table1/*.jsonl")
    stretches = json.loads(meter.read_text())
    found = {row["image"]: row["defences"] for row in read_results(rows)[1]}
    return {key: sum(s[key] for s in stretches) for key in ("passes", "seconds")}, found


def model_alone(options: argparse.Namespace) -> float:
    """Passes per second of full batches without any rule."""
    classifier = load_classifier(options.model, options.weights, device="cuda" if torch.cuda.is_available() else "cpu",
                                 precision=options.precision, batch=options.batch)  # fmt: skip
    cover = patchcleanser_cover(classifier.size, Patch(32, 32), 6)
    engine = Engine(classifier, [cover])
    engine.forward.warm_up()
    return network_alone(engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--source", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows, outcomes = [], None
    for turn in range(options.repeat):
        for source in options.source:
            name, _, path = source.partition("=")
            with tempfile.TemporaryDirectory() as folder:
                cost, found = reproduced(Path(path).resolve(), options, Path(folder))
            outcomes = outcomes or found
            assert found == outcomes, "expected the same outcomes from every version"
            rows.append({"source": name, "turn": turn, **cost, "passes_per_second": cost["passes"] / cost["seconds"]})
            print(rows[-1], flush=True)
    best = {name: max(row["passes_per_second"] for row in rows if row["source"] == name)
            for name in dict.fromkeys(row["source"] for row in rows)}  # fmt: skip
    alone = model_alone(options)
    content = {
        "device": device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
        "versions": provenance(),
        "model": options.model,
        "photos": len(outcomes or ()),
        "defences": list(next(iter((outcomes or {"": {}}).values()))),
        "network_alone_passes_per_second": alone,
        "rows": rows,
        "best_share_of_network": {name: speed / alone for name, speed in best.items()},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: content[key] for key in ("network_alone_passes_per_second", "best_share_of_network")}))


if __name__ == "__main__":
    main()
