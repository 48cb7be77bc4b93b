"""Requests per second and latency of `certmask serve`, started as a user starts it, by the wall clock.

    python -m benchmarks.serve --out results/speed/serve-cpu.json

Clients in this process ask for the demo's photos in turn, each on connections of its own, one request after another.
They share the machine's cores with the service. Every answer about a photo must be the same as its first one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certmask.backends.devices import device_name
from certmask.cli.choices import photos_for
from certmask.results.file import provenance

Record = dict[str, Any]
MODEL, DATA, REQUESTS = "resnet26-cifar10", "demo-cifar10", 200
CLIENTS = (1, 4, 16)


@contextmanager
def service() -> Iterator[int]:
    """The port of a service in a process of its own."""
    program = (sys.executable, "-c", "from certmask.cli import main; main()", "serve", "--model", MODEL, "--port", "0")
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        where = next(line for line in process.stdout if line.startswith("serving on "))
        try:
            yield int(where.rpartition(":")[2])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    assert process.returncode == 0


def asked(port: int, photo: bytes) -> tuple[float, Record]:
    """Seconds until an answer was read, and the answer."""
    begin, connection = time.perf_counter(), HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/predict", photo, {"Content-Type": "application/octet-stream"})
    reply = connection.getresponse()
    content = json.loads(reply.read())
    connection.close()
    assert reply.status == 200, content
    return time.perf_counter() - begin, content


def measured(port: int, photos: Sequence[bytes], first: Sequence[Record], clients: int) -> Record:
    """So many requests by so many clients at once."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda number: asked(port, photos[number % len(photos)]), range(REQUESTS)))
    seconds, taken = time.perf_counter() - begin, [own for own, _ in found]
    assert all(answer == first[number % len(photos)] for number, (_, answer) in enumerate(found))
    median, late = np.percentile(taken, [50, 99])
    return {"clients": clients, "requests": REQUESTS, "seconds": seconds, "requests_per_second": REQUESTS / seconds,
            "latency_50": float(median), "latency_99": float(late),
            "passes": sum(answer["passes"] for _, answer in found)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    photos = [Path(str(sample.file())).read_bytes() for sample in photos_for(MODEL, DATA).samples if sample.file]
    rows = []
    with service() as port:
        first = [asked(port, photo)[1] for photo in photos]
        for clients in CLIENTS:
            row = measured(port, photos, first, clients)
            rows.append({**row, "load_average": os.getloadavg()[0]})
            print(rows[-1], flush=True)
    setting = {"model": MODEL, "data": DATA, "photos": len(photos), "defence": first[0]["defence"]}
    where = {"device": device_name(torch.device("cpu")), "cores": os.cpu_count(), "versions": provenance()}
    options.out.write_text(json.dumps({**where, **setting, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
