"""Fills the marked blocks of README.md and docs/*.md from the results files in the repository: `make docs`.

A block starts with `<!-- figures: KIND PATH -->` and ends with `<!-- end -->`; what stands between is replaced.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from experiment_runs import commands, draw_plots, missing, other_sections, plots, runs_list, setting
from experiment_tables import gaps_table, mask_counts, measured_tables, paired_tables, tally_table
from twice import twice

from certmask.certificate import Guarantee
from certmask.errors import CertmaskError
from certmask.report.drawing import save_figure
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, COLUMNS, attack_figures, figures
from certmask.results.file import read_results
from certmask.results.run import read_run
from certmask.results.statistics import mcnemar

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- figures: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
SECTION = re.compile(r"<!-- figures: experiment \S*/(\S+) -->")
Record = dict[str, Any]


def grid(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def run_table(path: Path) -> str:
    return markdown_grid(brief_table("", COLUMNS, figures(read_run(path))))


def models_table(path: Path) -> str:
    content = json.loads(path.read_text())
    rows = []
    for row in content["models"]:
        plain, fast = row["plain"], row["all_pairs"]
        rows.append([
            fast["model"],
            f"{plain['passes_per_second']:,.0f}",
            f"{fast['passes_per_second']:,.0f}",
            f"{row['ratio']:.1f}×",
            f"{100 * fast['share_of_matrix_peak']:.1f} %",
            f"{fast['peak_memory_bytes'] / 2**30:.1f} GiB",
            f"{fast['bytes_to_device'] / fast['passes']:,.0f} B",
        ])  # fmt: skip
    heads = ["model", "(a) passes/s", "(b) passes/s", "(b)/(a)", "of matrix peak", "peak memory", "sent per pass"]
    return f"{_where(content)}\n\n{grid(heads, rows)}"


def scaling_table(path: Path) -> str:
    content = json.loads(path.read_text())
    heads = ["masks", "images", "passes", "seconds", "passes/s", "images/s", "peak memory"]
    rows = [
        [str(r["masks"]), f"{r['images']:,}", f"{r['passes']:,}", f"{r['seconds']:.2f}",
         f"{r['passes_per_second']:,.0f}", f"{r['images_per_second']:,.1f}",
         f"{r['peak_memory_bytes'] / 2**30:.2f} GiB"]
        for r in content["scaling"]
    ]  # fmt: skip
    return f"{_where(content)}\n\n{grid(heads, rows)}"


def real_table(path: Path) -> str:
    content = json.loads(path.read_text())
    heads = ["engine", "images", "passes", "seconds", "images/s", "certified", "against (a)", "other set than (a)"]
    rows = []
    for run in content["runs"]:
        plain = run["engine"] == "plain loop"
        precision = run["precision"]
        differs = "–" if plain else f"{len(content['differs_from_plain_loop'][precision])} images"
        backend = f" {run['backend']}" if run.get("backend", "torch") != "torch" else ""
        rows.append([
            f"{'(a) plain loop' if plain else '(c) certmask'}{backend} {precision}",
            f"{run['images']:,}",
            f"{run['passes']:,}",
            f"{run['seconds']:.1f}",
            f"{run['images'] / run['seconds']:,.1f}",
            str(run["certified"]),
            "1×" if plain else f"{content['speedup'][precision]:.1f}×",
            differs,
        ])  # fmt: skip
    return f"{content['model']}, {content['masks']} masks, {_where(content)}\n\n{grid(heads, rows)}"


def rules_table(path: Path) -> str:
    content = json.loads(path.read_text())
    rows = [
        [f"{r['certificates']} of {len(content['defences']) - 1}", f"{1000 * r['long_seconds']:.0f}",
         f"{1000 * r['short_seconds']:.0f}", f"{r['ratio']:.1f}×"]
        for r in content["rows"]
    ]  # fmt: skip
    heads = ["certificates that hold", "all probabilities, ms", "first classes where they settle it, ms", "ratio"]
    return f"{_where(content)}\n\n{grid(heads, rows)}"


def bounds_table(path: Path) -> str:
    rows = [
        [r["kind"], str(r["masks"]), f"{r['mask']}×{r['mask']}", f"{r['bound']:.2f}×"]
        for r in json.loads(path.read_text())["bounds"]
    ]
    return grid(["network", "masks", "mask", "most that could be gained"], rows)


def cards_table(folder: Path) -> str:
    """One row per trained model whose name begins with the last part of the path."""
    rows = []
    for path in sorted(folder.parent.glob(f"{folder.name}-*.json"), key=_order):
        card = json.loads(path.read_text())
        metrics, recipe = card["metrics"], card["recipe"]
        rows.append([
            f"[{card['architecture']}]({_link(path)})",
            recipe["cutout"],
            _start(card["data"]["start"]),
            str(recipe["epochs"]),
            _share(metrics["validation_accuracy"]),
            f"{metrics['images']:,}",
            _share(metrics["clean_accuracy"]),
            _share(metrics["certified_detection_one_mask"]),
            _share(metrics["certified_recovery_two_masks"]),
            metrics["precision"],
        ])  # fmt: skip
    heads = ["model", "Cutout", "start", "epochs", "clean, all", "photos", "clean", "certified detection, one mask",
             "certified recovery, two masks", "precision"]  # fmt: skip
    return grid(heads, rows)


def cutout_table(folder: Path) -> str:
    """Two-mask certificates of two models on the same photos, one trained with more Cutout than the other."""
    paths = sorted(folder.parent.glob(f"{folder.name}-*.jsonl.gz"), key=_order)
    rows = []
    for (less, one), (more, other) in pairwise((path, _two_masks(path)) for path in paths):
        if _order(less)[0] != _order(more)[0] or one.keys() != other.keys() or _precision(less) != _precision(more):
            continue
        gained = sum(other[image] > one[image] for image in one)
        lost = sum(other[image] < one[image] for image in one)
        name, _, before = less.name.removesuffix(".jsonl.gz").rpartition("-")
        after = more.name.removesuffix(".jsonl.gz").rpartition("-")[2]
        rows.append([f"{name}, {before} → {after}", f"{len(one):,}", str(gained), str(lost),
                     f"{mcnemar(gained, lost):.2g}"])  # fmt: skip
    return grid(["model, Cutout", "photos", "gained", "lost", "p (McNemar)"], rows)


def _precision(path: Path) -> str:
    return str(read_results(path)[0]["model"]["precision"])


def _two_masks(path: Path) -> dict[str, bool]:
    return {row["image"]: row["defences"]["patchcleanser"]["certified"] for row in read_results(path)[1]}


def _start(start: str) -> str:
    words = {"ImageNet-1k": "ImageNet", "random weights": "random", "with a card": "random Cutout"}
    return next((short for word, short in words.items() if word in start), start)


def attack_tables(path: Path) -> str:
    """What attempts did to each defence, with the attack's success against the bare model above it."""
    run = read_run(path)
    lines = attack_figures(run)
    bare = next(line for line in lines if line.guarantee is Guarantee.NONE)
    budget, model = run.header["budget"], run.model
    title = (
        f"{model['name']}, {model['precision']} on {model['device']}: {len(run.rows):,} attempts of {budget['steps']} "
        f"steps with {budget['views']} masked views each. The bare model falls to {bare.label_changed} of "
        f"{bare.attempts}."
    )
    return f"{title}\n\n{markdown_grid(brief_table('', ATTACK_COLUMNS, lines))}"


