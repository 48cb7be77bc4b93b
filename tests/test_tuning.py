"""Tuning: chosen on some photos under a budget, judged on others, kept in a file that is checked when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import certmask

from certmask.certificate import Guarantee
from certmask.cli.choices import photos_for
from certmask.defences import MaskedDefence
from certmask.errors import CertmaskError
from certmask.results.columns import figures
from certmask.results.run import Run, read_run
from certmask.rules import JuryDetection, JuryRecovery
from certmask.threat import Patch
from certmask.tuning import FIRST, SETTINGS, affordable, chosen, halves, load_defence, save_defence, settings
from certmask.votes import Margin

TRIED = list(settings((32, 32), Patch(5, 5)))


def invented(outcomes: dict[str, list[tuple[bool, bool, int, int]]]) -> Run:
    """A run of these settings: (right, certified, passes to answer, passes to prove) for every photo."""
    defences = {name: next(d for d in TRIED if d.name == name).describe() for name in outcomes}
    rows = [
        {
            "image": str(photo),
            "label": 1,
            "passes": 1,
            "seconds": 1.0,
            "defences": {name: _outcome(*own[photo]) for name, own in outcomes.items()},
        }
        for photo in range(len(next(iter(outcomes.values()))))
    ]
    header = {"kind": "certify", "model": {"name": "m", "precision": "fp32", "size": [32, 32]}, "defences": defences}
    return Run("run", Path("run.jsonl"), "", {**header, "data": {"name": "photos", "images": len(rows)}}, tuple(rows))


def _outcome(right: bool, certified: bool, answer: int, proof: int) -> dict[str, Any]:
    told = {"label": int(right), "alert": False, "certified": certified, "dissent": 0}
    return {**told, "passes": answer, "certificate_passes": proof}


def photos(certified: int, proof: int, answer: int = 9, right: int = 100) -> list[tuple[bool, bool, int, int]]:
    """A hundred photos."""
    return [(n < right, n < certified, answer, proof) for n in range(100)]


NAMES = [defence.name for defence in TRIED]


def test_settings_are_few_and_named_by_what_they_are() -> None:
    """A few dozen at most, all different, all sound on the cover they come with, also for detection, with a margin."""
    assert len(set(NAMES)) == len(TRIED) == len(SETTINGS)
    assert 12 <= len(TRIED) <= 30
    assert len({(str(d.cover.digest), repr(d.rule)) for d in TRIED}) == len(TRIED)
    assert all(isinstance(d.rule, JuryRecovery) for d in TRIED)
    detecting = list(settings((32, 32), Patch(5, 5), None, Guarantee.DETECTION, Margin(0.01, 0.5)))
    assert {d.name for d in detecting} == {str(setting._replace(duels=())) for setting in SETTINGS}
    assert len({d.name for d in detecting}) == len(detecting) < len(TRIED), "claims alone, each once"
    for defence in detecting:
        assert isinstance(defence.rule, JuryDetection)
        assert defence.rule.margin == (0.5 if defence.rule.unit == "logarithm" else 0.01)


def test_the_cheapest_within_a_standard_error_of_the_best_is_taken() -> None:
    """Of the difference on the same photos, the root of where they differ: one photo of one is, two of two are not."""
    run = invented({NAMES[0]: photos(50, 600), NAMES[1]: photos(49, 300), NAMES[2]: photos(48, 20)})
    assert chosen(run, None).taken.defence == NAMES[1]
    assert chosen(run, 100).taken.defence == NAMES[2]
    with pytest.raises(CertmaskError, match="expected a budget of at least 20 passes to prove, got 10"):
        chosen(run, 10)


@pytest.mark.parametrize(("first", "taken"), [(6, 0), (10, 1)], ids=["differs in 8", "differs in 16"])
def test_photos_that_only_the_cheaper_one_certifies_count_for_it(first: int, taken: int) -> None:
    """46 against 50: four fewer are more than the root of 8 photos that differ, and not more than the root of 16."""
    cheaper = [(True, first <= n < first + 46, 9, 20) for n in range(100)]
    assert chosen(invented({NAMES[0]: photos(50, 600), NAMES[1]: cheaper}), None).taken.defence == NAMES[taken]


def test_right_answers_are_compared_among_those_that_certify_enough() -> None:
    """One that answers best and certifies too little takes nobody's place."""
    run = invented({NAMES[0]: photos(50, 600, right=90), NAMES[1]: photos(20, 5, right=100)})
    assert chosen(run, None).taken.defence == NAMES[0]


def test_a_setting_that_answers_worse_is_not_taken() -> None:
    run = invented({NAMES[0]: photos(50, 600), NAMES[1]: photos(50, 300, right=90)})
    assert chosen(run, None).taken.defence == NAMES[0]


def test_the_budget_may_be_that_of_answers() -> None:
    run = invented({NAMES[0]: photos(50, 10, answer=40), NAMES[1]: photos(50, 600, answer=5)})
    assert chosen(run, 20, "answer").taken.defence == NAMES[1]
    assert chosen(run, 20, "prove").taken.defence == NAMES[0]


