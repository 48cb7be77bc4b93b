"""The real command line on real photos, with the real model where its answer matters, and fed with nonsense."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import PROGRAM, certmask, outcomes
from PIL import Image

from certmask.certificate import BASES
from certmask.cli.choices import Choices
from certmask.cli.sizes import optional_size
from certmask.covers import zoom_cover
from certmask.covers.default import Wishes, suited_cover
from certmask.defences import MaskedDefence
from certmask.deployed.tokens import on_tokens
from certmask.rules import JuryRecovery
from certmask.rules.registry import suits
from certmask.threat import Patch, Size
from certmask.tuning import save_defence

SMALL = ("--patch", "32", "--levels", "2", "--batch", "8", "--precision", "fp32")
"""Few masks for the default model."""

FEW = ("--patch", "5", "--levels", "2", "--batch", "8", "--precision", "fp32")
"""Few masks for the little model."""

GRID = ("--patch", "5", "--mask", "18", "--batch", "8", "--precision", "fp32")
"""The same for rules of one cover."""


def plan(*arguments: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(certmask("plan", *arguments, "--json").stdout)
    return figures


def test_plan_prints_both_counts() -> None:
    minimal = plan("--image", "224", "--patch", "39", "--mask", "56", "--tiling", "minimal", "--fold", "1x1")
    assert (minimal["masks"], minimal["min_fold"], minimal["paper_count"]) == (121, 1, 196)
    offset = plan("--image", "224", "--patch", "39", "--mask", "56", "--tiling", "offset", "--fold", "3x2")
    assert offset["paper_count"] == 1080
    assert offset["min_fold"] >= 6
    assert plan("--patch", "32", "--mask", "48", "--tiling", "minimal", "--fold", "3x2")["masks"] == 864
    keys = {"masks", "min_fold", "max_fold", "districts", "pairs", "exact_minimum", "paper_count"}
    assert keys <= minimal.keys()


def test_plan_in_words_and_within_a_budget(tmp_path: Path) -> None:
    assert "64×64" in certmask("plan").stdout
    assert plan("--budget", "700", "--fold", "2")["mask"] == [96, 96]
    assert plan("--patch", "32", "--mask", "32")["paper_count"] is None
    certmask("plan", "--image", "100x150", "--patch", "10x20", "--mask", "30x40", "--draw", tmp_path / "plan.png")
    assert Image.open(tmp_path / "plan.png").size[0] > 800


def test_plan_counts_the_passes_of_levels(tmp_path: Path) -> None:
    """At least those of the first level, at most all; the words say the same as the numbers."""
    found = plan("--align", "16")
    sizes = [(level["mask"], level["masks"], level["answer"], level["proof"]) for level in found["levels"]]
    assert sizes == [([128] * 2, 4, 4, 10), ([96] * 2, 9, 13, 55), ([64] * 2, 36, 49, 721), ([48] * 2, 144, 193, 11161)]
    assert (found["cells"], found["masks"]) == (144, 193)
    assert (found["answer"], found["proof"]) == ({"least": 4, "most": 11162}, {"least": 10, "most": 11161})
    words = certmask("plan", "--align", "16").stdout
    assert "144 places; passes to answer: 4 to 11,162, to prove recovery: 10 to 11,161" in words
    folded = plan("--levels", "3,6:2,6:2")["levels"]
    assert [level["fold"] for level in folded] == [[1, 1], [2, 2], [2, 2]]
    assert folded[2]["proof"] == folded[1]["proof"] == 45 + folded[1]["masks"] + folded[1]["pairs"]
    assert len(plan("--budget", "721")["levels"]) == 3
    assert len(plan("--budget", "720")["levels"]) == 2
    certmask("plan", "--image", "64", "--draw", tmp_path / "plan.png")
    assert Image.open(tmp_path / "plan.png").size[0] > 800


@pytest.mark.parametrize(
    ("rule", "mask", "tiling", "fold", "expected"),
    [
        ("jury-recovery", None, "spread", None, ((80, 80), (2, 2))),
        ("jury-recovery", None, "spread", "1", ((64, 64), (1, 1))),
        ("jury-recovery", None, "spread", "3", ((80, 80), (3, 3))),
        ("jury-recovery", "64", "spread", None, ((64, 64), (2, 2))),
        ("jury-recovery", "32", "spread", None, ((32, 32), (1, 1))),
        ("jury-recovery", None, "offset", None, ((64, 64), (1, 1))),
        ("jury-recovery", None, "patchcleanser", None, ((64, 64), (1, 1))),
        ("patchcleanser", None, "spread", None, ((64, 64), (1, 1))),
        ("jury-detection", None, "spread", None, ((64, 64), (1, 1))),
        ("patchcleanser", None, "spread", "2x2", ((80, 80), (2, 2))),
        ("published", "96", "spread", "2x3", ((96, 96), (2, 3))),
    ],
)
def test_what_the_options_leave_open_suits_the_rule(
    rule: str, mask: str | None, tiling: str, fold: str | None, expected: tuple[Size, Size]
) -> None:
    wishes = Wishes(tiling, optional_size(mask, "mask"), optional_size(fold, "fold"))
    cover = suited_cover((224, 224), Patch(32, 32), wishes, suits(rule))
    assert (cover.mask, cover.fold) == expected


def test_each_rule_has_its_own_cover_unless_one_is_asked_for(little_model: Path, tmp_path: Path) -> None:
    """A rule that more masks harm is not compared on the masks of another."""
    rules = ("--rule", "patchcleanser", "--rule", "jury-recovery")
    common = ("certify", "demo-cifar10", "--model", str(little_model), "--patch", "5", "--images", "2", *rules)
    own = certmask(*common, "--out", tmp_path / "own.jsonl").stdout
    assert "patchcleanser: spread 1×1, 36 masks of 9×9" in own
    assert "jury-recovery: spread 2×2, 81 masks of 11×11" in own
    same = certmask(*common, "--fold", "1", "--out", tmp_path / "same.jsonl").stdout
    assert same.count("spread 1×1, 36 masks of 9×9") == 2
    bare = (*common[:5], "30", "--images", "2", "--rule", "undefended", "--tiling", "offset")
    certmask(*bare, "--out", tmp_path / "bare.jsonl")
    again = certmask(*common, "--out", tmp_path / "own.jsonl").stdout.replace("\n", " ")
    assert "own.jsonl has 2 of 2 images already" in again
    assert "already" not in own
    table = certmask("table", tmp_path / "own.jsonl", tmp_path / "same.jsonl").stdout
    assert table.count("jury-recovery: spread 1×1, 36 masks of 9×9 against 5×5 on 32×32") == 1
    assert table.count("jury-recovery: spread 2×2, 81 masks of 11×11 against 5×5 on 32×32") == 1
    assert "- jury-recovery: spread 2×2" in certmask("table", "--markdown", tmp_path / "own.jsonl").stdout
    header = json.loads((tmp_path / "own.jsonl").read_text().splitlines()[0])
    assert {n: s["cover"]["masks"] for n, s in header["defences"].items()} == {"patchcleanser": 36, "jury-recovery": 81}


def test_one_bad_photo_names_the_way_out(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    for number in range(9):
        shutil.copy(class_folders / "n02124075/photo.jpg", class_folders / f"n02124075/photo{number}.jpg")
    (class_folders / "n07920052/broken.jpg").write_bytes(b"no photo")
    options = ("--model", little_model, "--rule", "undefended", "--out", tmp_path / "bad.jsonl", "--margin", "0")
    told = certmask("certify", class_folders, *options, code=1).stderr
    assert "broken.jpg" in told
    assert "--skip-bad leaves such photos out" in told


def test_the_default_patch_is_a_seventh_of_the_input(little_model: Path, photos: dict[str, Path]) -> None:
    """A patch as large as the whole input would make every answer the same, and certified."""
    assert (plan()["patch"], plan("--image", "32")["patch"], plan("--image", "70x3")["patch"]) == (
        [32] * 2,
        [5] * 2,
        [10, 1],
    )
    (found,) = json.loads(certmask("predict", photos["cat"], "--model", little_model, "--json").stdout)
    assert found["cover"].startswith("zoom, 4 masks of 18×18 → 9 masks of 14×14 → ")
    assert found["cover"].endswith(" against 5×5 on 32×32")
    assert found["rule"] == "zoom"


def test_plan_names_the_default() -> None:
    assert "default for jury-recovery: 80×80" in certmask("plan", "--tiling", "spread").stdout
    assert "default for the other rules: 64×64" in certmask("plan", "--fold", "1").stdout
    assert "default" not in certmask("plan", "--fold", "3").stdout
    spread = plan("--tiling", "spread")
    assert (spread["mask"], spread["fold"], spread["masks"]) == ([80, 80], [2, 2], 81)
    assert plan("--image", "6", "--patch", "6")["masks"] == 1
    small = certmask("plan", "--image", "8", "--patch", "4", "--tiling", "offset").stdout
    assert small.splitlines()[0].startswith("offset cover, fold 1×1, of 8×8")
    certmask("plan", "--image", "32", "--patch", "27", "--tiling", "replicated", "--mask", "30", "--fold", "1x1")


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        (("--mask", "16"), "got 16×16"),
        (("--patch", "300"), "got 300×300"),
        (("--patch", "x"), "got 'x'"),
        (("--patch", "0"), "got '0'"),
        (("--mask", ""), "got ''"),
        (("--fold", ""), "got ''"),
        (("--fold", "2x0"), "got '2x0'"),
        (("--mask", "64", "--fold", "50"), "got 50"),
        (("--tiling", "round"), "got 'round'"),
        (("--tiling", "patchcleanser", "--fold", "2"), "got 2"),
        (("--budget", "1"), "got 1"),
        (("--levels", "2,x"), "got '2,x'"),
        (("--levels", "1"), "got 224×224"),
        (("--levels", "90", "--align", "1"), "places apart"),
        (("--levels", "3", "--mask", "64"), "--levels"),
        (("--align", "16", "--tiling", "spread"), "--align"),
        (("--tiling", "zoom", "--fold", "2"), "--fold"),
        (("--mask", "64", "--budget", "9"), "passes"),
        (("--mask", "64", "--draw", "plan.nonsense"), "plan.nonsense"),
        (("--mask", "64", "--draw", "plan"), "got plan"),
        (("--mask", "400"), "got 400×400"),
        (("--mask", "224"), "got 224×224"),
    ],
)
def test_plan_with_nonsense(arguments: tuple[str, ...], got: str, tmp_path: Path) -> None:
    assert got in certmask("plan", *arguments, cwd=tmp_path, code=2).stderr


def test_a_picture_that_cannot_be_written_is_no_wrong_usage(tmp_path: Path) -> None:
    for path in ("/dev/null/plan.png", str(tmp_path / "folder.png")):
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        assert path in certmask("plan", "--mask", "64", "--draw", path, code=1).stderr


def test_debug_shows_the_traceback() -> None:
    command = [*PROGRAM, "plan", "--mask", "16", "--debug"]
    assert "Traceback" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_help_version_and_wrong_usage() -> None:
    assert "certify" in certmask("--help").stdout
    assert certmask("--version").stdout.startswith("certmask 0.")
    certmask("nonsense", code=2)
    certmask("plan", "--nonsense", code=2)


def test_predict_answers_and_draws(photos: dict[str, Path], tmp_path: Path) -> None:
    done = certmask("predict", photos["cup"], *SMALL, "--draw", tmp_path / "votes.png")
    assert "espresso (967), no alert" in done.stdout
    assert "if this photo is clean and shows espresso" in done.stdout
    assert Image.open(tmp_path / "votes.png").size[0] > 800


def test_predict_says_what_an_answer_rests_on_and_where_its_proof_is_weakest(
    little_model: Path, photos: dict[str, Path]
) -> None:
    """In words and in JSON, the same; a rule that cannot tell says nothing."""
    command = ("predict", photos["cup"], "--model", little_model, "--patch", "5", "--batch", "8", "--precision", "fp32")
    (found,) = json.loads(certmask(*command, "--json").stdout)
    words = certmask(*command).stdout
    assert f"{found['basis']}: {BASES[found['basis']]}" in words
    weak = found["weakest"]
    assert 1 <= len(weak["places"]) <= 2
    for top, bottom, left, right in weak["places"]:
        assert f"rows {top}–{bottom - 1}, columns {left}–{right - 1}" in words
    assert f"a lead of {weak['lead']:.2g}, settled at level {weak['level'] + 1} of 4" in words
    (bare,) = json.loads(certmask(*command, "--rule", "undefended", "--json").stdout)
    assert (bare["basis"], bare["weakest"]) == (None, None)


def test_levels_thresholds_and_last_resort_reach_the_rule(little_model: Path, tmp_path: Path) -> None:
    """What is asked for stands in the header, for the rules that it concerns alone."""
    certmask("certify", "demo-cifar10", "--model", little_model, "--images", "1", "--patch", "5", "--levels", "2,3:2",
             "--thresholds", "0.9", "--claim-thresholds", "0.4", "--pooled", "--last-resort", "majority",
             "--align", "2", "--mask", "11",
             "--rule", "zoom", "--rule", "zoom-detection", "--rule", "jury-recovery", "--rule", "patchcleanser",
             "--out", tmp_path / "run.jsonl")  # fmt: skip
    said = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["defences"]
    zoom, alone, jury, cleanser = (said[name] for name in said)
    assert zoom["cover"] == alone["cover"]
    assert [(level["masks"], level["fold"]) for level in zoom["cover"]["levels"]] == [(4, [1, 1]), (49, [2, 2])]
    assert zoom["cover"]["align"] == 2
    assert (zoom["rule"]["thresholds"], zoom["rule"]["claim_thresholds"], zoom["rule"]["pooled"]) == (0.9, 0.4, True)
    assert (alone["rule"]["thresholds"], alone["rule"]["pooled"]) == (0.9, True)
    assert jury["cover"]["mask"] == [11, 11]
    assert jury["rule"] == {**JuryRecovery(last_resort="majority").describe(), "margin": jury["rule"]["margin"]}
    assert {one["rule"].get("last_resort") for one in (zoom, jury, cleanser)} == {"majority"}


def test_a_defence_from_a_file_is_certified_and_asked(
    little_model: Path, photos: dict[str, Path], tmp_path: Path
) -> None:
    """Under its own name, with its own masks and patch, beside the network alone; the margin is this run's."""
    tuned = MaskedDefence(zoom_cover(32, 4, (2, 3)), JuryRecovery(thresholds=0.7), "tuned")
    save_defence(tmp_path / "tuned.json", tuned, {})
    options = ("--model", little_model, "--defence", tmp_path / "tuned.json")
    certmask("certify", "demo-cifar10", *options, "--images", "1", "--margin", "0.1", "--out", tmp_path / "run.jsonl")
    said = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["defences"]
    assert list(said) == ["undefended", "tuned"]
    assert said["tuned"]["cover"] == tuned.cover.describe()
    assert said["tuned"]["rule"] == JuryRecovery(thresholds=0.7, margin=0.1).describe()
    assert said["undefended"]["threat"] == tuned.threat.describe()
    (found,) = json.loads(certmask("predict", photos["cat"], *options, "--json").stdout)
    assert (found["rule"], found["cover"]) == ("tuned", str(tuned.cover))


