"""``certmask attack`` on real photos with a real model: a small gauntlet, resuming, replaying, and nonsense."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Done, certmask
from members import suited
from PIL import Image

from certmask.attacks.attempts import Budget
from certmask.attacks.gauntlet import strength
from certmask.attacks.target import Target
from certmask.certification import certify_run
from certmask.covers import custom_cover, offset_cover, patchcleanser_cover, replicated_cover, spread_cover, zoom_cover
from certmask.data import CIFAR10, load_dataset, pixel_digest
from certmask.defences import MaskedDefence, defence_from
from certmask.engine import Engine
from certmask.errors import BrokenCertificateError, ResultsError
from certmask.geometry import Mask
from certmask.report.tables import brief_table, markdown_grid
from certmask.results.columns import ATTACK_COLUMNS, attack_figures
from certmask.results.file import picture_folder, read_results
from certmask.results.run import read_run
from certmask.rules import RULES, JuryRecovery, LabelMajority, MinorityReports, PatchCleanser, Published, Rule
from certmask.threat import Patch
from certmask.zoo import class_aliases, framing_of, load_classifier
from certmask.zoo.models import SHIPPED

torch.set_num_threads(1)

SMALL = ("--model", "resnet26-cifar10", "--patch", "8", "--mask", "20", "--batch", "4", "--precision", "fp32")
RULES_RUN = ("undefended", "published", "jury-detection", "jury-recovery")
QUICK = ("--images", "1", "--locations", "1", "--steps", "1", "--masks-per-step", "1")
RECORDED = Path(__file__).resolve().parent.parent / "results" / "attacks"
WRONG, FIRST, SECOND = "automobile/a.png", "cat/b.png", "frog/c.png"
"""The photo that no rule certifies and that the published one answers wrongly, and two that every rule certifies."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photos and the results file of their certification."""
    folder = tmp_path_factory.mktemp("attack")
    samples = {s.name: s for s in load_dataset("demo-cifar10", None, 1.0).samples}
    for name, sample in ((WRONG, "cifar10_09_1.png"), (FIRST, "cifar10_00_3.png"), (SECOND, "cifar10_04_6.png")):
        (folder / "photos" / name).parent.mkdir(parents=True)
        samples[sample].photo().resize((64, 64)).save(folder / "photos" / name)
    rules = [word for rule in RULES_RUN for word in ("--rule", rule)]
    certmask("certify", folder / "photos", *SMALL, *rules, "--out", folder / "run.jsonl")
    return folder


