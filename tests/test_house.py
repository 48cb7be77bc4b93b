"""How the house is laid out: each room knows only rooms before it, and results are read and reported without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import certmask

HOUSE = Path(certmask.__file__).parent

CORE = ("threat", "geometry", "covers", "certificate")
ROOMS: dict[str, tuple[str, ...] | None] = {
    "threat": (),
    "geometry": ("threat",),
    "covers": ("threat", "geometry"),
    "certificate": ("threat", "geometry", "covers"),
    "backends": ("threat",),
    "company": ("threat",),
    "views": (),
    "images": ("threat",),
    "identity": ("threat", "backends"),
    "classifier": ("threat", "backends", "company", "views", "images", "identity"),
    "evidence": (
        "threat",
        "geometry",
        "certificate",
        "backends.arithmetic",
        "company",
        "views",
        "identity",
        "classifier",
    ),
    "passes": CORE,
    "votes": (*CORE, "passes"),
    "rules": (*CORE, "evidence", "passes", "votes"),
    "engine": (
        *CORE,
        "backends.arithmetic",
        "company",
        "images",
        "identity",
        "classifier",
        "passes",
        "votes",
        "rules.rule",
    ),
    "defences": (*CORE, "classifier", "evidence", "passes", "votes", "rules", "engine"),
    "data": ("threat",),
    "zoo": ("threat", "backends", "views", "images", "identity", "classifier", "evidence", "data"),
    "results": CORE,
    "report": (*CORE, "data", "results"),
    "function": None,
    "certification": None,
    "tuning": None,
    "deployed": None,
    "attacks": None,
    "adapters": None,
    "training": None,
    "experiments": None,
    "scale": None,
    "service": None,
    "app": None,
    "cli": None,
    "__main__": ("cli",),
}
"""The order of the rooms, and what each may know of those before it (None: all of them); all know the errors."""


def modules(room: str) -> list[Path]:
    return sorted((HOUSE / room).rglob("*.py")) if (HOUSE / room).is_dir() else [HOUSE / f"{room}.py"]


def imports(path: Path) -> Iterator[str]:
    """The modules of the house that a file imports, anywhere in it, as ``room.module``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"expected absolute imports, got one that is relative in {path}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix("certmask.") for name in names if name.split(".")[0] == "certmask")


def allowed(room: str) -> tuple[str, ...]:
    before = tuple(ROOMS)[: tuple(ROOMS).index(room)]
    known = ROOMS[room]
    return (room, "errors", "__version__", *(before if known is None else known))


def test_every_room_stands_in_the_table() -> None:
    rooms = {path.stem for path in HOUSE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "errors"} == set(ROOMS)


def test_the_table_is_an_order() -> None:
    for room, known in ROOMS.items():
        before = tuple(ROOMS)[: tuple(ROOMS).index(room)]
        assert {name.split(".")[0] for name in known or ()} <= set(before), room


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_rooms_before_it(room: str) -> None:
    """Also inside functions: what is imported late is known, too. Only ``python -m`` knows the command line."""
    odd = [
        f"{path.relative_to(HOUSE)}: {name}"
        for path in modules(room)
        for name in imports(path)
        if not any(f"{name}.".startswith(f"{known}.") for known in allowed(room))
    ]
    assert odd == []


def test_errors_and_the_front_door_know_nothing() -> None:
    """Names at the front door are imported when they are first used, so it may name any room but the command line."""
    assert list(imports(HOUSE / "errors.py")) == []
    assert "cli" not in {name.split(".")[0] for name in imports(HOUSE / "__init__.py")}


def test_type_checkers_see_every_name_at_the_front_door() -> None:
    seen = [name.rsplit(".", 1)[1] for name in imports(HOUSE / "__init__.py")]
    assert sorted(seen) == certmask.__all__


@pytest.mark.parametrize("room", ["results", "report"])
def test_results_are_read_without_torch(room: str) -> None:
    """Every module of the room, imported in a process of its own."""
    names = [".".join(path.relative_to(HOUSE.parent).with_suffix("").parts) for path in modules(room)]
    program = f"import sys\nfor name in {names}:\n    __import__(name)\nprint({{'torch', 'timm'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_file_has_the_marks_of_a_merge() -> None:
    """Halves that contradict each other are no text."""
    root = Path(__file__).resolve().parent.parent
    texts = [path for part in ("src", "tests", "docs", "benchmarks", "examples") for path in (root / part).rglob("*.*")]
    texts = [path for path in [*texts, *root.glob("*.*")] if path.suffix in (".py", ".md", ".toml", ".txt")]
    assert len(texts) > 200
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert not [str(path) for path in texts if any(line.startswith(marks) for line in path.open(encoding="utf-8"))]


def test_every_benchmark_knows_names_that_exist() -> None:
    """Nothing else runs all of them: a name that moved would only be missed by who measures next."""
    root = Path(__file__).resolve().parent.parent
    names = sorted(path.stem for path in (root / "benchmarks").glob("*.py"))
    assert len(names) > 5
    call = "import importlib; [importlib.import_module(f'benchmarks.{name}') for name in " + repr(names) + "]"
    done = subprocess.run([sys.executable, "-c", call], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
