"""Blocks, a plot and figures from what benchmarks/speed.py and its neighbours measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiment_tables import lined
from matplotlib.figure import Figure

from certmask.report.drawing import save_figure

Record = dict[str, Any]
GIB = 2**30
THREADS = {"PASSIVE": "sleep", "ACTIVE": "spin"}
"""What OpenMP's policies make of threads that have nothing to do."""
TABLES = {
    "models": (
        "model | (a) passes/s | (b) passes/s | (b)/(a) | of matrix peak | peak memory | sent per pass",
        "{all_pairs[model]} | {plain[passes_per_second]:,.0f} | {all_pairs[passes_per_second]:,.0f} | {ratio:.1f}× | "
        "{all_pairs[share_of_matrix_peak]:.1%} | {memory:.1f} GiB | {sent:,.0f} B",
    ),
    "scaling": (
        "masks | images | passes | seconds | passes/s | images/s | peak memory",
        "{masks} | {images:,} | {passes:,} | {seconds:.2f} | {passes_per_second:,.0f} | {images_per_second:,.1f} | "
        "{memory:.2f} GiB",
    ),
    "real": (
        "engine | images | passes | seconds | images/s | certified | against (a) | other set than (a)",
        "{name} | {images:,} | {passes:,} | {seconds:.1f} | {rate:,.1f} | {certified} | {speedup}× | {differs}",
    ),
    "rules": (
        "certificates that hold | all probabilities, ms | first classes where they settle it, ms | "
        "the same, 32 pictures at once, ms | ratio",
        "{certificates} of {defences} | {long:.0f} | {short:.0f} | {many:.1f} | {ratio:.1f}×",
    ),
    "at-once": (
        "source | passes | seconds | passes/s | of the network alone",
        "{source} | {passes:,} | {seconds:.1f} | {passes_per_second:,.0f} | {share:.0%}",
    ),
    "serve": (
        "clients at once | requests | requests/s | passes/s | latency at 50 %, s | at 99 %, s | load of the machine",
        "{clients} | {requests} | {requests_per_second:.1f} | {rate:.0f} | {latency_50:.2f} | {latency_99:.2f} | "
        "{load_average:.1f}",
    ),
    "app": (
        "backend | threads that wait | seconds to the first result | of one processor | load of the machine",
        "{backend} | {threads} | {seconds:.1f} | {worked:.1f} | {load_average:.1f}",
    ),
    "bounds": ("network | masks | mask | most that could be gained", "{kind} | {masks} | {mask}×{mask} | {bound:.2f}×"),
}
"""Headings, and a row as a format of its fields."""


def _models(content: Record) -> Iterable[Record]:
    for row in content["models"]:
        fast = row["all_pairs"]
        yield {**row, "memory": fast["peak_memory_bytes"] / GIB, "sent": fast["bytes_to_device"] / fast["passes"]}


def _real(content: Record) -> Iterable[Record]:
    for run in content["runs"]:
        plain, precision = run["engine"] == "plain loop", run["precision"]
        backend = f" {run['backend']}" if run.get("backend", "torch") != "torch" else ""
        yield {
            **run,
            "name": f"{'(a) plain loop' if plain else '(c) certmask'}{backend} {precision}",
            "rate": run["images"] / run["seconds"],
            "speedup": "1" if plain else f"{content['speedup'][precision]:.1f}",
            "differs": "–" if plain else f"{len(content['differs_from_plain_loop'][precision])} images",
        }


ROWS: dict[str, Callable[[Record], Iterable[Record]]] = {
    "models": _models,
    "scaling": lambda c: ({**row, "memory": row["peak_memory_bytes"] / GIB} for row in c["scaling"]),
    "real": _real,
    "rules": lambda c: ({**r, "defences": len(c["defences"]) - 1, "long": 1000 * r["long_seconds"],
                         "short": 1000 * r["short_seconds"], "many": 1000 * r["cohort_seconds"]} for r in c["rows"]),
    "at-once": lambda c: ({**r, "share": r["passes_per_second"] / c["network_alone_passes_per_second"]}
                          for r in c["rows"]),
    "serve": lambda c: ({**row, "rate": row["passes"] / row["seconds"]} for row in c["rows"]),
    "app": lambda c: ({**row, "threads": THREADS[row["policy"]]} for row in c["rows"]),
    "bounds": lambda c: c["bounds"],
}  # fmt: skip