@pytest.fixture
def here(base: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(base, tmp_path / "copy")
    return tmp_path / "copy"


def attack(folder: Path, *options: str | Path, code: int = 0, results: str = "run.jsonl") -> Done:
    return certmask("attack", results, "photos", *options, "--out", "attack.jsonl", cwd=folder, code=code)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return read_results(folder / "attack.jsonl")[1]


def edit(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the lines of a results file."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_a_small_gauntlet(here: Path) -> None:
    """The undefended model falls, the published rule is attacked, proved certificates stand; pictures are evidence."""
    budget = ("--images", "2", "--locations", "1", "--steps", "4", "--masks-per-step", "2", "--attempts-at-once", "2")
    done = attack(here, *budget)
    found = attack_figures(read_run(here / "attack.jsonl"))
    _, rows = read_results(here / "attack.jsonl")
    lines = {line.defence: line for line in found}
    assert {name: line.attempts for name, line in lines.items()} == dict.fromkeys(RULES_RUN, 2)
    assert lines["undefended"].label_changed >= 1
    assert lines["undefended"].broken is None
    assert lines["jury-detection"].broken == lines["jury-recovery"].broken == 0
    assert "undefended model's label in" in done.stdout
    assert {row["image"] for row in rows if row["defence"] == "jury-recovery"} == {FIRST, SECOND}
    assert len({row["attempt"] for row in rows}) == len(rows)
    saved = [number for number, row in enumerate(rows, start=1) if row["picture"]]
    assert saved == [number for number, row in enumerate(rows, start=1) if row["broken"]]
    for number in saved:
        check_picture(here, rows[number - 1])
    assert f"row {saved[0]}: undefended answers" in attack(here, "--replay", str(saved[0])).stdout
    before = (here / "attack.jsonl").read_bytes()
    attack(here, *budget)
    assert (here / "attack.jsonl").read_bytes() == before
    assert "| undefended | none | 2 |" in markdown_grid(brief_table("", ATTACK_COLUMNS, found))


def check_picture(folder: Path, row: dict[str, Any]) -> None:
    """The saved picture differs from the photo within the patch only; beside it lies one with a frame."""
    raw = picture_folder(folder / "attack.jsonl") / row["picture"]
    pixels = torch.from_numpy(load_pixels(raw))
    dataset = load_dataset(str(folder / "photos"), [(c,) for c in CIFAR10], framing_of("resnet26-cifar10"))
    (number,) = (n for n, sample in enumerate(dataset.samples) if sample.name == row["image"])
    clean = dataset.tensor(number, (32, 32))
    assert pixel_digest(pixels) == row["picture_sha256"]
    changed = (pixels != clean).any(dim=0)
    top, left = row["corner"]
    assert changed.any()
    changed[top : top + 8, left : left + 8] = False
    assert not changed.any()
    assert Image.open(raw.with_name(f"{raw.stem}-outlined.png")).size == (64, 64)


def load_pixels(path: Path) -> Any:
    import numpy as np

    return np.asarray(Image.open(path)).transpose(2, 0, 1).astype(np.float32) / 255


def test_a_broken_proof_is_an_error_and_can_be_replayed(here: Path) -> None:
    """A forged certificate (of a photo that jury recovery answers barely) breaks: exit code 1, with the replay."""

    def forge(lines: list[dict[str, Any]]) -> None:
        for line in lines[1:]:
            line["defences"]["jury-recovery"].update(certified=line["image"] == WRONG, basis="unbeaten")

    edit(here / "run.jsonl", forge)
    done = attack(here, *QUICK, "--rule", "jury-recovery", "--save", "0", code=1)
    assert f"got that of jury-recovery for {WRONG} broken" in done.stderr
    assert "replay: certmask attack run.jsonl photos --out attack.jsonl --replay 1" in done.stderr
    assert "was not among the rules" in done.stdout
    check_picture(here, rows_of(here)[0])
    assert "got it broken again" in attack(here, "--replay", "1", code=1).stderr
    assert "from 1 to 1" in attack(here, "--replay", "2", code=1).stderr
    raw = picture_folder(here / "attack.jsonl") / "00001.png"
    Image.new("RGB", (32, 32)).save(raw)
    assert "got other pixels" in attack(here, "--replay", "1", code=1).stderr
    raw.unlink()
    assert "00001.png" in attack(here, "--replay", "1", code=1).stderr


def test_a_picture_that_was_not_saved_is_not_replayed(here: Path) -> None:
    attack(here, *QUICK, "--rule", "jury-detection")
    assert "only successful attempts are saved" in attack(here, "--replay", "1", code=1).stderr
    edit(here / "run.jsonl", lambda lines: lines.pop())
    assert "about something else" in attack(here, "--replay", "1", code=1).stderr


def header_change(*keys: str, value: Any) -> Callable[[list[dict[str, Any]]], object]:
    def change(lines: list[dict[str, Any]]) -> None:
        place = lines[0]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (header_change("model", "weights_sha256", value="0" * 64), "weights_sha256"),
        (header_change("model", "mean", value=[0.0, 0.0, 0.0]), "mean"),
        (header_change("model", "precision", value="int3"), "'int3'"),
        (header_change("model", "backend", value="abacus"), "'abacus'"),
        (header_change("data", "crop", value=0.5), "expected Framing(crop=0.5"),
        (header_change("defences", "published", "cover", "digest", value="f00"), "digest 'f00'"),
        (header_change("defences", "published", "cover", "tiling", value="round"), "'round'"),
        (header_change("defences", "published", "cover", "mask", value=[16, 16]), "'published'"),
        (header_change("defences", "published", "rule", "rule", value="magic"), "'magic'"),
        (header_change("defences", "jury-recovery", "rule", "aggregate", value="max"), "'jury-recovery'"),
        (header_change("defences", "jury-recovery", "rule", "pairs", value="odd"), "'jury-recovery'"),
        (header_change("kind", value="train"), "results of certify or attack, got kind 'train'"),
        (header_change("model", "name", value=None), "'name' as text"),
        (lambda lines: lines.__delitem__(slice(1, None)), "at least one row in run.jsonl"),
        (lambda lines: lines[1].update(input_sha256="0"), "other pixels"),
        (lambda lines: lines[1].update(image="frog/zz.png"), "frog/zz.png"),
        (lambda lines: [line.update(label=2, defences={name: {**outcome, "label": 2, "alert": False}
                                                       for name, outcome in line["defences"].items()})
                        for line in lines[1:]], "expected label 2"),
        (lambda lines: lines[1]["defences"]["published"].update(certified=True), "to be answered as promised"),
        (lambda lines: lines.append(lines[1]), "every image once"),
    ],
)  # fmt: skip
def test_results_that_do_not_fit(change: Callable[[list[dict[str, Any]]], object], got: str, here: Path) -> None:
    edit(here / "run.jsonl", change)
    done = attack(here, *QUICK[2:], "--images", "3", "--rule", "undefended", code=1)
    assert got in done.stderr
    assert not (here / "attack.jsonl").exists() or not rows_of(here)


