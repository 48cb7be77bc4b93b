"""What is released: the archives, what is in them, and the wheel where there is nothing else of certmask."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import certmask

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
WHEEL = "import sys; from setuptools import build_meta as build; out = sys.argv[1]; build.build_wheel(out)"
BOTH = f"{WHEEL}; build.build_sdist(out)"
"""What a package builder calls, without an environment of its own; it changes ``sys.argv``."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built from a copy of what they are made of."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("src", "docs", "examples"):
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "images")
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    for path in (path for path in ROOT.iterdir() if path.is_file()):
        shutil.copy(path, source)
    subprocess.run([sys.executable, "-c", BOTH, str(built)], cwd=source, capture_output=True, text=True, check=True)
    return built


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_the_wheel_has_the_package_and_nothing_else(archives: Path) -> None:
    with zipfile.ZipFile(only(archives, "certmask-*.whl")) as wheel:
        names = set(wheel.namelist())
    about = f"certmask-{VERSION}.dist-info/"
    assert all(name.startswith(("certmask/", about)) for name in names)
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "certmask").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(about)} == sources
    assert {"certmask/py.typed", "certmask/zoo/shipped/resnet26-cifar10.safetensors"} <= sources


def test_the_wheel_says_what_it_is(archives: Path) -> None:
    with zipfile.ZipFile(only(archives, "certmask-*.whl")) as wheel:
        told = Parser().parsestr(wheel.read(f"certmask-{VERSION}.dist-info/METADATA").decode())
        scripts = wheel.read(f"certmask-{VERSION}.dist-info/entry_points.txt").decode()
        assert any(name.endswith("LICENSE") for name in wheel.namelist())
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("certmask", VERSION, ">=3.10")
    assert {"demo", "onnx", "huggingface", "ray", "serve"} <= {*told.get_all("Provides-Extra", [])}
    needed = {re.split(r"[><=; \[]", line)[0] for line in told.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert {"torch", "numpy", "pillow", "timm", "typer"} <= needed
    assert str(told.get_payload()).startswith("# certmask")
    assert "certmask = certmask.cli:main" in scripts


def test_the_source_archive_builds_and_has_no_tests(archives: Path, tmp_path: Path) -> None:
    path = only(archives, "certmask-*.tar.gz")
    assert path.name == f"certmask-{VERSION}.tar.gz"
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    told = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "docs/package.md", "docs/guarantees.md"}
    assert told | {"examples/own_rule.py", "src/certmask/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "results", "benchmarks"))]
    source = tmp_path / f"certmask-{VERSION}"
    subprocess.run([sys.executable, "-c", WHEEL, str(tmp_path)], cwd=source, capture_output=True, check=True)
    first, second = (only(folder, "certmask-*.whl") for folder in (archives, tmp_path))
    assert zipfile.ZipFile(first).namelist() == zipfile.ZipFile(second).namelist()


@pytest.fixture(scope="module")
def environment(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel; a path file lends it what certmask depends on, and no more."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(places)))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", str(only(archives, "certmask-*.whl"))], check=True, capture_output=True)
    return home / "bin"


def run(environment: Path, folder: Path, *words: str) -> str:
    """What a command of the environment prints, far from the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    call = [str(environment / words[0]), *words[1:]]
    done = subprocess.run(call, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: an alert
    return done.stdout


def test_the_wheel_answers_in_an_empty_environment(environment: Path, tmp_path: Path) -> None:
    """The command, and a prediction by a model that comes along; none of it from the checkout."""
    assert run(environment, tmp_path, "certmask", "--version").split() == ["certmask", VERSION]
    where = run(environment, tmp_path, "python", "-c", "import certmask; print(certmask.__file__)")
    assert Path(where.strip()).is_relative_to(environment.parent)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    model = ("--model", "resnet26-cifar10", "--rule", "zoom-detection", "--backend", "torch", "--precision", "fp32")
    assert '"label"' in run(
        environment, tmp_path, "certmask", "predict", "photo.png", *model, "--batch", "2", "--margin", "0", "--json"
    )


def test_one_version_everywhere() -> None:
    assert certmask.__version__ == VERSION
    first = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first == VERSION


def test_the_citation_can_be_read() -> None:
    """What the format asks for, and the paper whose idea this is."""
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= told.keys()
    assert (str(told["version"]), told["license"], told["type"]) == (VERSION, "Apache-2.0", "software")
    assert all(one["authors"] and one["title"] and one["year"] for one in told["references"])
    assert told["references"][0]["title"].startswith("CertMask")
