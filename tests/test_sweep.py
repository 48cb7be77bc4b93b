"""The sweep runs the command lines that the docs print, on photos that the whole runs have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import certmask
from benchmarks import sweep
from benchmarks.sweep import PAGE, Command, commands, filled
from certmask.data.dataset import evenly_spaced
from certmask.results.run import read_run

ROOT = Path(__file__).parent.parent
INSTALLED = ("deit_tiny-imagenette", "resnet26-cifar10", "resnet26w3-cifar10", "efficientnet-lite0")
"""Networks that come with certmask or its demo."""
PHOTOS = {"IMAGENET": "photos.csv", "CIFAR10": "cifar", "IMAGENETTE": "val"}


def test_every_command_line_of_the_page_gets_its_paths() -> None:
    lines = commands(PAGE.read_text(encoding="utf-8"))
    assert len(lines) > 50
    for line in lines:
        own = filled(line, Path("weights"), PHOTOS)
        assert not {*PHOTOS, "WEIGHTS"} & {part for word in own.words for part in word.split("=")}
        given = dict(zip(own.words[2::2], own.words[3::2], strict=True))
        assert given["--data"].split("=")[1] in PHOTOS.values()
        assert len(own.files) == (1 if given["--model"] in INSTALLED else 2)
        assert [word for word in line.split() if "=" not in word and not word.endswith(".safetensors")] == [
            word for word in own.words if "=" not in word and not word.endswith(".safetensors")
        ]


def test_a_part_of_the_photos_is_among_those_of_the_whole_run() -> None:
    """Of as many photos as ImageNet's, Imagenette's and CIFAR-10's, with the numbers that the command lines ask for."""
    asked = {int(line.split("--images ")[1].split()[0]) for line in commands(PAGE.read_text(encoding="utf-8"))}
    for every, whole in ((1000, 1000), (3925, 1000), (10_000, 2000)):
        for images in (n for n in asked if n <= whole):
            photos = tuple(range(every))
            assert {*evenly_spaced(photos, images // 10)} <= {*evenly_spaced(photos, images)}
    assert "--images 2" in " ".join(filled("reproduce fold --images 25 --data demo=DEMO", Path(), {}, 10).words)


def test_commands_are_run_and_others_named(tmp_path: Path) -> None:
    """A run on demo photos; one without its weights is left out, and a failure is the sweep's."""
    page = tmp_path / "page.md"
    start = "    certmask reproduce table2 --model"
    end = "--images 8 --precision fp32 --batch 4 --margin 0 --backend torch"
    models = ("resnet26-cifar10", "deit_tiny_patch16_224=WEIGHTS")
    page.write_text("".join(f"{start} {model} --data demo=SMALL {end}\n" for model in models))
    photos = tmp_path / "photos"
    call = [sys.executable, "-m", "benchmarks.sweep", f"SMALL={photos}", "--models", str(tmp_path)]
    call += ["--out", str(tmp_path / "out"), "--commands", str(page), "--part", "4"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert done.stdout.count("left out, without photos or weights") == 2
    assert done.stdout.splitlines()[-1] == "0 run, 0 failed, 2 left out"
    write_photos(photos)
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 run, 0 failed, 1 left out"
    (path,) = (tmp_path / "out" / "table2").glob("*.jsonl")
    run = read_run(path)
    assert len(run.rows) == 2
    assert run.header["versions"]["certmask"] == certmask.__version__
    page.write_text(f"{start} resnet26-cifar10 --data demo=SMALL {end} --patch-share 7\n")
    wrong = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert wrong.returncode == 1
    assert wrong.stdout.splitlines()[-1] == "0 run, 1 failed, 0 left out"
    late = subprocess.run([*call, "--seconds", "-1"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert late.returncode == 0
    assert "left out, too late" in late.stdout


def test_a_command_that_is_killed_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its exit code is below 0."""
    monkeypatch.setattr("subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], -9))
    assert sweep.run(Command(("models",), ()), Path("out"), float("inf")) == sweep.FAILED
    assert "exit -9: models" in capsys.readouterr().out


def write_photos(folder: Path) -> None:
    """Eight small pictures in class folders of CIFAR-10."""
    chance = np.random.default_rng(0)
    for number in range(8):
        place = folder / ("cat", "dog")[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(place)
