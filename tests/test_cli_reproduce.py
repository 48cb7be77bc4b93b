"""``certmask reproduce`` from the command line: a small network on small photos, resumed, reported alone, misused."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Done, certmask, outcomes
from PIL import Image

from certmask.certificate import Guarantee
from certmask.experiments import EXPERIMENTS
from certmask.results.run import read_run
from certmask.threat import Patch
from certmask.tuning import save_defence, settings
from certmask.zoo import Card, build_model, save_model
from certmask.zoo.networks import MASKS

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parent.parent
MEASURED = {name: experiment for name, experiment in EXPERIMENTS.items() if experiment.patches_on("mine")}
"""Those for photos of one's own."""
QUICK = ("--batch", "32", "--precision", "fp32", "--backend", "torch", "--device", "cpu")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, photos: dict[str, Path]) -> Path:
    """Four small photos of two classes and a network for 32×32 input that takes everything for a cup, called a DeiT."""
    folder = tmp_path_factory.mktemp("reproduce")
    for name, photo in photos.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            part = Image.open(photo).convert("RGB").crop((40 * number, 30, 40 * number + 200, 230))
            part.resize((32, 32)).save(folder / "photos" / name / f"{number}.png")
    torch.manual_seed(0)
    card = Card("test_vit", ("cat", "cup"), (32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), 1.0)
    model = build_model("test_vit", 2, (32, 32))
    model.head.bias.data[1] = 9.0  # type: ignore[union-attr,operator]
    save_model(model, card, folder / "deit" / "model.safetensors")
    return folder


def reproduce(here: Path, *arguments: str | Path, code: int = 0, out: str | Path = "out") -> Done:
    model = () if "--model" in arguments or "--from" in arguments else ("--model", "deit/model.safetensors")
    return certmask("reproduce", *arguments, *model, "--out", out, *QUICK, cwd=here, code=code)


def content(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name / "table.json").read_text())
    return found


def test_a_table_is_run_continued_and_reported_again_without_the_model(here: Path, tmp_path: Path) -> None:
    first = reproduce(here, "table4", "--data", "imagenet=photos", out=tmp_path)
    results = tmp_path / "table4" / "deit--imagenet--patch39.jsonl"
    rows, table = outcomes(results), (tmp_path / "table4" / "table.json").read_bytes()
    assert len(rows) == 4
    assert "82.0" in first.stdout
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    reproduce(here, "table4", "--data", "imagenet=photos", out=tmp_path)
    assert outcomes(results) == rows
    done = results.read_bytes()
    again = reproduce(here, "table4", "--data", "imagenet=photos", out=tmp_path)
    assert results.read_bytes() == done

    shutil.copytree(tmp_path, tmp_path / "alone")
    for file in (tmp_path / "alone" / "table4").glob("table.*"):
        file.unlink()
    read = reproduce(tmp_path, "table4", "--from", "alone", out="elsewhere")
    markdown = (tmp_path / "elsewhere" / "table4" / "table.md").read_text()
    assert markdown == (tmp_path / "table4" / "table.md").read_text()
    assert markdown in read.stdout
    assert markdown in again.stdout
    assert content(tmp_path / "elsewhere", "table4") == content(tmp_path, "table4")
    assert (tmp_path / "elsewhere" / "table4" / "table4--deit--imagenet--patch39.png").stat().st_size > 10_000
    measured = [row["measured"]["published_test"] for row in json.loads(table)["rows"]]
    assert measured == [row["measured"]["published_test"] for row in content(tmp_path, "table4")["rows"]]


def test_from_writes_beside_the_results_unless_told(here: Path, tmp_path: Path) -> None:
    reproduce(here, "table2", "--data", "cifar10=photos", out=tmp_path)
    (tmp_path / "table2" / "table.csv").unlink()
    certmask("reproduce", "table2", "--from", tmp_path, cwd=here)
    assert (tmp_path / "table2" / "table.csv").is_file()
    (row,) = content(tmp_path, "table2")["rows"]
    assert row["reported"]["clean"] == 99.0
    assert row["measured"]["passes_to_answer"] == 1


def test_packed_results_are_reported_and_two_forms_refused(here: Path, tmp_path: Path) -> None:
    reproduce(here, "table2", "--data", "cifar10=photos", out=tmp_path / "kept")
    (results,) = (tmp_path / "kept" / "table2").glob("*.jsonl")
    plain = content(tmp_path / "kept", "table2")
    packed = results.with_name(f"{results.name}.gz")
    packed.write_bytes(gzip.compress(results.read_bytes()))
    refused = certmask("reproduce", "table2", "--from", "kept", cwd=tmp_path, code=1).stderr
    assert "got both" in " ".join(refused.split())
    results.unlink()
    for name in ("table2", "all"):
        certmask("reproduce", name, "--from", "kept", "--out", name, cwd=tmp_path)
        (row,), (expected,) = content(tmp_path / name, "table2")["rows"], plain["rows"]
        assert row["measured"].pop("run") == packed.name
        assert row["measured"] == {key: value for key, value in expected["measured"].items() if key != "run"}