def test_a_function_that_answers_otherwise_is_refused(here: Path) -> None:
    """The file says that the clean photo got another answer: this is not what was certified."""

    def forge(lines: list[dict[str, Any]]) -> None:
        for line in lines[1:]:
            line["defences"]["published"].update(label=line["label"], certified=line["image"] == WRONG)

    edit(here / "run.jsonl", forge)
    assert "another function" in attack(here, *QUICK, "--rule", "published", code=1).stderr


SMALLER = ("demo-cifar10", "--model", "resnet26-cifar10", "--patch", "5", "--mask", "18", "--images", "4",
           "--precision", "fp32", "--batch", "4", "--rule", "published")  # fmt: skip
"""What is certified where it does not matter which model answers."""


@pytest.fixture(scope="module")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a shipped model that is not the default, and a copy of that model as the user's own file."""
    folder = tmp_path_factory.mktemp("small")
    certmask("certify", *SMALLER, "--out", folder / "run.jsonl")
    for suffix in (".safetensors", ".json"):
        shutil.copy(SHIPPED / f"resnet26-cifar10{suffix}", folder / f"mine{suffix}")
    return folder


def small_attack(base: Path, folder: Path, name: Any, *options: str, code: int = 0) -> Done:
    """Attack that run as if it had been made with a model of this name."""
    shutil.copytree(base, folder, dirs_exist_ok=True)
    edit(folder / "run.jsonl", header_change("model", "name", value=name))
    options = (*QUICK, *options, "--out", "attack.jsonl")
    return certmask("attack", "run.jsonl", "demo-cifar10", *options, cwd=folder, code=code)


def test_an_interrupted_gauntlet_goes_on_where_it_was(small_base: Path, tmp_path: Path) -> None:
    shutil.copytree(small_base, tmp_path, dirs_exist_ok=True)
    options = ("--locations", "3", "--attempts-at-once", "1")

    def go_on(*more: str, code: int = 0) -> Done:
        given = ("run.jsonl", "demo-cifar10", *QUICK, *options, *more, "--out", "attack.jsonl")
        return certmask("attack", *given, cwd=tmp_path, code=code)

    go_on()
    whole = rows_of(tmp_path)
    edit(tmp_path / "attack.jsonl", lambda lines: lines.__delitem__(slice(2, None)))
    with (tmp_path / "attack.jsonl").open("a") as file:
        file.write('{"attempt": "publ')
    go_on()
    again = rows_of(tmp_path)
    assert again[0] == whole[0]
    assert [(row["attempt"], row["corner"]) for row in again] == [(row["attempt"], row["corner"]) for row in whole]
    assert {row["place"] for row in again} == {"searched", "flush", "beyond"}
    assert "budget" in go_on("--restarts", "2", code=1).stderr


def test_openvino_judges_and_torch_gives_the_gradients(tmp_path: Path) -> None:
    certmask("certify", *SMALLER, "--backend", "openvino", "--out", "run.jsonl", cwd=tmp_path)
    certmask("attack", "run.jsonl", "demo-cifar10", *QUICK, "--out", "attack.jsonl", cwd=tmp_path)
    assert read_results(tmp_path / "attack.jsonl")[0]["model"]["backend"] == "openvino"
    assert len(rows_of(tmp_path)) == 1


def test_without_a_model_the_run_names_it(small_base: Path, tmp_path: Path) -> None:
    assert read_results(small_base / "run.jsonl")[0]["model"]["name"] == "resnet26-cifar10"
    assert "resnet26-cifar10" in small_attack(small_base, tmp_path, "resnet26-cifar10").stdout
    assert read_results(tmp_path / "attack.jsonl")[0]["model"]["name"] == "resnet26-cifar10"
    assert len(rows_of(tmp_path)) == 1
    assert "the run names" in " ".join(certmask("attack", "--help").stdout.replace("│", " ").split())


