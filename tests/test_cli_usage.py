"""What a new user tries: wrong options, odd files, odd terminals, waiting; each answered with one clear line."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from contextlib import suppress
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from commands import PROGRAM, certmask
from PIL import Image
from rich.console import Console

from certmask.cli import console, main
from certmask.cli.choices import COPIES, Choices, device_memory
from certmask.covers import zoom_cover
from certmask.data import load_dataset
from certmask.defences import MaskedDefence
from certmask.errors import ClassifierError, DataError, UsageError
from certmask.rules import JuryRecovery
from certmask.tuning import save_defence
from certmask.zoo import Card, build_model, card_of, load_classifier, load_with_card, save_model, shipped_models
from certmask.zoo.card import read_card, write_card

FEW = ("--patch", "5", "--levels", "2", "--batch", "8", "--precision", "fp32")
"""Few masks for the little model."""

SEEN = ("--rule nonsense", "--patch 0", "--patch abc", "--patch 33", "--patch 32", "--margin -1", "--margin 2",
        "--margin 1", "--margin abc", "--precision abc", "--precision fp16 --backend openvino", "--aggregate xyz",
        "--pairs some", "--device toaster", "--device meta", "--backend abacus", "--batch 0", "--batch x",
        "--batch 100000000", "--threshold x",
        *(f"--rule jury-recovery {wrong}"
          for wrong in ("--fold 9x", "--fold 0", "--tiling zzz", "--mask x", "--mask 64", "--mask 32", "--mask 40x8",
                        "--levels 2", "--thresholds 0.5", "--claim-thresholds 0.5", "--pooled", "--align 2",
                        "--tiling zoom --mask 18", "--tiling zoom --fold 2")),
        "--mask 18", "--fold 2", "--tiling spread", "--rule undefended --rule zoom-detection --mask 18",
        "--levels x", "--levels 2,,3", "--levels 0", "--levels 6:0", "--levels 1", "--align 0", "--align 32",
        "--thresholds x", "--claim-thresholds x", "--thresholds -1", "--thresholds nan", "--thresholds 0.5,0.5",
        "--last-resort coin",
        "--rule zoom-detection --last-resort bare", "--rule published --last-resort bare",
        "--rule undefended --levels 2",
        "--defence {tuned} --patch 4", "--defence {tuned} --levels 2", "--defence {other}",
        "--band 4", "--theta 0.5", "--rule patchcleanser --stride 2", "--rule smoothing --band 32",
        "--rule smoothing --band 0", "--rule smoothing --theta 0", "--rule smoothing --theta x",
        "--rule smoothing --mask 18", "--rule smoothing --fold 2", "--rule smoothing --tiling spread",
        "--rule zoom --rule smoothing --mask 18", "--rule smoothing --tiling bands --mask 18",
        "--rule patchguard-smoothing --theta 0.3", "--rule smoothing --share 0.3", "--share 0.5", "--slope 0.1",
        "--rule smoothing --stride 99", "--rule patchguard-smoothing --share 1",
        "--rule patchguard-smoothing --tiling blocks", "--rule patchguard-smoothing --band 16",
        "--rule smoothing --band 20", "--rule hicert --threshold 2", "--rule patchguard-smoothing --margin 0.9",
        "--rule patchguard", "--rule clipped-bagnet", "--rule zoom --threshold 0.3", "--rule smoothing --pairs all",
        "--rule smoothing --aggregate mean-log-probability",
        "--rule minority-reports --threshold 2", "--rule minority-reports --threshold 0.9 --margin 0.2",
        "--aggregate mean-log-probability --margin 70")  # fmt: skip
"""Wrong for whatever looks at photos through masks."""

WRONG = {
    "plan": ("--image 0", "--image x", "--patch 0", "--patch 300", "--mask 400", "--mask 224", "--fold 9x",
             "--tiling zzz", "--budget 0", "--budget 1", "--levels x", "--levels 2 --mask 64", "--align 0",
             "--tiling zoom --fold 2", "--tiling bands --mask 64", "--tiling blocks --fold 2",
             "--draw plan.nonsense", "surplus", "--patch-in-photo 9", "--photo {photo}", "--before-jpeg",
             "--model {model}", "--photo {photo} --patch-in-photo 9 --image 32",
             "--photo {photo} --patch-in-photo 9 --patch 5"),
    "predict {photo} --model {model}": (
        *SEEN, "--rule jury-recovery --rule patchcleanser", "--rule zoom --defence {tuned}", "--draw votes.nonsense",
        "--patch-in-photo 4 --patch 5", "--patch-in-photo 0%", "--patch-in-photo 101%", "--patch-in-photo x",
        "--patch-in-photo 4 --defence {tuned}", "--before-jpeg",
    ),
    "serve --model {model} --port 0": (
        *SEEN, "--rule jury-recovery --rule patchcleanser", "--rule zoom --defence {tuned}", "--port 65536",
        "--queue 0", "--seconds 0", "--seconds nan", "--most-bytes 0", "--most-passes x", "--host 999.0.0.1",
        "--engine steam", "--replicas 2", "--engine ray --replicas 0", "surplus",
    ),
    "certify {data} --model {model} --out run.jsonl": (
        *SEEN, "--images 0", "--rule published --rule published", "--rule zoom --defence {named}",
    ),
    "attack {run} {list} --model {model} --out attempts.jsonl": (
        "--rule nonsense", "--device toaster", "--device meta", "--images 0", "--steps x", "--replay 0",
    ),
    "train {data} --validation {data} --model resnet10t --out trained": (
        "--cutout fancy", "--optimizer lion", "--schedule never", "--rate -1", "--epochs 0", "--patch x", "--patch 900",
        "--image 0", "--crop 2", "--zoom 0", "--precision abc", "--device meta", "--weights w.pt --pretrained",
    ),
    "reproduce": (
        "nonsense", "table1", "table1 --data {data} --data {data}", "table1 --data {data} --patch-share 77",
        "table1 --data {data} --images 0", "table1 --from . --images 3", "table1 --data /",
        *(f"table1 --data {{data}} --model {{model}} {wrong}"
          for wrong in ("--margin -1", "--margin 2", "--margin x", "--precision abc", "--device meta",
                        "--backend abacus", "--batch 100000000")),
    ),
    "report {run}": ("--gallery -1", "--out page.md"),
    "table {run}": ("--json --markdown", "--nonsense"),
    "models": ("--nonsense",),
    "demo": ("--precision abc", "--device meta", "--backend abacus", "--precision fp16 --backend openvino"),
    "": ("nonsense", "--nonsense"),
}  # fmt: skip
"""Every command, with what it takes, and ways to ask for it wrongly."""


@pytest.fixture(scope="module")
def places(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A photo, a data set, a list of photos that the model knows, a model, and a run on the list."""
    folder = tmp_path_factory.mktemp("places")
    for name, colour in (("cat", "red"), ("dog", "blue"), ("frog", "green")):
        (folder / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40), colour).save(folder / "photos" / name / "a.png")
    photos = sorted((folder / "photos").glob("*/*.png"))
    bare = ("--model", little_model, "--rule", "undefended")
    answers = json.loads(certmask("predict", *photos, *bare, "--json").stdout)
    (folder / "list.csv").write_text("".join(f"{answer['photo']},{answer['label']}\n" for answer in answers))
    certmask("certify", folder / "list.csv", "--model", little_model, *FEW, "--out", folder / "run.jsonl")
    for file, image, name in (("tuned", 32, "tuned"), ("other", 64, "tuned"), ("named", 32, "zoom")):
        defence = MaskedDefence(zoom_cover(image, 5, (2,)), JuryRecovery(), name)
        save_defence(folder / f"{file}.json", defence, {})
    names = {"photo": "photos/cat/a.png", "data": "photos", "list": "list.csv", "run": "run.jsonl",
             "tuned": "tuned.json", "other": "other.json", "named": "named.json"}  # fmt: skip
    return {"model": str(little_model), **{name: str(folder / path) for name, path in names.items()}}