def check_pages(folder: Path) -> None:
    """The page of results has a form for every experiment: tables, comparisons, plots, the command that ran it."""
    runs: Any = importlib.import_module("runs")
    tables: Any = importlib.import_module("experiment_tables")
    for name, experiment in MEASURED.items():
        text = tables.measured_tables(folder / name)
        assert text.count("**deit on mine") == len(experiment.patches_on("mine"))
        assert all(f"| {row['defence']} |" in text for row in content(folder, name)["rows"])
        paired = tables.paired_tables(folder / name) if experiment.comparisons else ""
        ran = {row["defence"] for row in content(folder, name)["rows"]}
        asked = [one.question for one in experiment.comparisons if {one.first, one.second} <= ran]
        assert all(question in paired for question in asked)
        assert not experiment.panels or f"](../images/{name}--deit--mine" in tables.plots(folder / name)
    assert {line.split()[2] for line in runs.commands(folder).splitlines()} == MEASURED.keys()


def check_lines(stdout: str, folder: Path) -> None:
    """One line per experiment, no table; runs and rows as in the files."""
    assert "|" not in stdout
    for name, experiment in MEASURED.items():
        rows = content(folder, name)["rows"]
        runs = len({row["measured"]["run"] for row in rows})
        (line,) = (line for line in stdout.splitlines() if line.endswith(f" in {folder / name / 'table.md'}"))
        amounts = f"{runs} run{'s' * (runs > 1)}, {len(rows)} row{'s' * (len(rows) > 1)} of defences"
        assert line.startswith(f"{experiment.title} ({experiment.place}): {amounts} in ")
    (line,) = (line for line in stdout.splitlines() if line.endswith(f" in {folder / 'counts' / 'table.md'}"))
    assert "no runs, 5 rows of arithmetic" in line


def test_every_experiment_runs(here: Path, tmp_path: Path) -> None:
    done = reproduce(here, "all", "--data", "mine=photos", "--images", "1", "--margin", "0", out=tmp_path)
    for name, experiment in MEASURED.items():
        found = content(tmp_path, name)
        declared = [one for patch in experiment.patches_on("mine") for one in experiment.defences(patch)]
        expected = [one.name for one in declared if not one.tuned and one.network == MASKS]
        assert sorted(row["defence"] for row in found["rows"]) == sorted(expected)
        assert all(row["reported"] is None for row in found["rows"])
        assert len(found["reported_only"]) == len(experiment.reported)
    assert len(content(tmp_path, "counts")["rows"]) == 5
    check_pages(tmp_path)
    check_lines(done.stdout, tmp_path)
    check_lines(reproduce(here, "all", "--from", tmp_path, out=tmp_path / "again").stdout, tmp_path / "again")


def test_a_tuned_defence_runs_beside_the_others(here: Path, tmp_path: Path) -> None:
    """As the file says, under the name that the experiment has for it; one against another patch is refused at once."""
    for side in (5, 6):
        tuned = list(settings((32, 32), Patch(side, side)))[-1]
        save_defence(tmp_path / f"{side}.json", tuned, {"on": "nothing"})
    asked = ("zoom", "--data", "imagenet=photos", "--images", "2", "--margin", "0", "--defence")
    reproduce(here, *asked, tmp_path / "5.json", out=tmp_path)
    (path,) = (tmp_path / "zoom").glob("*.jsonl")
    run = read_run(path)
    assert run.defences["zoom, tuned"]["rule"] == list(settings((32, 32), Patch(5, 5)))[-1].describe()["rule"]
    assert {"zoom", "zoom, tuned"} <= run.rows[0]["defences"].keys()
    assert "zoom, tuned" in {row["defence"] for row in content(tmp_path, "zoom")["rows"]}
    refused = reproduce(here, *asked, tmp_path / "6.json", out=tmp_path / "other", code=2)
    assert "expected a defence for recovery on (32, 32) against any 5×5 patch" in refused.stderr
    warns = next(settings((32, 32), Patch(5, 5), guarantee=Guarantee.DETECTION))
    save_defence(tmp_path / "warns.json", warns, {"on": "nothing"})
    refused = reproduce(here, *asked, tmp_path / "warns.json", out=tmp_path / "other", code=2)
    assert "got one for detection on" in refused.stderr
    odd = ("table4", "--data", "imagenet=photos", "--defence", tmp_path / "5.json", "--dry-run")
    assert "expected --defence with an experiment that has a tuned one (zoom)" in reproduce(here, *odd, code=2).stderr
    two = (*asked, tmp_path / "5.json", "--model", "deit/model.safetensors", "--model", "resnet26-cifar10", "--dry-run")
    assert "expected a defence that says which model it was tuned for" in reproduce(here, *two, code=2).stderr
    few = (*asked, tmp_path / "5.json", "--most-masks", "100", "--dry-run")
    assert "passes" in reproduce(here, *few).stdout
    assert "got no/such.json" in reproduce(here, *asked, "no/such.json", out=tmp_path / "other", code=2).stderr
    assert not (tmp_path / "other").exists()