def test_masks_of_levels_lie_on_the_tokens_of_the_model(tmp_path: Path) -> None:
    """Unless that would merge levels: on 64×64 tokens of 16 would, those of 4 do not."""
    image, patch = (224, 224), Patch(32, 32)
    assert on_tokens(image, patch, Wishes(), 16).align == 16
    assert on_tokens(image, patch, Wishes(), 1).align is None
    assert on_tokens(image, patch, Wishes(align=8), 16).align == 8
    assert on_tokens((32, 32), Patch(5, 5), Wishes(), 16).align is None
    assert on_tokens((64, 64), Patch(9, 9), Wishes(), 16).align is None
    choices = Choices("deit_tiny-imagenette", rules=["zoom", "jury-recovery"], patch="40")
    free, tokens = choices.covers()[0], choices.covers(16)[0]
    assert (free.align, tokens.align) == (4, 16)
    assert choices.covers(16)[1] == choices.covers()[1]


def test_predict_with_openvino_where_it_is_installed(little_model: Path, photos: dict[str, Path]) -> None:
    def answers(backend: str) -> dict[str, Any]:
        asked: list[str | Path] = [*photos.values(), "--model", little_model, *FEW, "--backend", backend, "--json"]
        return {
            found["photo"]: (found["name"], found["cover"]) for found in json.loads(certmask("predict", *asked).stdout)
        }

    assert answers("auto") == answers("torch")
    assert len(answers("torch")) == 2