def test_the_front_has_what_no_other_beats() -> None:
    run = invented(
        {NAMES[0]: photos(50, 600), NAMES[1]: photos(46, 300), NAMES[2]: photos(45, 400), NAMES[3]: photos(9, 5)}
    )
    assert [own.defence for own in chosen(run, None).front] == [NAMES[3], NAMES[1], NAMES[0]]
    assert len(chosen(run, None).tried) == 4


def test_what_is_too_dear_is_given_up_but_never_all() -> None:
    defences = TRIED[:3]
    run = invented({NAMES[0]: photos(50, 600), NAMES[1]: photos(46, 190), NAMES[2]: photos(0, 5000)})
    assert [d.name for d in affordable(run, defences, 100)] == [NAMES[1]]
    assert [d.name for d in affordable(run, defences, 1)] == [NAMES[1]], "the cheapest stays"
    assert [d.name for d in affordable(run, defences, 300)] == NAMES[:2]
    assert figures(run)[2].proved_passes is None, "what fails all proofs is judged by what they cost"


def test_halves_share_no_photo() -> None:
    dataset = photos_for("resnet26-cifar10", "demo-cifar10")
    one, other = halves(dataset)
    names = [{sample.name for sample in half.samples} for half in (one, other)]
    assert names[0] | names[1] == {sample.name for sample in dataset.samples}
    assert not names[0] & names[1]
    assert abs(len(one) - len(other)) <= 1
    assert FIRST > 1


def test_a_defence_comes_back_from_its_file(tmp_path: Path) -> None:
    """Masks, rule and thresholds to the last; with another margin in the rule's own unit, if one is given."""
    for defence in TRIED:
        path = tmp_path / "tuned.json"
        save_defence(path, defence, {"on": "nothing"})
        assert load_defence(path).describe() == defence.describe()
        with_margin = load_defence(path, Margin(0.25, 3.0))
        assert with_margin.rule.margin == (3.0 if defence.rule.unit == "logarithm" else 0.25)
        assert json.loads(path.read_text())["about"] == {"on": "nothing"}


@pytest.mark.parametrize("damage", ["missing", "empty", "list", "other", "format", "masks", "thresholds", "rule"])
def test_another_file_is_no_defence(tmp_path: Path, damage: str) -> None:
    """Refused in one line that names the file."""
    path = tmp_path / "tuned.json"
    save_defence(path, TRIED[0], {})
    told = json.loads(path.read_text())
    if damage == "format":
        told["certmask_tuned"] = 99
    if damage == "masks":
        told["defence"]["cover"]["levels"][0]["mask"] = [7, 7]
    if damage == "thresholds":
        told["defence"]["rule"]["thresholds"] = [0.1, -1]
    if damage == "rule":
        del told["defence"]["rule"]
    path.write_text({"empty": "", "list": "[]", "other": "{}"}.get(damage, json.dumps(told)))
    if damage == "missing":
        path.unlink()
    with pytest.raises(CertmaskError, match="expected"):
        load_defence(path)


def test_defences_of_the_file_are_masked_ones(tmp_path: Path) -> None:
    save_defence(tmp_path / "deep" / "tuned.json", TRIED[0], {})
    assert isinstance(load_defence(tmp_path / "deep" / "tuned.json"), MaskedDefence)
    with pytest.raises(CertmaskError, match="expected a writable file"):
        save_defence(tmp_path, TRIED[0], {})


def test_tune_writes_a_defence_that_certify_takes(little_model: Path, tmp_path: Path) -> None:
    """Chosen on two photos, judged on two others, and the file's defence is the one that was judged."""
    options = ("--model", little_model, "--patch", "5", "--backend", "torch")
    done = certmask("tune", "demo-cifar10", *options, "--images", "4", "--passes", "300", cwd=tmp_path)
    assert "judged on 2 images that it was not chosen on" in done.stdout
    found, runs = load_defence(tmp_path / "runs" / "tuned.json"), tmp_path / "runs"
    chosen_on, judged = (read_run(runs / f"tuned.{part}.jsonl") for part in ("choosing", "judged"))
    assert not {row["image"] for row in chosen_on.rows} & {row["image"] for row in judged.rows}
    assert list(judged.defences) == ["undefended", "zoom", found.name]
    assert found.name in chosen_on.defences
    again = ("certify", "demo-cifar10", *options, "--images", "2", "--defence", runs / "tuned.json")
    certmask(*again, "--out", runs / "again.jsonl", cwd=tmp_path)
    header = json.loads((runs / "again.jsonl").read_text().splitlines()[0])
    assert header["defences"][found.name]["cover"] == found.describe()["cover"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [("--to nonsense", 2), ("--passes 0", 2), ("--images 1", 2), ("--judge demo-cifar10", 1), ("--patch 33", 2)],
)
def test_tune_refuses_what_makes_no_sense(little_model: Path, tmp_path: Path, wrong: str, code: int) -> None:
    """In one line, before anything is written; also photos to judge on that are those to choose on."""
    done = certmask("tune", "demo-cifar10", "--model", little_model, *wrong.split(), cwd=tmp_path, code=code)
    assert "expected" in done.stderr or "Invalid value" in done.stderr
    assert not list(tmp_path.rglob("*.json*"))