def test_each_model_has_its_own_tuned_defence(here: Path, tmp_path: Path) -> None:
    """Files say which model they are for; one for nobody, and two for one model, are refused before anything runs."""
    *_, first, second = settings((32, 32), Patch(5, 5))
    shutil.copytree(here / "deit", tmp_path / "twin")
    for name, tuned, model in (("a", first, "deit"), ("b", second, "twin"), ("c", second, "deit")):
        save_defence(tmp_path / f"{name}.json", tuned, {"model": {"name": model}})
    both = [word for name in "ab" for word in ("--defence", str(tmp_path / f"{name}.json"))]
    asked = ["zoom", "--model", "deit/model.safetensors", "--data", "mine=photos", "--images", "1", "--margin", "0"]
    asked, twin = [*asked, *both], ["--model", str(tmp_path / "twin" / "model.safetensors")]
    reproduce(here, *asked, *twin, out=tmp_path)
    for model, own in (("deit", first), ("twin", second)):
        (path,) = (tmp_path / "zoom").glob(f"{model}--*.jsonl")
        assert read_run(path).defences["zoom, tuned"]["rule"] == own.describe()["rule"]
    missed = reproduce(here, *asked, out=tmp_path / "other", code=2).stderr
    assert f"expected --defence for one of deit, got {tmp_path / 'b.json'} for twin" in " ".join(missed.split())
    third = ("--defence", tmp_path / "c.json")
    assert "got several for deit" in reproduce(here, *asked, *twin, *third, out=tmp_path / "other", code=2).stderr
    assert not (tmp_path / "other").exists()


def test_networks_of_the_papers_data_sets_run_on_those(here: Path) -> None:
    """One without is run on all; a data set that is left without a network is told."""
    models = ("deit/model.safetensors", "resnet26-cifar10", "deit_tiny-imagenette", "efficientnet-lite0")
    named = [word for model in models for word in ("--model", model)]
    data = [word for name in ("imagenet", "imagenette", "CIFAR-10", "mine") for word in ("--data", f"{name}=nowhere")]
    plan = reproduce(here, "table2", *named, *data, "--dry-run").stdout
    found = set(re.findall(r"table2/(\S+)--patch", plan))
    assert {one for one in found if not one.endswith("--mine")} == {
        "deit--imagenet", "deit--imagenette", "deit--CIFAR-10", "resnet26-cifar10--CIFAR-10",
        "deit_tiny-imagenette--imagenette", "efficientnet-lite0--imagenet",
    }  # fmt: skip
    assert sum(one.endswith("--mine") for one in found) == len(models)
    alone = ("--model", "resnet26-cifar10", "--data", "imagenet=nowhere")
    assert "resnet26-cifar10--imagenet" in reproduce(here, "table2", *alone, "--dry-run").stdout
    missed = reproduce(here, "table2", *alone, "--data", "cifar10=nowhere", "--dry-run", code=2).stderr
    assert "expected a model for every data set, got none for imagenet" in missed


def test_covers_with_too_many_masks_see_few_images(here: Path, tmp_path: Path) -> None:
    options = ("--data", "photos", "--patch-share", "2", "--most-masks", "500", "--few-images", "1")
    done = reproduce(here, "table1", *options, out=tmp_path)
    names = sorted(path.name for path in (tmp_path / "table1").glob("*.jsonl"))
    assert names == ["deit--photos--patch32-few.jsonl", "deit--photos--patch32.jsonl"]
    few, usual = (outcomes(tmp_path / "table1" / name) for name in names)
    assert (len(few), len(usual)) == (1, 4)
    ((_, row),) = few.items()
    assert {"published k=6", "published, exact minimum k=1"} <= row["defences"].keys()
    assert "| published k=6 \\* |" in done.stdout
    assert "only a handful of images" in done.stdout


def test_a_dry_run_plans_without_photos_or_weights(here: Path, tmp_path: Path) -> None:
    options = ("--data", "imagenet=nowhere", "--images", "1000", "--dry-run")
    done = reproduce(here, "table1", "--model", "vit_base_patch16_224", *options, out=tmp_path / "none")
    assert "table1/vit_base_patch16_224--imagenet--patch32 | 1,624 | 12,398 | 1,000 | 14,022,000" in done.stdout
    assert not (tmp_path / "none").exists()
    assert "1 each" in reproduce(here, "table2", "--data", "x", "--dry-run").stdout
    default = certmask("reproduce", "table3", "--data", "imagenet=nowhere", "--dry-run").stdout
    assert all(name in default for name in ("resnetv2", "vit", "resmlp"))


