"""Seconds from the start of `certmask app`, as a user starts it, to the page with its first result, by the wall clock.

    python -m benchmarks.app --out results/speed/app-cpu.json

Once with threads that sleep while they wait, as the page has them, and with torch once with threads that spin, as torch
has them where nobody says otherwise. How busy the machine was besides is told by its load when each start began.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import torch

from certmask.backends.devices import device_name
from certmask.results.file import provenance

Record = dict[str, Any]
STARTS = 3
SETTINGS = (("openvino", "PASSIVE"), ("torch", "PASSIVE"), ("torch", "ACTIVE"))
PROGRAM = (sys.executable, "-c", "from certmask.cli import main; main()", "app", "--port", "0")
ANSWER = "cm-label"
"""What the page calls its answer."""


@contextmanager
def started(backend: str, policy: str, folder: str) -> Iterator[tuple[str, int]]:
    """The address of a page that was just started, and its process."""
    own = {**os.environ, "OMP_WAIT_POLICY": policy}
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([*PROGRAM, "--backend", backend], cwd=folder, env=own, **told) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        where = next(found for line in process.stdout if (found := re.match(r"the page: (http\S+)", line)))
        try:
            yield where[1], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    assert process.returncode == 0


def measured(backend: str, policy: str) -> Record:
    """One start, up to the answer about the example photo, and the seconds of one processor that it took."""
    load, begin = os.getloadavg()[0], time.perf_counter()
    with TemporaryDirectory() as folder, started(backend, policy, folder) as (address, process):
        page = urlopen(f"{address}/config").read().decode()
        seconds = time.perf_counter() - begin
        told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    assert ANSWER in page
    worked = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    return {"backend": backend, "policy": policy, "seconds": seconds, "worked": worked, "load_average": load}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        for _ in range(STARTS):
            rows.append(measured(*setting))
            print(rows[-1], flush=True)
    where = {"device": device_name(torch.device("cpu")), "cores": os.cpu_count(), "versions": provenance()}
    options.out.write_text(json.dumps({**where, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
