"""What docs/scale.md says: figures counted in another way, commands and recipes tried as far as they go here."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import certmask

ROOT = Path(__file__).resolve().parent.parent
yaml = pytest.importorskip("yaml")
PAGE = (ROOT / "docs" / "scale.md").read_text()


def measured(part: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / "speed" / f"scale-{part}.json").read_text())
    return content


def said(name: str) -> str:
    (text,) = re.findall(rf"<!--=scale {name}-->(.*?)<!--=-->", PAGE)
    return str(text)


def test_the_figures_are_those_of_the_files() -> None:
    best: dict[tuple[str, str], float] = {}
    for run in measured("engines")["runs"]:
        for key in ("seconds", "working_seconds"):
            kind = run["engine"], key
            best[kind] = min(run[key], best.get(kind, float("inf")))
    for name, count in (("overhead", 2), ("overhead on one core", 1)):
        ray, here = best[f"ray {count}", "seconds"], best[f"here {count}", "seconds"]
        assert said(name) == f"{100 * (ray - here) / here:+.0f}"
    assert said("speedup") == f"{best['ray 1', 'working_seconds'] / best['ray 2', 'working_seconds']:.2f}"
    assert said("ceiling") == f"{best['here 1', 'working_seconds'] / best['shards', 'working_seconds']:.2f}"
    assert said("speedup with start") == f"{best['ray 1', 'seconds'] / best['ray 2', 'seconds']:.2f}"
    (many,) = measured("memory")["runs"]
    held = [size for rows, size in many["driver_memory"] if rows >= many["photos"] / 10 and size]
    assert said("growth") == f"{(held[-1] - held[0]) / 1024**2:+.0f}"
    assert said("largest") == f"{max(held) / 1024**2:.0f}"


def test_every_option_that_the_page_names_exists() -> None:
    known = {name: set(re.findall(r"--[a-z-]+", certmask(name, "--help").stdout)) for name in ("certify", "merge")}
    commands = re.findall(r"certmask (certify|merge) ((?:\\\n|[^\n`])*)", PAGE)
    named = {(name, option) for name, rest in commands for option in re.findall(r"--[a-z-]+", rest)}
    assert len(named) > 8
    assert [(name, option) for name, option in sorted(named) if option not in known[name]] == []


def test_the_slurm_recipe_asks_for_its_own_shard(tmp_path: Path) -> None:
    """As Slurm would run one job of the array, with a command that only says what it was asked for."""
    (recipe,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "certmask").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "certmask").chmod(0o755)
    slurm = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "16"}
    done = subprocess.run(["bash", "-c", recipe], env=slurm, capture_output=True, text=True, check=True)
    asked = done.stdout.splitlines()
    assert asked[asked.index("--shard") + 1] == "3/16"
    assert asked[asked.index("--out") + 1] == "runs/shard-3.jsonl"
    assert re.search(r"^#SBATCH --array=1-16$", recipe, re.MULTILINE)


def test_the_cluster_file_is_yaml_that_names_its_own_nodes() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    cluster = yaml.safe_load(text)
    assert cluster["head_node_type"] in cluster["available_node_types"]
    assert cluster["available_node_types"]["gpu"]["max_workers"] == cluster["max_workers"] == 8