def speed_table(kind: str, path: Path) -> str:
    content = json.loads(path.read_text())
    headings, template = TABLES[kind]
    table = lined(headings, (template.format(**row).replace("%", " %") for row in ROWS[kind](content)))
    if "device" not in content:
        return table
    what = f"{content['model']}, {content['masks']} masks, " if kind == "real" else ""
    if kind == "serve":
        what = f"{content['model']} behind {content['defence']}, {content['cores']} cores, "
    if kind == "app":
        what = f"{content['cores']} cores, "
    versions = content["versions"]
    return f"{what}{content['device']}, torch {versions['torch']}, timm {versions['timm']}\n\n{table}"


def speed(folder: Path) -> dict[str, str]:
    """Figures of performance.md: both runs' ratios of every network, and what deterministic compiling costs."""
    runs = [json.loads((folder / f"models-h200-{run}.json").read_text())["models"] for run in "ab"]
    ratios = (
        f"{a['ratio']:.1f} and {b['ratio']:.1f} for {a['all_pairs']['model']}" for a, b in zip(*runs, strict=True)
    )
    record = (folder / "compile-options-h200.txt").read_text()
    found = re.findall(r"^(\S+) (deterministic|timed) passes/s (\d+) margin (\S+)$", record, re.MULTILINE)
    rates = {(model, how): f"{int(rate):,}" for model, how, rate, _ in found}
    models = dict.fromkeys(model for model, *_ in found)
    scaling = json.loads((folder / "scaling-deit-tiny-h200.json").read_text())["scaling"]
    rate = {(row["masks"], row["images"]): row["passes_per_second"] for row in scaling}
    many = [passes for (masks, _), passes in rate.items() if masks >= 36]
    real = json.loads((folder / "real-deit-tiny-h200.json").read_text())["runs"][:2]
    shares = json.loads((folder / "zoom-h200.json").read_text())["best_share_of_network"]
    margins = [float(margin) for model, *_, margin in found if model.startswith("deit")]
    return {
        "ratios": ", ".join(ratios),
        "compiled": ", ".join(f"{rates[m, 'deterministic']} against {rates[m, 'timed']} for {m}" for m in models),
        "linear": f"{100 - 100 * min(many) / max(many):.0f}",
        "bound": f"{100 - 100 * rate[16, 1024] / rate[16, 256]:.0f}",
        "compiling": " and ".join(f"{run['measured_margin']:.2g} in {run['precision']}" for run in real),
        "zoom": f"{100 * shares['zoom']:.0f}",
        "margins": f"{margins[1]:.2g} to {margins[0]:.2g}",
    }


def draw_scaling(results: Path, images: Path) -> None:
    """Seconds against passes, with the line of constant cost."""
    found = json.loads((results / "scaling-deit-tiny-h200.json").read_text())["scaling"]
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for masks, marker in zip((16, 36, 144, 169), "os^D", strict=True):
        rows = [r for r in found if r["masks"] == masks]
        axes.loglog([r["passes"] for r in rows], [r["seconds"] for r in rows], marker, label=f"{masks} masks")
    most = max(found, key=lambda r: r["passes"])
    ends = [min(r["passes"] for r in found), most["passes"]]
    axes.loglog(ends, [p / most["passes_per_second"] for p in ends], "--", color="0.6", label="constant cost per pass")
    axes.set(xlabel="forward passes (images × masks and pairs)", ylabel="seconds", title="DeiT-Tiny, one H200, bf16")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    save_figure(figure, images / "scaling.png")