def test_predict_takes_any_photo_and_signals_alerts(
    little_model: Path, photos: dict[str, Path], tmp_path: Path
) -> None:
    little = ("--model", little_model, *FEW)
    Image.open(photos["cup"]).convert("L").save(tmp_path / "grey.png")
    Image.open(photos["cup"]).convert("RGBA").resize((90, 70)).save(tmp_path / "rgba.png")
    answers = json.loads(certmask("predict", tmp_path / "grey.png", tmp_path / "rgba.png", *little, "--json").stdout)
    assert [a["passes"] >= 4 for a in answers] == [True, True]
    alarming = ("--model", little_model, *GRID, "--rule", "jury-detection", "--fold", "2")
    done = certmask("predict", photos["cat"], *alarming, code=3)
    assert "ALERT" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "got", "code"),
    [
        (("none.jpg",), "none.jpg", 1),
        (("text.jpg",), "text.jpg", 1),
        (("empty.jpg",), "empty.jpg", 1),
        (("{cup}", "--model", "no_such_model"), "'no_such_model'", 1),
        (("{cup}", "--weights", "none.safetensors"), "none.safetensors", 1),
        (("{cup}", "--rule", "magic"), "'magic'", 2),
        (("{cup}", "--aggregate", "max"), "'max'", 2),
        (("{cup}", "--pairs", "some"), "'some'", 2),
        (("{cup}", "--precision", "int4"), "'int4'", 2),
        (("{cup}", "--device", "toaster"), "'toaster'", 2),
        (("{cup}", "--rule", "jury-recovery", "--mask", "3"), "3×3", 2),
        (("{cup}", "--mask", "18"), "--levels for zoom", 2),
        (("{cup}", "--margin", "-1"), "-1", 2),
        (("{cup}", "--margin", "wide"), "'wide'", 2),
        (("{cup}", "--rule", "jury-recovery", "--tiling", "offset", "--mask", "9", "--fold", "2"), "offset", 2),
    ],
)
def test_predict_with_nonsense(
    arguments: tuple[str, ...], got: str, code: int, little_model: Path, photos: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").write_text("")
    filled = [argument.replace("{cup}", str(photos["cup"])) for argument in arguments]
    if not {"--model", "--weights"} & {*filled}:
        filled += ["--model", str(little_model)]
    assert got in certmask("predict", *filled, cwd=tmp_path, code=code).stderr


def test_certify_folders_and_csv_give_the_same_rows(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    little = ("--model", little_model, *GRID)
    rules = ("--rule", "undefended", "--rule", "jury-recovery", "--rule", "jury-detection", "--rule", "published")
    done = certmask("certify", class_folders, *little, *rules, "--out", tmp_path / "a.jsonl")
    assert "no guarantee against an adaptive attacker" in done.stdout
    listing = "".join(f"{p.relative_to(class_folders)},{p.parent.name}\n" for p in class_folders.glob("*/*.jpg"))
    (class_folders / "list.csv").write_text(listing)
    certmask("certify", class_folders / "list.csv", *little, *rules, "--out", tmp_path / "b.jsonl")
    assert outcomes(tmp_path / "a.jsonl") == outcomes(tmp_path / "b.jsonl")
    (run,) = json.loads(certmask("table", tmp_path / "a.jsonl", "--json").stdout)
    figures = {line["defence"]: line for line in run["lines"]}
    assert figures["jury-recovery"]["certified_detection"] is None
    assert figures["jury-detection"]["certified_recovery"] is None
    assert figures["undefended"]["passes"] == 1
    assert "| jury-recovery |" in certmask("table", tmp_path / "a.jsonl", "--markdown").stdout


def test_another_rule_is_judged_on_kept_votes(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    """The same command with --votes: another rule, aggregate and margin without a single pass, as if computed anew."""
    common = ("certify", class_folders, "--model", little_model, *GRID, "--fold", "1")
    votes = ("--votes", tmp_path / "votes")
    first = certmask(
        *common, *votes, "--rule", "patchcleanser", "--rule", "jury-recovery", "--out", tmp_path / "a.jsonl"
    )
    assert " 0 passes made" not in first.stdout.replace("\n", " ")
    other = ("--rule", "jury-detection", "--aggregate", "label-majority", "--margin", "0.01")
    again = certmask(*common, *votes, *other, "--out", tmp_path / "b.jsonl")
    assert "; 0 passes made, votes kept in" in again.stdout.replace("\n", " ")
    certmask(*common, *other, "--out", tmp_path / "c.jsonl")
    kept, live = outcomes(tmp_path / "b.jsonl"), outcomes(tmp_path / "c.jsonl")
    assert {image: row["defences"] for image, row in kept.items()} == {i: row["defences"] for i, row in live.items()}
    assert {row["passes"] for row in kept.values()} == {0}
    certmask("report", tmp_path / "b.jsonl", "--out", tmp_path / "page.html")
    spoilt = certmask(*common, *other, "--votes", tmp_path / "a.jsonl", "--out", tmp_path / "d.jsonl", code=1)
    assert "expected a folder to write into" in spoilt.stderr


def test_other_inputs_do_not_continue_a_run(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    arguments = ("certify", class_folders, "--model", little_model, *FEW, "--images", "1")
    out = ("--out", tmp_path / "run.jsonl")
    certmask(*arguments, *out)
    before = (tmp_path / "run.jsonl").read_bytes()
    done = certmask(*arguments, "--margin", "0.1", *out, code=1)
    assert "margin" in done.stderr
    assert (tmp_path / "run.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("source", "options", "got", "code"),
    [
        ("nowhere", (), "'nowhere'", 1),
        ("empty", (), "none", 1),
        ("unknown", (), "'cheetah-pictures'", 1),
        ("corrupt", (), "broken.jpg", 1),
        ("bad.csv", (), "'unicorn'", 1),
        ("demo-cifar10", ("--out", "/dev/null/run.jsonl"), "run.jsonl", 1),
        ("demo-cifar10", ("--out", "notes.txt"), "notes.txt", 1),
        ("demo-cifar10", ("--rule", "published", "--rule", "published"), "published", 2),
        ("demo-cifar10", ("--rule", "published", "--mask", "3"), "3×3", 2),
    ],
)
def test_certify_with_nonsense(
    source: str, options: tuple[str, ...], got: str, code: int, little_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for folder, file in (("unknown/cheetah-pictures", "a.jpg"), ("corrupt/n02124075", "broken.jpg")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).write_bytes(b"\xff\xd8 nonsense")
    (tmp_path / "bad.csv").write_text("a.jpg,unicorn\n")
    (tmp_path / "notes.txt").write_text("my notes\n")
    assert got in certmask("certify", source, "--model", little_model, *options, cwd=tmp_path, code=code).stderr
    assert (tmp_path / "notes.txt").read_text() == "my notes\n"


def test_a_bad_photo_loses_nothing_that_was_done(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    """The run stops at the bad file by name; once it is mended, the same command goes on."""
    bad = class_folders / "n07920052" / "zz.jpg"
    bad.write_bytes(b"nonsense")
    out = ("--out", tmp_path / "run.jsonl", "--batch", "1")
    arguments = ("certify", class_folders, "--model", little_model, *FEW, *out)
    assert "zz.jpg" in certmask(*arguments, code=1).stderr
    done = outcomes(tmp_path / "run.jsonl")
    shutil.copy(class_folders / "n07920052" / "photo.jpg", bad)
    certmask(*arguments)
    after = outcomes(tmp_path / "run.jsonl")
    assert len(after) == 3
    assert done.items() <= after.items()


def test_a_photo_that_was_exchanged_is_noticed(little_model: Path, class_folders: Path, tmp_path: Path) -> None:
    arguments = ("certify", class_folders, "--model", little_model, *FEW, "--out", tmp_path / "run.jsonl")
    certmask(*arguments)
    shutil.copy(class_folders / "n07920052" / "photo.jpg", class_folders / "n02124075" / "photo.jpg")
    assert "n02124075/photo.jpg" in certmask(*arguments, code=1).stderr


@pytest.mark.parametrize("key", ["tiling", "fold", "patch"])
def test_table_of_a_run_that_does_not_say_its_cover(key: str, tmp_path: Path) -> None:
    header, row, *_ = (Path(__file__).parent.parent / "results" / "demo.jsonl").read_text().splitlines()
    said = json.loads(header)
    del said["defences"]["PatchCleanser 6×6"]["cover"][key]
    (tmp_path / "run.jsonl").write_text(f"{json.dumps(said)}\n{row}\n")
    wanted = f"expected '{key}' in the cover of 'PatchCleanser 6×6'"
    assert wanted in certmask("table", tmp_path / "run.jsonl", code=1).stderr


def test_table_with_nonsense(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text('{"certmask_res')
    for name in ("none.jsonl", "cut.jsonl"):
        assert name in certmask("table", tmp_path / name, code=1).stderr
