"""A table and figures of scale.md: what benchmarks/scale.py measured, and what certifying ImageNet would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiment_tables import lined

IMAGENET = 50_000
MIB = 2**20


def engines_table(path: Path) -> str:
    """Each run of one file of the benchmark."""
    content = json.loads(path.read_text())
    template = "{photos:,} | {passes:,} | {seconds:.0f}"
    rows = (
        f"{_engine(run)} | {template.format(**run)} | {_working(run)} | {run['load']:.1f}" for run in content["runs"]
    )
    versions = content["versions"]
    about = f"{content['device']}, {content['cores']} cores, torch {versions['torch']}, Ray {versions['ray']}"
    table = lined("engine | photos | passes | seconds in all | from first row to last | load of the machine", rows)
    return f"{about}\n\n{table}"


def _engine(run: dict[str, Any]) -> str:
    if "threads" in run:
        return f"here, {run['threads']} thread{'s' if run['threads'] != 1 else ''}"
    if "shards" in run:
        return f"here, {run['shards']} shards at once, 1 thread each"
    count = run.get("workers")
    return "ray" if count is None else f"ray, {count} worker{'s' if count != 1 else ''} of 1 thread"


def _working(run: dict[str, Any]) -> str:
    return f"{run['working_seconds']:.0f}" if "working_seconds" in run else "–"


def scale(folder: Path) -> dict[str, str]:
    """Figures inside the sentences of the page."""
    engines, memory = (json.loads((folder / f"scale-{part}.json").read_text()) for part in ("engines", "memory"))
    fast = json.loads((folder / "real-deit-tiny-h200.json").read_text())["runs"][0]
    each, rate = fast["passes"] / fast["images"], fast["passes"] / fast["seconds"]
    (many,) = memory["runs"]
    return {
        "overhead": f"{100 * engines['overhead']:+.0f}",
        "overhead on one core": f"{100 * engines['overhead_on_one_core']:+.0f}",
        "speedup": f"{engines['speedup']:.2f}",
        "ceiling": f"{engines['ceiling']:.2f}",
        "speedup with start": f"{engines['speedup_with_start']:.2f}",
        "growth": f"{memory['growth_bytes'] / MIB:+.0f}",
        "largest": f"{memory['largest_bytes'] / MIB:.0f}",
        "many": f"{many['photos']:,}",
        "each": f"{each:.0f}",
        "rate": f"{rate:,.0f}",
        "hours": f"{IMAGENET * each / rate / 3600:.2f}",
    }