def test_the_same_gauntlet_from_python(small_base: Path, tmp_path: Path) -> None:
    """Row for row what the command writes; a proof that breaks is an error with the command that replays it."""
    small_attack(small_base, tmp_path, "resnet26-cifar10")
    target = Target(tmp_path / "run.jsonl", "demo-cifar10", tmp_path / "python.jsonl")
    seen: list[int] = []
    attempts = target.gauntlet(Budget(1, 1, 1, 1, 1)).attack(seen.append)
    assert list(attempts.rows) == rows_of(tmp_path)
    assert seen == [0, 1]
    assert "not on record" in strength(attempts)
    target.check_proofs(attempts)
    proved = {**attempts.header, "defences": {"published": {"rule": {"guarantee": "recovery"}}}}
    with pytest.raises(BrokenCertificateError, match=r"that of published for .* broken; replay: .* --replay 1$"):
        target.check_proofs(replace(attempts, header=proved, rows=({**attempts.rows[0], "broken": True},)))


def test_answers_that_are_not_certified_are_attacked_apart(tmp_path: Path) -> None:
    """Either last resort has its line, which says that nothing was certified; certificates are attacked as before."""
    classifier = load_classifier("resnet26-cifar10", device="cpu", precision="fp32", batch=4)
    dataset = load_dataset("demo-cifar10", class_aliases(classifier), framing_of("resnet26-cifar10"))
    zoom = MaskedDefence(zoom_cover(32, Patch(8, 8), (2, 3)), JuryRecovery(), "zoom")
    certify_run(Engine(classifier, [zoom.cover]), dataset, [zoom], tmp_path / "run.jsonl")
    given = ("run.jsonl", "demo-cifar10", *QUICK, "--device", "cpu")
    done = certmask("attack", *given, "--uncertified", "--out", "attack.jsonl", cwd=tmp_path)
    assert done.stdout.count("not certified") == 2
    rows = rows_of(tmp_path)
    assert [(row["defence"], row["certified"], row["broken"]) for row in rows] == [
        ("zoom, last resort bare", False, False),
        ("zoom, last resort majority", False, False),
    ]
    certmask("attack", *given, "--out", "proved.jsonl", cwd=tmp_path)
    (proved,) = read_results(tmp_path / "proved.jsonl")[1]
    assert (proved["certified"], proved["broken"]) == (True, False)
    assert proved["image"] != rows[0]["image"]


@pytest.mark.parametrize("name", ["mine", "mine.safetensors", "resnet18.mine", "Sequential", ""])
def test_a_model_of_the_users_own_must_be_given(name: str, small_base: Path, tmp_path: Path) -> None:
    """Also if the results file names a file that is there: what to load is the user's choice."""
    done = small_attack(small_base, tmp_path, name, code=1)
    assert f"expected --model FILE for a run of {name}, " in done.stderr
    assert done.stderr.endswith("got none\n")
    small_attack(small_base, tmp_path, name, "--model", "mine.safetensors")
    assert len(rows_of(tmp_path)) == 1


def test_a_name_that_means_another_model_is_refused(small_base: Path, tmp_path: Path) -> None:
    """The user's own model has the name of a known one: its weights give it away, whatever size it takes."""
    name = "efficientnet-lite0"
    own = read_results(small_base / "run.jsonl")[0]["model"]["weights_sha256"]
    for options in ((), ("--model", name)):
        done = small_attack(small_base, tmp_path, name, *options, code=1)
        assert (
            f"expected the weights of {name} that run.jsonl certified, with weights_sha256 '{own}', got" in done.stderr
        )
        assert "--model FILE" in done.stderr
    small_attack(small_base, tmp_path, name, "--model", "mine.safetensors")


@pytest.mark.parametrize(
    ("options", "got", "code"),
    [
        (("--rule", "magic"), "'magic'", 2),
        (("--model", "no_such_model"), "'no_such_model'", 1),
        (("--weights", "none.safetensors"), "none.safetensors", 1),
        (("--device", "toaster"), "'toaster'", 2),
        (("--replay", "1"), "attack.jsonl", 1),
    ],
)
def test_nonsense(options: tuple[str, ...], got: str, code: int, here: Path) -> None:
    assert got in attack(here, *QUICK, *options, code=code).stderr


