"""The other defences from the command line: networks of bands and cells, certified, attacked, reproduced, misused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Done, certmask, outcomes
from PIL import Image
from torch import nn

from certmask.experiments import EXPERIMENTS
from certmask.experiments.paper_tables import PRINTED_1
from certmask.results.run import read_run
from certmask.zoo import Card, build_model, save_model
from certmask.zoo.bagnet import BagNet
from certmask.zoo.networks import BANDS, CELLS
from certmask.zoo.timm_import import import_timm
from certmask.zoo.told import SixChannels
from certmask.zoo.variants import CifarResNet

torch.set_num_threads(1)

QUICK = ("--batch", "4", "--precision", "fp32", "--device", "cpu")
BAND = 4
TOLD = ("DS", "DS, place by place", "DS, first classes, place by place", "PG-DS")
LOCAL = ("undefended, all cells", "PG-BN", "CBN", "CBN, slope 0.1")


def bagnet9_small(num_classes: int, **_: Any) -> nn.Module:
    """A BagNet-9 of one bottleneck per stage: its cells see what those of the large one see."""
    return BagNet(9, num_classes, width=8, blocks=(1, 1, 1, 1))


def told_small(num_classes: int, **_: Any) -> nn.Module:
    """A network of six channels with few layers."""
    return SixChannels(CifarResNet(1, 8, num_classes, colours=6))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, photos: dict[str, Path]) -> Path:
    """Four photos of two classes; two networks of bands, a BagNet and one of no use here, all of which see cups."""
    folder = tmp_path_factory.mktemp("others")
    for small in (bagnet9_small, told_small):
        import_timm().models.register_model(small)
    for name, photo in photos.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            part = Image.open(photo).convert("RGB").crop((40 * number, 30, 40 * number + 200, 230))
            part.resize((32, 32)).save(folder / "photos" / name / f"{number}.png")
    grey: dict[str, Any] = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    told: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "recipe": {"band": BAND}}
    for name, architecture, bias, options in (
        ("bands", "told_small", 9.0, told),
        ("cells", "bagnet9_small", 200.0, grey),
        ("tokens", "smoothed_deit_tiny_patch16_224", 9.0, told),
        ("plain", "test_resnet", 9.0, grey),
    ):
        torch.manual_seed(0)
        model = build_model(architecture, 2, (32, 32))
        (head,) = (tensor for key, tensor in model.named_parameters() if tensor.shape == (2,) and key.endswith("bias"))
        head.data.copy_(torch.tensor([-bias, bias]))
        save_model(
            model, Card(architecture, ("cat", "cup"), (32, 32), crop=1.0, **options), folder / f"{name}.safetensors"
        )
    return folder


def run(here: Path, *arguments: str | Path, code: int = 0, model: str = "cells", **options: Any) -> Done:
    return certmask(*arguments, "--model", f"{model}.safetensors", *QUICK, cwd=here, code=code, **options)


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / name / "table.json").read_text())["rows"]
    return found


@pytest.mark.parametrize(("model", "names"), [("bands", TOLD), ("cells", LOCAL)])
def test_table_1_runs_the_defences_for_the_network_beside_the_papers_figures(
    model: str, names: tuple[str, ...], here: Path, tmp_path: Path
) -> None:
    """On a network of any name: DS, PG-DS, PG-BN and CBN bring their own in the paper, too."""
    planned = run(here, "reproduce", "table1", "--data", "cifar10=photos", "--dry-run", model=model).stdout
    passes = 33 if model == "bands" else 1
    assert f"| table1/{model}--cifar10--patch35 | {passes} | 0 | all | {passes} each |" in planned
    run(here, "reproduce", "table1", "--data", "cifar10=photos", "--out", tmp_path, model=model)
    rows = table(tmp_path, "table1")
    assert [row["defence"] for row in rows] == [*names, *names]
    printed = {line.split()[0]: list(map(float, line.split()[-4:])) for line in PRINTED_1.strip().splitlines()}
    for row in rows:
        beside = printed.get(row["defence"])
        told = row["reported"] and [row["reported"]["clean"], row["reported"]["robust"]]
        assert told == (beside and beside[:2] if row["patch"] == "0.4 %" else beside and beside[2:])
        assert row["measured"]["images"] == 4
        assert row["measured"]["clean_accuracy"] == 0.5
        if row["defence"] != LOCAL[0]:
            assert row["measured"]["certified_recovery"] == 0.5
        assert row["measured"]["passes_to_answer"] == passes - (model == "bands")
    small, large = (read_run(tmp_path / "table1" / f"{model}--cifar10--patch{side}.jsonl") for side in (14, 35))
    assert {one["threat"]["height"] for one in small.defences.values()} == {2}
    assert {one["threat"]["height"] for one in large.defences.values()} == {5}
    if model == "bands":
        assert {tuple(one["cover"]["mask"]) for one in large.defences.values()} == {(32, 32 - BAND)}
    done = large.path.read_bytes()
    again = run(here, "reproduce", "table1", "--data", "cifar10=photos", "--out", tmp_path, model=model)
    assert large.path.read_bytes() == done
    unit = "in sums of local evidence" if model == "cells" else "in probabilities"
    assert f"{unit}" in again.stdout


@pytest.mark.parametrize(("model", "names"), [("bands", TOLD), ("cells", LOCAL), ("plain", ())])
def test_the_patch_in_the_photo(model: str, names: tuple[str, ...], here: Path, tmp_path: Path) -> None:
    """A network of 32×32 pixels meets 2 and 5 of them."""
    run(here, "reproduce", "table1-photo", "--data", "CIFAR-10=photos", "--out", tmp_path, "--images", "2", model=model)
    rows = table(tmp_path, "table1-photo")
    assert [row["patch"] for row in rows] == sorted(row["patch"] for row in rows)
    assert {row["patch"] for row in rows} == {"2 px in the photo", "5 px in the photo"}
    found = {row["defence"] for row in rows}
    masked = {"undefended", "PatchCleanser 6×6", "jury recovery k=4, aligned", "zoom", "zoom detection"}
    assert found == (set(names) or masked)
    for reached, side in ((34, 2), (55, 5)):
        kept = read_run(tmp_path / "table1-photo" / f"{model}--CIFAR-10--patch{reached}.jsonl")
        threats = [one["threat"] for one in kept.defences.values()]
        assert {(threat["height"], threat["width"]) for threat in threats} == {(side, side)}


def test_larger_patches_leave_out_bands_with_which_nothing_could_be_certified(here: Path, tmp_path: Path) -> None:
    """A band of 4 and a patch of 13 pixels touch half of 32 bands."""
    asked = ("reproduce", "figure-patch-size", "--data", "imagenet=photos", "--images", "1", "--out", tmp_path)
    for model in ("bands", "cells"):
        run(here, *asked, model=model)
    rows = table(tmp_path, "figure-patch-size")
    patches = {name: {row["patch"] for row in rows if row["defence"] == name} for name in (*TOLD, *LOCAL)}
    every = {patch.label for patch in EXPERIMENTS["figure-patch-size"].every_patch}
    assert [patches[name] for name in TOLD] == [{"30 px", "50 px", "70 px"}] * len(TOLD)
    assert [patches[name] for name in LOCAL] == [every] * len(LOCAL)


def test_an_experiment_without_a_defence_for_the_network_is_told_at_once(here: Path, tmp_path: Path) -> None:
    told = run(here, "reproduce", "table4", "--data", "imagenet=photos", "--out", tmp_path / "none", code=2).stderr
    assert "expected a defence of table4 for cells on data named imagenet, got none" in " ".join(told.split())
    assert not (tmp_path / "none").exists()


def test_every_declared_kind_of_network_is_run_here() -> None:
    kinds = {one.name: one.network for patch in EXPERIMENTS["table1"].every_patch
             for one in EXPERIMENTS["table1"].defences(patch)}  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == BANDS} == set(TOLD)
    assert {name for name, kind in kinds.items() if kind == CELLS} == set(LOCAL)


RULES = ("--rule", "undefended", "--rule", "patchguard", "--rule", "clipped-bagnet")


def test_local_rules_certify_and_withstand_an_attack(here: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    done = run(here, "certify", "photos", *RULES, "--patch", "5", "--out", out)
    assert "patchguard: 3×3 cells, each sees 9×9 pixels; one pass" in done.stdout
    rows = outcomes(out)
    assert {row["passes"] for row in rows.values()} == {1}
    for name in ("patchguard", "clipped-bagnet"):
        assert sum(row["defences"][name]["certified"] for row in rows.values()) == 2
    attack = ("attack", out, "photos", "--model", "cells.safetensors", "--out", tmp_path / "attack.jsonl",
              "--images", "1", "--locations", "2", "--steps", "5")  # fmt: skip
    table = certmask(*attack, cwd=here).stdout
    assert "patchguard" in table
    attempts = read_run(tmp_path / "attack.jsonl").rows
    assert {row["defence"] for row in attempts} == {"undefended", "patchguard", "clipped-bagnet"}


def test_rules_of_bands_withstand_an_attack(here: Path, tmp_path: Path) -> None:
    out, made = tmp_path / "run.jsonl", tmp_path / "attack.jsonl"
    rules = ("--rule", "smoothing", "--rule", "patchguard-smoothing")
    run(here, "certify", "photos", *rules, "--patch", "5", "--margin", "0", "--out", out, model="bands")
    certmask("attack", out, "photos", "--model", "bands.safetensors", "--out", made, "--images", "1",
             "--locations", "2", "--steps", "4", "--masks-per-step", "4", cwd=here)  # fmt: skip
    attempts = read_run(made).rows
    assert {row["defence"] for row in attempts} == {"smoothing", "patchguard-smoothing"}
    assert not any(row["picture"] for row in attempts)


def test_a_share_is_that_of_robust_masking(here: Path, tmp_path: Path) -> None:
    run(
        here,
        "certify",
        "photos",
        "--rule",
        "patchguard",
        "--share",
        "0.4",
        "--margin",
        "0.5",
        "--out",
        tmp_path / "s.jsonl",
    )
    rule = read_run(tmp_path / "s.jsonl").defences["patchguard"]["rule"]
    assert (rule["threshold"], rule["margin"]) == (0.4, 0.5)


def test_predict_says_what_is_guaranteed_with_local_rules(here: Path) -> None:
    photo = Path("photos", "cup", "0.png")
    for rule in ("patchguard", "clipped-bagnet"):
        (record,) = json.loads(run(here, "predict", photo, "--rule", rule, "--patch", "5", "--json").stdout)
        assert (record["name"], record["certified"], record["guarantee"]) == ("cup", True, "recovery")
        assert (record["passes"], record["rule"]) == (1, rule)
    assert "one pass" in record["cover"]


def test_bands_are_as_wide_as_those_the_network_was_trained_on(here: Path, tmp_path: Path) -> None:
    for name, more, width in (("own", (), BAND), ("asked", ("--band", "6"), 6)):
        out = tmp_path / f"{name}.jsonl"
        run(here, "certify", "photos", "--rule", "smoothing", "--rule", "patchguard-smoothing", *more, "--patch", "2",
            "--images", "1", "--out", out, model="bands")  # fmt: skip
        assert {tuple(one["cover"]["mask"]) for one in read_run(out).defences.values()} == {(32, 32 - width)}


@pytest.mark.parametrize("model", ["bands", "cells", "tokens"])
def test_networks_of_bands_and_cells_compute_with_torch_by_default(model: str, here: Path, tmp_path: Path) -> None:
    rule = "patchguard" if model == "cells" else "smoothing"
    out = tmp_path / "run.jsonl"
    run(
        here,
        "certify",
        "photos",
        "--rule",
        rule,
        "--patch",
        "2",
        "--images",
        "1",
        "--backend",
        "auto",
        "--out",
        out,
        model=model,
    )
    assert read_run(out).model["backend"] == "torch"


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        (("--rule", "patchguard", "--rule", "zoom"), "expected rules on local evidence alone"),
        (("--rule", "patchguard", "--mask", "9"), "got --mask"),
        (("--rule", "patchguard", "--levels", "2,3"), "got --levels"),
        (("--rule", "patchguard", "--views", "plain,mirror"), "expected plain views"),
        (("--rule", "clipped-bagnet", "--theta", "0.3"), "got --theta"),
        (("--rule", "clipped-bagnet", "--band", "3"), "got --band"),
        (("--rule", "clipped-bagnet", "--threshold", "0.3"), "got --threshold"),
        (("--rule", "patchguard", "--last-resort", "bare"), "got --last-resort"),
        (("--rule", "patchguard", "--pooled"), "got --pooled"),
        (("--rule", "patchguard", "--defence", "tuned.json"), "got --defence"),
        (("--rule", "patchguard", "--patch", "33"), "33"),
        (("--rule", "patchguard", "--share", "1"), "1"),
        (("--rule", "patchguard", "--margin", "-1"), "-1"),
        (("--rule", "patchguard", "--rule", "patchguard"), "expected each rule once"),
    ],
)
def test_wrong_company_is_told_before_the_network_is_read(
    arguments: tuple[str, ...], got: str, here: Path, tmp_path: Path
) -> None:
    told = run(here, "certify", "photos", *arguments, "--out", tmp_path / "x.jsonl", code=2).stderr
    assert got in " ".join(told.split())
    assert not (tmp_path / "x.jsonl").exists()


def test_what_local_rules_cannot_be_asked(here: Path, tmp_path: Path) -> None:
    photo = Path("photos", "cup", "0.png")
    drawn = run(here, "predict", photo, "--rule", "patchguard", "--draw", tmp_path / "x.png", code=2).stderr
    assert "expected a rule that looks through masks to draw" in " ".join(drawn.split())
    plain = run(here, "certify", "photos", "--rule", "patchguard", "--out", tmp_path / "x.jsonl", code=2, model="plain")
    assert "expected a network with cells for" in " ".join(plain.stderr.split())
    assert not (tmp_path / "x.jsonl").exists()