def test_help_names_every_experiment() -> None:
    words = certmask("reproduce", "--help").stdout.replace("│", " ").split()
    assert f"{', '.join(EXPERIMENTS)}, or all." in " ".join(words)


def test_counts_need_nothing(tmp_path: Path) -> None:
    done = certmask("reproduce", "counts", "--out", tmp_path)
    assert "| 0.4 % | 14 | 16 | 12,544 | 75,264 | 75,264 | 5,041 | 30,246 | 149 % |" in done.stdout
    assert (tmp_path / "counts" / "table.csv").read_text().startswith("patch,side,mask,")


@pytest.mark.parametrize(
    ("arguments", "got", "code"),
    [
        (("table9", "--data", "photos"), "'table9'", 2),
        (("table1",), "--data", 2),
        (("table1", "--data", "nowhere"), "'nowhere'", 1),
        (("table1", "--data", "=photos"), "''", 2),
        (("table1", "--data", "photos", "--model", "no_such_model"), "'no_such_model'", 1),
        (("table1", "--data", "photos", "--model", "no_such_model", "--dry-run"), "'no_such_model'", 1),
        (("table1", "--data", "photos", "--model", "none.safetensors"), "none.safetensors", 1),
        (("table1", "--data", "photos", "--model", "deit/model.safetensors=w.pt"), "w.pt", 1),
        (("table1", "--data", "photos", "--data", "photos"), "twice", 2),
        (("table1", "--data", "photos", "--patch-share", "7"), "'7'", 2),
        (("table1-photo", "--data", "photos"), "to 224×224), got none", 2),
        (("table1-photo", "--data", "photos", "--dry-run"), "table1-photo for deit on data named photos", 2),
        (("table1-photo", "--data", "photos", "--patch-share", "2"), "cifar10 2, 5), got '2'", 2),
        (
            ("table4", "--data", "demo-cifar10", "--patch-share", "2.4"),
            "cifar10 2.4; any other as imagenet), got '2.4'",
            2,
        ),
        (("table2", "--data", "photos", "--patch-share", "3"), "expected no choice of patches where there are none", 2),
        (("table1", "--data", "photos", "--patch-share", ""), "''", 2),
        (("table1", "--data", "photos", "--margin", "wide"), "'wide'", 2),
        (("table1", "--data", "photos", "--margin", "-1"), "-1", 2),
        (("table1", "--from", "nowhere"), "none", 1),
        (("all", "--from", "nowhere"), "nowhere", 1),
        (("table9", "--from", "nowhere"), "'table9'", 2),
        (("counts", "--from", "/dev/null"), "null", 1),
    ],
)
def test_nonsense(arguments: tuple[str, ...], got: str, code: int, here: Path, tmp_path: Path) -> None:
    out = "/dev/null" if arguments[0] == "counts" else tmp_path / "out"
    assert got in " ".join(reproduce(here, *arguments, code=code, out=out).stderr.split())


def test_other_inputs_do_not_continue_a_run(here: Path, tmp_path: Path) -> None:
    reproduce(here, "table2", "--data", "photos", "--images", "2", out=tmp_path)
    assert "data.images" in reproduce(here, "table2", "--data", "photos", code=1, out=tmp_path).stderr


@pytest.mark.parametrize("option", [("--model", "x"), ("--data", "x"), ("--images", "5"), ("--patch-share", "3"),
                                    ("--dry-run",)], ids=str)  # fmt: skip
def test_a_report_alone_takes_no_choice_of_runs(option: tuple[str, ...], tmp_path: Path) -> None:
    done = certmask("reproduce", "table1", "--from", tmp_path, *option, code=2)
    assert "expected no choice of models, data, images, patches or defence with --from" in done.stderr


def test_missing_photos_are_told_before_a_model_is_fetched() -> None:
    for command in (
        ("reproduce", "table1", "--data", "imagenet=nowhere"),
        ("certify", "nowhere", "--model", "resnet18"),
    ):
        done = certmask(*command, code=1)
        assert (
            "expected a folder of class folders, a tar, a CSV file, a URL, tar shards, Parquet files or a built-in set"
            in done.stderr
        )
        assert "'nowhere'" in done.stderr
    assert "expected rule to be" in certmask("certify", "demo", "--model", "resnet18", "--rule", "odd", code=2).stderr


def test_a_table_has_one_form(tmp_path: Path) -> None:
    done = certmask("table", tmp_path / "none.jsonl", "--json", "--markdown", code=2)
    assert "expected either --json or --markdown, got both" in done.stderr
