"""Every file, test and name that the docs point to exists; the habits that CONTRIBUTING.md tells of are as it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

import certmask
from certmask.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
LINK = re.compile(r"\]\(([^)\s]*)\)")


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings: small letters, no punctuation, hyphens; a number where they repeat."""
    found: dict[str, int] = {}
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if not n else f"{name}-{n}" for name, most in found.items() for n in range(most + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_can_be_typed(page: Path) -> None:
    """Commands, options and their values are known; what comes after several spaces says what it does."""
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^    (?:\S+/)?certmask ([a-z].+)$", text, re.MULTILINE):
        name, *words = shlex.split(re.split(r" {2,}| #", line)[0])
        known[name].make_context(name, words)


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop()
        seen.add(page)
        targets = (target.partition("#")[0] for target in LINK.findall(page.read_text(encoding="utf-8")))
        found = {(page.parent / target).resolve() for target in targets if target.endswith(".md")}
        left += [other for other in found if other not in seen]
    assert {*PAGES} - {ROOT / "docs/package.md"} <= seen


@pytest.mark.parametrize(("page", "lines"), [("README.md", 150), ("docs/results.md", 200)])
def test_pages_for_two_minutes_stay_short(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= lines


def test_what_ci_calls_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    called = re.findall(r"^make .+$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert called
    assert all(f"`{line}`" in readme or f"    {line} " in readme for line in called)


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