def test_missing_and_foreign_files(here: Path) -> None:
    assert "none.jsonl" in attack(here, results="none.jsonl", code=1).stderr
    (here / "text.jsonl").write_text("no results\n")
    assert "text.jsonl" in attack(here, results="text.jsonl", code=1).stderr
    attempts = attack(here, results=str(RECORDED / "deit-tiny-attempts.jsonl.gz"), code=1)
    assert "expected a results file of a certification run" in attempts.stderr
    (here / "attack.jsonl").write_text("my notes\n")
    attack(here, *QUICK, "--rule", "undefended", code=1)
    assert (here / "attack.jsonl").read_text() == "my notes\n"
    (here / "photos" / FIRST).rename(here / "photos" / "cat" / "other.png")
    (here / "attack.jsonl").unlink()
    assert FIRST in attack(here, "--images", "3", code=1).stderr


def test_a_photo_that_was_exchanged_is_noticed(here: Path) -> None:
    shutil.copy(here / "photos" / FIRST, here / "photos" / SECOND)
    assert SECOND in attack(here, "--images", "3", code=1).stderr


def test_nothing_certified_is_nothing_to_attack(here: Path) -> None:
    edit(
        here / "run.jsonl", lambda lines: [line["defences"]["published"].update(certified=False) for line in lines[1:]]
    )
    assert "expected certified images to attack" in attack(here, "--rule", "published", code=1).stderr


@pytest.mark.parametrize("option", ["--images", "--locations", "--steps", "--restarts", "--masks-per-step"])
def test_a_budget_of_nothing_is_wrong_usage(option: str, here: Path) -> None:
    attack(here, option, "0", code=2)


DEFENCES = [
    MaskedDefence(spread_cover(32, Patch(5, 4), (11, 12), (2, 3)), JuryRecovery("aligned", LabelMajority(), 0.25), "a"),
    MaskedDefence(offset_cover(32, Patch(5, 5), 15, (1, 2)), Published(), "b"),
    MaskedDefence(replicated_cover(32, Patch(5, 5), 15, 2), MinorityReports(0.75), "c"),
    MaskedDefence(patchcleanser_cover(32, Patch(3, 5), (3, 4)), PatchCleanser(challenger=True), "d"),
    *(MaskedDefence(suited(rule(), spread_cover(32, Patch(5, 5), 12)), rule(), name) for name, rule in RULES.items()),
]


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.name)
def test_schemes_are_rebuilt_from_their_descriptions(defence: MaskedDefence) -> None:
    written = json.loads(json.dumps(defence.describe()))
    rebuilt = defence_from(written)
    (cover,) = rebuilt.covers
    assert cover.masks == defence.cover.masks
    assert cover.grids == defence.cover.grids
    assert repr(rebuilt.rule) == repr(defence.rule)


def test_schemes_that_cannot_be_rebuilt() -> None:
    custom = custom_cover((1, 3), Patch(1, 1), [Mask(0, x, 1, 1) for x in range(3)])
    rule: Rule = Published()
    with pytest.raises(ResultsError, match=r"expected a tiling among .* got 'custom' in defence 'own'"):
        defence_from(MaskedDefence(custom, rule, "own").describe())
    with pytest.raises(ResultsError, match=r"expected a defence that can be rebuilt, got 'x' \('cover'\)"):
        defence_from({"name": "x"})


def test_the_table_refuses_other_files(here: Path) -> None:
    with pytest.raises(ResultsError, match="expected a file of kind 'attack', got one of kind 'certify'"):
        attack_figures(read_run(here / "run.jsonl"))


@pytest.mark.parametrize("name", ["deit-tiny", "resnet50", "efficientnet-lite0"])
def test_the_committed_gauntlet_counts_again(name: str) -> None:
    """`certmask table` on the attempts in the repository (of format 1): every figure counted from the raw lines."""
    path = RECORDED / f"{name}-attempts.jsonl.gz"
    header, *rows = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    (run,) = json.loads(certmask("table", path, "--json").stdout)
    assert len(rows) >= 1000
    for line in run["lines"]:
        mine = [row for row in rows if row["scheme"] == line["defence"]]
        assert line["attempts"] == len(mine)
        assert line["label_changed"] == sum(row["answer"] != row["label"] for row in mine)
        assert line["alerted"] == sum(row["alert"] for row in mine)
        kind = header["schemes"][line["defence"]]["rule"]["guarantee"]
        broken = {
            "none": None,
            "published test": sum(row["answer"] != row["label"] for row in mine),
            "detection": sum(row["answer"] != row["label"] and not row["alert"] for row in mine),
            "recovery": sum(row["answer"] != row["label"] or row["alert"] for row in mine),
        }
        assert line["broken"] == broken[kind]
        if kind in ("detection", "recovery"):
            assert line["broken"] == 0
    assert "certificate broken" in certmask("table", path, "--markdown").stdout
