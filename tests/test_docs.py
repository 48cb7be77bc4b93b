"""Every file, test and name that the docs point to exists; the habits that CONTRIBUTING.md tells of are as it says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import certmask

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_page_of_the_package_needs_no_repository() -> None:
    """A package index shows it by itself: a link or picture must be a whole address."""
    (named,) = re.findall(r'^readme = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    targets = re.findall(r"\]\(([^)]+)\)", (ROOT / named).read_text())
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_readme_says_how_to_install_and_runs_on_any_device() -> None:
    readme = (ROOT / "README.md").read_text()
    extras = re.findall(r"^    pip install '?\.(?:\[(\w+)\]')?(?: |$)", readme, re.MULTILINE)
    assert extras == ["", "demo"]
    assert re.search(r"^demo = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(re.findall(r'device="(\w+)"', readme)) == {"auto"}


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = re.findall(
        r"`(test_\w+\.py)::(test_\w+)`",
        "".join((ROOT / "docs" / page).read_text() for page in ("guarantees.md", "trust.md")),
    )
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("page", ["README.md", "docs/package.md"])
def test_the_readme_uses_real_names(page: str) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
    names = set(re.findall(r"\bcm\.(\w+)", code))
    assert names
    assert all(hasattr(certmask, name) for name in names)


def test_the_workflow_runs_the_pythons_that_are_claimed() -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert claimed
    assert f"python: {json.dumps(claimed)}" in (ROOT / ".github/workflows/check.yml").read_text()


def test_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (targets,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert re.findall(r"^make (\w+) ", told, re.MULTILINE) == targets.split()
    assert ".DEFAULT_GOAL = help" in makefile