def _order(path: Path) -> tuple[str, int]:
    name, _, cutout = path.name.split(".")[0].rpartition("-")
    return name, ("none", "random", "greedy").index(cutout)


def _link(path: Path) -> str:
    return f"../{path.relative_to(ROOT)}"


def _share(value: float) -> str:
    return f"{100 * value:.1f}"


def _where(content: Record) -> str:
    versions = content["versions"]
    return f"{content['device']}, torch {versions['torch']}, timm {versions['timm']}"


KINDS: dict[str, Callable[[Path], str]] = {
    "run": run_table,
    "models": models_table,
    "scaling": scaling_table,
    "real": real_table,
    "rules": rules_table,
    "bounds": bounds_table,
    "cards": cards_table,
    "cutout": cutout_table,
    "attack": attack_tables,
    "twice": twice,
    "experiment": measured_tables,
    "paired": paired_tables,
    "tally": tally_table,
    "gaps": gaps_table,
    "plots": plots,
    "setting": setting,
    "commands": commands,
    "runs": runs_list,
    "missing": missing,
    "counts": mask_counts,
}


def filled(text: str) -> str:
    """The page with every block made anew; ``others`` holds the experiments without a section of their own."""
    kinds = {**KINDS, "others": partial(other_sections, named=SECTION.findall(text))}

    def block(found: re.Match[str]) -> str:
        if found[2] not in kinds:
            raise CertmaskError(f"expected a block of {', '.join(kinds)}, got {found[2]!r}")
        return f"{found[1]}{kinds[found[2]](ROOT / found[3])}\n{found[4]}"

    return BLOCK.sub(block, text)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def draw_scaling() -> None:
    """Seconds against passes, with the line of constant cost."""
    from matplotlib.figure import Figure

    content = json.loads((ROOT / "results/speed/scaling-deit-tiny-h200.json").read_text())
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for masks, marker in zip((16, 36, 144, 169), "os^D", strict=True):
        rows = [r for r in content["scaling"] if r["masks"] == masks]
        axes.loglog([r["passes"] for r in rows], [r["seconds"] for r in rows], marker, label=f"{masks} masks")
    most = max(content["scaling"], key=lambda r: r["passes"])
    ends = [min(r["passes"] for r in content["scaling"]), most["passes"]]
    axes.loglog(ends, [p / most["passes_per_second"] for p in ends], "--", color="0.6", label="constant cost per pass")
    axes.set(xlabel="forward passes (images × masks and pairs)", ylabel="seconds", title="DeiT-Tiny, one H200, bf16")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    save_figure(figure, ROOT / "docs/images/scaling.png")


def main() -> int:
    """Rewrite the pages; with --check only say which differ."""
    try:
        stale = [page for page in pages() if filled(page.read_text()) != page.read_text()]
    except CertmaskError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if "--check" in sys.argv:
        sys.stderr.writelines(f"{page.name} does not agree with the results files; run make docs\n" for page in stale)
        return int(bool(stale))
    for page in stale:
        page.write_text(filled(page.read_text()))
    draw_scaling()
    draw_plots(ROOT / "results/reproduce", ROOT / "docs/images")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