@pytest.mark.parametrize("command", WRONG)
def test_wrong_usage_exits_with_2_and_leaves_nothing_behind(
    command: str, places: dict[str, str], tmp_path: Path
) -> None:
    """Whatever the command and the option: one reason, no traceback, no file, and no model is loaded for it."""
    for wrong in WRONG[command]:
        words = f"{command} {wrong}".format(**places).split()
        done = certmask(*words, cwd=tmp_path, code=2)
        own = done.stderr.startswith("error: expected ") and done.stderr.count("\n") == 1
        assert own or "Usage: certmask" in done.stderr, words
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == [], words


def test_what_is_no_wrong_usage_exits_with_1(places: dict[str, str], tmp_path: Path) -> None:
    """Data, models and files that are not there or not what they should be."""
    (tmp_path / "notes.txt").write_text("notes\n")
    for command in (
        "predict nowhere.jpg --model {model}",
        "predict {photo} --model nowhere.safetensors",
        "predict {photo} --model no_such_model",
        "predict {photo} --model {model} --defence nowhere.json",
        "predict {photo} --model {model} --defence notes.txt",
        "certify nowhere --model {model}",
        "certify {data} --model {model} --out notes.txt",
        "certify {data} --model {model} --out /dev/full",
        "certify {data} --model {model} --out .",
        "certify {data} --model {model} --votes notes.txt",
        "attack nowhere.jsonl {data}",
        "attack {run} {list} --model {model} --out /dev/full",
        "attack {run} nowhere --model {model}",
        "train nowhere --validation {data} --model resnet10t --out t",
        "train {data} --validation nowhere --model resnet10t --out t",
        "train {data} --validation {data} --model resnet10t --out notes.txt",
        "reproduce table1 --from nowhere",
        "reproduce table1 --data nowhere --model {model} --out r",
        "reproduce table1 --data {data} --model {model} --out notes.txt",
        "report nowhere.jsonl",
        "report {run} --out /dev/full",
        "table nowhere.jsonl",
        "models nowhere",
        "demo --out /dev/full",
    ):
        certmask(*command.format(**places).split(), cwd=tmp_path, code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_bound_on_the_batch_is_told_and_a_batch_below_it_is_taken(places: dict[str, str]) -> None:
    """As many pictures as the memory could hold eight times over; no picture is made before that is known."""
    most = device_memory("cpu") // (COPIES * 3 * 4 * 32 * 32)
    command = ("predict", places["photo"], "--model", places["model"], "--rule", "undefended", "--device", "cpu")
    assert f"at most {most:,} 32×32 images on cpu" in certmask(*command, "--batch", str(most + 1), code=2).stderr
    certmask(*command, "--batch", "64")


def test_short_memory_in_mid_run_is_one_line(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no error of its own for that on a CPU, only a text; any other error of its kind is not hidden."""

    def fail(text: str) -> None:
        def explain(*_: Any) -> None:
            raise RuntimeError(text)

        monkeypatch.setattr("certmask.defences.explain", explain)

    command = ("predict", places["photo"], "--model", places["model"], *FEW)
    fail("[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory: you tried\nmore")
    assert "can't allocate memory" in certmask(*command, code=1).stderr
    fail("a fault of ours")
    with pytest.raises(RuntimeError, match="a fault of ours"):
        certmask(*command)


def test_one_bad_photo_does_not_stop_the_others(places: dict[str, str], tmp_path: Path) -> None:
    """It is named with its error, in JSON too; the exit code is 1, also where another photo raised an alert."""
    (tmp_path / "text.jpg").write_text("no picture")
    Image.new("RGB", (2000, 3)).save(tmp_path / "thread.png")
    photos = (places["photo"], str(tmp_path / "text.jpg"), places["photo"], str(tmp_path / "thread.png"))
    little = ("--model", places["model"], *FEW)
    done = certmask("predict", *photos, *little, "--json", code=1, lines=2)
    records = json.loads(done.stdout)
    assert [record["photo"] for record in records] == list(photos)
    assert [sorted(record) == ["error", "photo"] for record in records] == [False, True, False, True]
    assert records[0] == records[2]
    assert done.stderr == "".join(f"error: {record['error']}\n" for record in records if "error" in record)
    assert all(path in records[n]["error"] for n, path in enumerate(photos) if n in (1, 3))
    told = certmask("predict", *photos, *little, code=1, lines=2)
    assert (told.stdout.count("if this photo is clean"), told.stderr) == (2, done.stderr)


def test_a_bad_photo_outweighs_an_alert(little_model: Path, photos: dict[str, Path], tmp_path: Path) -> None:
    cover = ("--patch", "5", "--mask", "18", "--fold", "2", "--batch", "8", "--precision", "fp32")
    alarming = ("--model", little_model, *cover, "--rule", "jury-detection")
    certmask("predict", photos["cat"], *alarming, code=3)
    done = certmask("predict", photos["cat"], tmp_path / "none.jpg", *alarming, code=1)
    assert "ALERT" in done.stdout


def test_no_photo_means_no_model(tmp_path: Path) -> None:
    """resnet18's weights would have to be downloaded."""
    done = certmask("predict", tmp_path / "none.jpg", "--model", "resnet18", "--json", code=1)
    assert json.loads(done.stdout) == [{"photo": str(tmp_path / "none.jpg"), "error": done.stderr[7:-1]}]


def test_pictures_keep_the_number_of_their_photo(places: dict[str, str], tmp_path: Path) -> None:
    command = ("predict", tmp_path / "none.jpg", places["photo"], "--model", places["model"], *FEW)
    certmask(*command, "--draw", tmp_path / "votes.png", code=1, lines=2)
    assert [path.name for path in tmp_path.glob("*.png")] == ["votes-2.png"]


def test_skip_bad_with_no_good_photo(little_model: Path, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "a.jpg").write_text("no photo")
    command = ("certify", tmp_path / "photos", "--model", little_model, "--skip-bad", "--out", tmp_path / "run.jsonl")
    assert "got 2 that cannot" in certmask(*command, code=1).stderr
    assert not (tmp_path / "run.jsonl").exists()


def test_skip_bad_leaves_out_a_photo_that_is_no_more_than_a_line(places: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(places["data"], tmp_path / "photos")
    Image.new("RGB", (900, 2)).save(tmp_path / "photos/dog/line.png")
    command = ("certify", tmp_path / "photos", "--model", places["model"], *FEW, "--out", tmp_path / "run.jsonl")
    assert "dog/line.png" in certmask(*command, code=1).stderr
    shutil.rmtree(tmp_path / "run.jsonl", ignore_errors=True)
    done = certmask(*command[:-1], tmp_path / "other.jsonl", "--skip-bad")
    assert "skipped: expected dog/line.png less than 200 times" in done.stderr
    assert "3 images" in done.stdout


def not_files(folder: Path) -> list[Path]:
    """A pipe that nobody writes to, a socket, a device without an end."""
    os.mkfifo(folder / "pipe.png")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(folder / "socket.png"))
    return [folder / "pipe.png", folder / "socket.png", Path("/dev/zero")]


def test_what_is_no_file_is_refused_and_never_waited_for(places: dict[str, str], tmp_path: Path) -> None:
    """As photo, in a folder, in a CSV, and as the data set itself; a hang would be a test that does not end."""
    (tmp_path / "set/cat").mkdir(parents=True)
    for path in not_files(tmp_path / "set/cat"):
        assert str(path) in certmask("predict", path, "--model", places["model"], code=1).stderr
        (tmp_path / "list.csv").write_text(f"{path},cat\n")
        with pytest.raises(DataError, match="expected an image file, got something else"):
            load_dataset(str(tmp_path / "list.csv"), [("cat",), ("dog",)], 1.0).tensor(0, (8, 8))
        with pytest.raises(DataError, match=r"expected a folder of class folders, a tar, a CSV file"):
            load_dataset(str(path), None, 1.0)
    done = certmask("certify", tmp_path / "set", "--model", places["model"], "--out", tmp_path / "run.jsonl", code=1)
    assert "expected an image file, got something else than a file at" in done.stderr
    (tmp_path / "batches").mkdir()
    os.mkfifo(tmp_path / "batches/data_batch_1")
    (tmp_path / "batches/test_batch").write_bytes(b"")
    with pytest.raises(DataError, match="got no file at"):
        load_dataset(f"{tmp_path / 'batches'}:train", None, 1.0)


def edited(path: Path, line: int, change: dict[str, Any]) -> None:
    """One row of a results file, changed by hand; a field that becomes ``...`` is taken out."""
    lines = path.read_text().splitlines()
    row = {key: value for key, value in {**json.loads(lines[line - 1]), **change}.items() if value is not ...}
    lines[line - 1] = json.dumps(row)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("change", [{"image": ...}, {"defences": 3}, {"label": "cat"}, {"input_sha256": ...}], ids=str)
def test_an_edited_row_is_named_on_resume(change: dict[str, Any], places: dict[str, str], tmp_path: Path) -> None:
    path = Path(shutil.copy(places["run"], tmp_path / "run.jsonl"))
    edited(path, 3, change)
    before = path.read_bytes()
    command = ("certify", places["list"], "--model", places["model"], *FEW, "--out", path)
    done = certmask(*command, code=1)
    assert f"line 3 of {path}" in done.stderr
    assert next(iter(change)) in done.stderr
    assert path.read_bytes() == before


def test_an_edited_attempt_is_named_on_resume(places: dict[str, str], tmp_path: Path) -> None:
    command = ("attack", places["run"], places["list"], "--model", places["model"], "--images", "1", "--locations", "1",
               "--steps", "1", "--masks-per-step", "1", "--rule", "undefended",
               "--out", tmp_path / "a.jsonl")  # fmt: skip
    certmask(*command)
    edited(tmp_path / "a.jsonl", 2, {"attempt": ["x"]})
    assert f"line 2 of {tmp_path / 'a.jsonl'}" in certmask(*command, code=1).stderr


def printed(*arguments: str | Path, encoding: str) -> tuple[str, str]:
    """What a command writes to streams of an encoding, as bytes read one by one."""
    streams = [TextIOWrapper(BytesIO(), encoding=encoding) for _ in range(2)]
    with (
        patch.object(sys, "argv", ["certmask", *map(str, arguments)]),
        patch.object(sys, "stdout", streams[0]),
        patch.object(sys, "stderr", streams[1]),
        suppress(SystemExit),
    ):
        main()
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)
    return out, err


def test_a_terminal_without_the_letters_gets_plain_ones(places: dict[str, str], tmp_path: Path) -> None:
    """No command dies of a sign, and what JSON says stays JSON."""
    assert "of 224x224 against any 32x32 patch" in printed("plan", encoding="ascii")[0]
    assert "got 16x16" in printed("plan", "--mask", "16", encoding="ascii")[1]
    assert "3 images" in printed("table", places["run"], encoding="ascii")[0]
    assert "Certify 20 real photos" in printed("demo", "--help", encoding="ascii")[0]
    report = ("report", places["run"], "--out", tmp_path / "é×.html")
    assert "\\u00e9x.html" in printed(*report, encoding="ascii")[0].replace("\n", "")
    shutil.copy(places["photo"], tmp_path / "é𝄞.png")
    command = ("predict", tmp_path / "é𝄞.png", "--model", places["model"], *FEW, "--backend", "torch")
    assert "\\u00e9\\ud834\\udd1e.png: " in printed(*command, encoding="ascii")[0]
    (found,) = json.loads(printed(*command, "--json", encoding="ascii")[0])
    assert found["photo"] == str(tmp_path / "é𝄞.png")


def test_a_file_name_that_is_no_text_can_be_printed(places: dict[str, str]) -> None:
    name = os.fsdecode(b"photo-\xff.png")
    told = printed("predict", name, "--model", places["model"], encoding="utf-8")[1]
    assert "error: expected an image file, got nothing at photo-\\udcff.png" in told


def test_progress_is_told_where_there_is_no_bar(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain line on stderr with the share that is done, every so often."""
    monkeypatch.setattr(console, "EVERY", 0.001)
    common = ("--model", places["model"], *FEW)
    certify = certmask("certify", places["list"], *common, "--out", tmp_path / "run.jsonl").stderr
    assert re.search(r"^certifying: \d+ %, \d of 3 images, [\d,]+ pass(es)?, \d+ s$", certify, re.MULTILINE)
    assert re.search(r"^loading the model and measuring the margin, \d+ s$", certify, re.MULTILINE)
    attack = ("attack", tmp_path / "run.jsonl", places["list"], "--model", places["model"], "--rule", "undefended",
              "--images", "1", "--locations", "1", "--steps", "2", "--out", tmp_path / "attempts.jsonl")  # fmt: skip
    told = certmask(*attack).stderr
    assert re.search(r"^attacking: \d+ %, \d of 1 attempts, \d+ s$", told, re.MULTILINE)
    train = ("train", places["data"], "--validation", places["data"], "--model", "test_resnet", "--image", "32",
             "--epochs", "1", "--images", "1", "--out", tmp_path / "trained")  # fmt: skip
    told = certmask(*train).stderr
    assert re.search(r"^training: \d+ %, \d of 1 epochs, \d+ s$", told, re.MULTILINE)


def test_a_quick_run_tells_nothing_and_a_terminal_gets_its_bar(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("certify", places["data"], "--model", places["model"], *FEW)
    assert certmask(*command, "--out", tmp_path / "a.jsonl").stderr == ""
    screen = StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True))
    certmask(*command, "--out", tmp_path / "b.jsonl")
    assert "certifying" in screen.getvalue()
    assert "images · " in screen.getvalue()
    assert "%" not in screen.getvalue()


def test_photos_and_labels_are_checked_before_a_model_is_fetched(places: dict[str, str], tmp_path: Path) -> None:
    """resnet18's weights are not there and would be downloaded: that is not even tried."""
    (tmp_path / "bad.csv").write_text(f"{places['photo']},unicorn\n")
    (tmp_path / "set/cheetah-pictures").mkdir(parents=True)
    shutil.copy(places["photo"], tmp_path / "set/cheetah-pictures/a.png")
    for data, got in (("bad.csv", "'unicorn'"), ("set", "'cheetah-pictures'")):
        for command in (("certify", data), ("reproduce", "table1", "--data", data)):
            done = certmask(*command, "--model", "resnet18", "--out", "out", cwd=tmp_path, code=1)
            assert got in done.stderr
    train = ("train", places["data"], "--validation", "set", "--model", "resnet18", "--pretrained", "--out", "out")
    assert "'cheetah-pictures'" in certmask(*train, cwd=tmp_path, code=1).stderr


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet26w2_cifar", "test_vit", *shipped_models()])
def test_what_is_known_of_a_model_before_its_weights_is_true(name: str, tmp_path: Path) -> None:
    """Classes, size and preprocessing by name alone, beside those of the network itself."""
    card = card_of(name)
    if name in ("resnet26w2_cifar", "test_vit"):
        from safetensors.torch import save_file

        state = build_model(name, len(card.classes), card.size).state_dict()
        save_file({key: value.contiguous() for key, value in state.items()}, tmp_path / "w.safetensors")
        model, own = load_with_card(name, tmp_path / "w.safetensors")
    else:
        model, own = load_with_card(name)
    assert own == card
    assert getattr(model, "num_classes", None) == len(card.classes)


def test_one_pass_is_one_pass(places: dict[str, str]) -> None:
    done = certmask("predict", places["photo"], "--model", places["model"], "--rule", "undefended")
    assert "no alert, 1 pass\n" in done.stdout


def process(*arguments: str, **environment: str) -> str:
    """What a process of the command line prints."""
    command = [*PROGRAM, *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    ).stdout


def test_completion_can_be_shown_and_completes() -> None:
    """Commands, options and the names of rules, as bash asks for them."""
    shown = process("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "complete -o default -F _certmask_completion certmask" in shown

    def completed(words: str) -> list[str]:
        asked = {"_CERTMASK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return process(**asked).split()

    assert completed("certmask pre") == ["predict"]
    assert completed("certmask certify x --rule jury") == ["jury-recovery", "jury-detection"]
    assert completed("certmask plan --tiling sp") == ["spread"]
    assert "--skip-bad" in completed("certmask certify --s")


def test_debug_is_in_the_help() -> None:
    assert "--debug" in certmask("--help").stdout
    assert "--install-completion" in certmask("--help").stdout


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small model with its card."""
    card = Card("test_resnet", ("cat", "dog"), (32, 32), (0.5,) * 3, (0.25,) * 3, 1.0, metrics={"clean_accuracy": 0.5})
    save_model(build_model("test_resnet", 2, (32, 32)), card, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    ("field", "value"),
    [("mean", [0.0, 0.0, 0.0]), ("classes", ["dog", "cat"]), ("crop", 0.9), ("metrics", {"clean_accuracy": 0.99}),
     ("certmask_card", 1), ("digest", "0" * 64)],
)  # fmt: skip
def test_a_card_that_was_edited_is_refused(field: str, value: object, checkpoint: Path) -> None:
    """Also where the weights are untouched and every field could be true."""
    load_classifier(str(checkpoint), batch=2)
    path = checkpoint.with_suffix(".json")
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ClassifierError, match=r"expected the card that was written with .*got an edited one") as error:
        load_classifier(str(checkpoint), batch=2)
    assert "\n" not in str(error.value)
    assert "left out: expected the card" in certmask("models", checkpoint.parent).stdout


@pytest.mark.parametrize("name", shipped_models())
def test_the_shipped_cards_are_bound(name: str, tmp_path: Path) -> None:
    from certmask.zoo.models import SHIPPED

    for suffix in (".json", ".safetensors"):
        shutil.copy(SHIPPED / f"{name}{suffix}", tmp_path)
    path = tmp_path / f"{name}.json"
    load_classifier(str(tmp_path / f"{name}.safetensors"), batch=2)
    path.write_text(path.read_text().replace('"crop": 1.0', '"crop": 0.9', 1))
    with pytest.raises(ClassifierError, match="got an edited one"):
        read_card(tmp_path / f"{name}.safetensors")


def test_a_card_of_the_former_format_is_read_and_told(checkpoint: Path, places: dict[str, str]) -> None:
    path = checkpoint.with_suffix(".json")
    content = {**json.loads(path.read_text()), "certmask_card": 1}
    del content["digest"]
    path.write_text(json.dumps(content))
    done = certmask("predict", places["photo"], "--model", checkpoint, "--rule", "undefended")
    assert done.stderr == f"note: the card of {checkpoint} has no digest: whether it was edited cannot be told\n"


@pytest.mark.parametrize(
    "change", [{"classes": 5}, {"classes": [1, 2]}, {"size": "32"}, {"mean": [0.5]}, {"crop": "all"}, {"recipe": None}],
    ids=str,
)  # fmt: skip
def test_a_field_that_cannot_be_on_a_card_is_named(change: dict[str, Any], checkpoint: Path) -> None:
    path = checkpoint.with_suffix(".json")
    content = {**json.loads(path.read_text()), "certmask_card": 1, **change}
    del content["digest"]
    path.write_text(json.dumps(content))
    with pytest.raises(ClassifierError, match=rf"expected {next(iter(change))} as on a model card"):
        read_card(checkpoint)


def test_a_card_written_again_is_the_same_card(checkpoint: Path) -> None:
    card, before = read_card(checkpoint), checkpoint.with_suffix(".json").read_bytes()
    write_card(card, checkpoint)
    assert checkpoint.with_suffix(".json").read_bytes() == before


def test_python_runs_the_module_under_its_name() -> None:
    done = subprocess.run([sys.executable, "-m", "certmask", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: certmask " in done.stdout


def test_a_warning_of_the_library_is_a_note_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the line of the program from which it comes; those of other libraries stay as they are."""
    from certmask.cli.streams import notes_on_stderr

    source = str(Path(console.__file__))
    with notes_on_stderr(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("too little memory: it goes on", UserWarning, source, 1)
    assert capsys.readouterr().err == "note: too little memory: it goes on\n"


def test_ctrl_c_is_no_error_that_a_library_may_pass_over() -> None:
    """A model that "fails in bf16" because of it would go on in fp32."""
    from certmask.cli import Stopped

    assert not issubclass(Stopped, Exception)


@pytest.mark.parametrize(
    ("rules", "options", "reason"),
    [
        (["patchguard"], {"theta": 0.0}, "got --theta"),
        (["patchguard"], {"threshold": 0.0}, "got --threshold"),
        (["patchguard"], {"pooled": True}, "got --pooled"),
        (["patchguard"], {"pairs": "all"}, "got --pairs"),
        (["patchguard"], {"aggregate": "mean-log-probability"}, "got --aggregate"),
        (["patchguard"], {"share": 1.0}, "expected a share"),
        (["clipped-bagnet"], {"share": 0.3}, "expected --share beside a rule that takes it, such as patchguard"),
        (["patchguard"], {"slope": 0.3}, "expected --slope beside a rule that takes it, such as clipped-bagnet"),
        (["clipped-bagnet"], {"slope": 0.0}, "expected a slope above 0, got 0.0"),
        (["patchguard"], {"backend": "openvino"}, "expected the backend torch"),
        (["patchguard"], {"views": "plain,mirror"}, "expected plain views"),
    ],
)
def test_options_that_rules_on_cells_do_not_take(rules: list[str], options: dict[str, Any], reason: str) -> None:
    Choices("bagnet17", rules=rules).check()
    with pytest.raises(UsageError, match=reason):
        Choices("bagnet17", rules=rules, **options).check()
