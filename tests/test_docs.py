"""Every figure in the docs comes from a results file, and every file, test and name they point to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import certmask

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_figures_agree_with_the_results_files() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text())
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


def test_the_readme_uses_real_names() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
    names = set(re.findall(r"\bcm\.(\w+)", code))
    assert names
    assert all(hasattr(certmask, name) for name in names)


def test_the_speed_of_deterministic_compiling_is_as_recorded() -> None:
    """The sentence is written by hand; its figures are those of the record."""
    record = (ROOT / "results/speed/compile-options-h200.txt").read_text()
    page = (ROOT / "docs/performance.md").read_text()
    rates = re.findall(r"^(\S+) (deterministic|timed) passes/s (\d+) margin (\S+)$", record, re.MULTILINE)
    assert len(rates) == 6
    for _, _, rate, _ in rates:
        assert f"{int(rate):,}" in page
    margins = {(model, how): float(margin) for model, how, _, margin in rates}
    assert margins["deit_tiny_patch16_224", "deterministic"] == 0
    assert round(margins["deit_tiny_patch16_224", "timed"], 2) == 0.03
