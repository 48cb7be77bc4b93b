"""Experiments: declarations against the paper and against geometry, runs against brute force over their own rows."""

from __future__ import annotations

import ctypes
import gzip
import json
import math
import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_network
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import binomtest

from certmask.certificate import Guarantee
from certmask.certification import certify_run, run_margin
from certmask.classifier import Classifier
from certmask.covers.bands import BAND
from certmask.covers.zoom import PER_AXIS
from certmask.data import Dataset, Framing, Sample
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.errors import CertmaskError, ResultsError
from certmask.evidence.registry import listed_local
from certmask.experiments import EXPERIMENTS, chosen
from certmask.experiments.campaign import Campaign, Named, slug
from certmask.experiments.experiment import DeclaredDefence, Experiment, LabelledPatch, Reported, family, scaled
from certmask.experiments.measured import finished_trials, result_paths, unmeasured
from certmask.experiments.meter import (
    Meter,
    Stretch,
    add_stretch,
    energy_counter,
    joules_per_pass,
    meter_path,
    milliseconds_per_pass,
    read_stretches,
)
from certmask.experiments.panels import AXES, MEASURES
from certmask.experiments.paper_tables import LEVELS, MASKS, PAPER_FOLD, PATCHES, SIDES, TABLE1, TABLE2, TABLE3, TABLE4
from certmask.experiments.sheets import mask_counts, other_methods_table
from certmask.experiments.sweeps import APPENDIX_D, FOLD, PARETO
from certmask.experiments.trials import Limits, Trial, built_cover, built_defence, check_patches, trials
from certmask.experiments.writing import write_tables
from certmask.geometry import minimum_masks
from certmask.geometry.paper import offset_count
from certmask.results.file import read_results
from certmask.results.statistics import holm
from certmask.rules.registry import listed
from certmask.votes import Margin
from certmask.zoo.networks import BANDS, CELLS

SIZE = 32
ALL = [experiment for experiment in EXPERIMENTS.values() if experiment.patches]


def declared(experiment: Experiment) -> list[tuple[LabelledPatch, DeclaredDefence]]:
    return [(patch, defence) for patch in experiment.every_patch for defence in experiment.defences(patch)]


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.name)
@pytest.mark.parametrize("side", [224, SIZE])
def test_every_declared_cover_holds_its_fold(experiment: Experiment, side: int) -> None:
    """A cover is verified when it is made; here also that it is the one that was declared, or that of all bands.

    The cover of 50,000 masks takes long to make: the test of absurd covers looks at it.
    """
    for patch, one in declared(experiment):
        if (side == 224 and patch.label == "0.4 %") or one.network == CELLS:
            continue
        cover = built_cover(one, patch, (side, side))
        assert cover.threat == one.threat(patch.on((side, side)))
        if one.network == BANDS:
            width = side // BAND
            assert (len(cover), cover.mask) == (side, (side, side - width))
            assert cover.min_fold == cover.k == side - (width + patch.on((side, side)).width - 1)
            continue
        assert built_defence(one, patch, (side, side)).cover.describe() == cover.describe()
        assert cover.min_fold >= cover.k == one.k == one.fold[0] * one.fold[1]
        assert one.mask is None or side != 224 or cover.mask == (one.mask, one.mask)


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.name)
def test_declarations_refer_to_what_is_there(experiment: Experiment) -> None:
    for patch in experiment.every_patch:
        names = [one.name for one in experiment.defences(patch)]
        assert len(set(names)) == len(names)
        for comparison in experiment.comparisons:
            assert {comparison.first, comparison.second} <= set(names)
            assert comparison.first != comparison.second
    assert all(x in AXES and measure in MEASURES for x, measure in experiment.panels)
    labels = {patch.label for patch in experiment.every_patch}
    for reported in experiment.reported:
        assert reported.threat in labels
        assert reported.model in ("ResNet", "ViT", "MLP", "")
        assert reported.method in experiment.methods | {"MSGreedyCutout"}
        if reported.clean is not None and reported.robust is not None:
            assert reported.robust <= reported.clean


@pytest.mark.parametrize("name", ["table1", "table1-photo", "figure-patch-size", "zoom", "sizes", "reach"])
def test_zoom_as_shipped_is_measured_against_every_patch(name: str) -> None:
    for patch in EXPERIMENTS[name].every_patch:
        found = {one.name: one for one in EXPERIMENTS[name].defences(patch)}
        assert (found["zoom"].rule, found["zoom detection"].rule) == ("zoom", "zoom-detection")
        for one in (found["zoom"], found["zoom detection"]):
            assert (one.levels, one.against, dict(one.parameters), one.tuned) == (LEVELS, "one patch", {}, False)


def test_compared_defences_have_comparable_promises() -> None:
    """Unanimity is compared with juries that detect, recovery only with recovery."""
    for experiment in ALL:
        promises = {
            one.name: (listed_local if one.network == CELLS else listed)(one.rule).rule.guarantee
            for _, one in declared(experiment)
        }
        for comparison in experiment.comparisons:
            kinds = {promises[comparison.first], promises[comparison.second]}
            assert kinds == {Guarantee.RECOVERY} or Guarantee.RECOVERY not in kinds


def figure(
    experiment: Experiment, method: str, model: str, data: str, threat: str
) -> tuple[float | None, float | None]:
    """Clean and robust as reported."""
    (found,) = [
        r for r in experiment.reported if (r.method, r.model, r.data, r.threat) == (method, model, data, threat)
    ]
    return found.clean, found.robust


def test_the_papers_tables_agree_with_each_other_as_they_do_in_print() -> None:
    assert len(TABLE1.reported) == 10 * 8
    assert len(TABLE2.reported) == 9
    assert len(TABLE3.reported) == 18
    for model in ("ResNet", "ViT", "MLP"):
        for data, threat in (("imagenette", "3 %"), ("imagenet", "3 %"), ("cifar10", "2.4 %")):
            assert figure(TABLE3, "Offset", model, data, threat) == figure(TABLE1, "CM", model, data, threat)
    assert figure(TABLE4, "k=6", "ViT", "imagenet", "3 %") == figure(TABLE3, "Offset", "ViT", "imagenet", "3 %")
    assert figure(TABLE4, "k=1", "ViT", "imagenet", "3 %") == figure(TABLE3, "Replicated", "ViT", "imagenet", "3 %")
    cnn = figure(APPENDIX_D, "mask 56", "ResNet", "imagenet", "2 %")
    assert cnn == figure(TABLE1, "CM", "ResNet", "imagenet", "3 %") != figure(TABLE1, "CM", "ResNet", "imagenet", "2 %")
    vit = figure(APPENDIX_D, "mask 48", "ViT", "imagenet", "2 %")
    assert vit == figure(TABLE1, "CM", "ViT", "imagenet", "2 %") == (84.5, 75.5)


@pytest.mark.parametrize(
    ("data", "threat", "method", "gain"),
    [
        ("imagenet", "2 %", ("PC", "ViT"), 13.4),
        ("imagenet", "2 %", ("PG-DS", ""), 59.8),
        ("cifar10", "2.4 %", ("PC", "ViT"), 7.3),
    ],
)
def test_the_gains_that_the_papers_text_names(data: str, threat: str, method: tuple[str, str], gain: float) -> None:
    ours, theirs = figure(TABLE1, "CM", "ViT", data, threat)[1], figure(TABLE1, *method, data, threat)[1]
    assert ours is not None
    assert theirs is not None
    assert ours - theirs == pytest.approx(gain)


def test_patch_sides_are_the_papers() -> None:
    for percent in (1, 2, 3):
        side = SIDES[f"{percent} %"]
        assert side == math.ceil(224 * math.sqrt(percent / 100))
    for label, pixels in (("0.4 %", 2), ("2.4 %", 5)):
        assert SIDES[label] == 7 * pixels
        assert PATCHES[label].on((32, 32)).size == (pixels, pixels)
        assert round(100 * (pixels / 32) ** 2, 1) == float(label.split()[0])


@given(st.integers(1, 224), st.integers(1, 1000))
def test_a_patch_on_another_input_is_never_weaker(side: int, length: int) -> None:
    found = scaled(side, length)
    assert found / length >= side / 224 - 1e-12
    assert (found - 1) / length < side / 224


def test_counts_are_those_of_formulas_covers_and_theory() -> None:
    keys = ("paper_once", "exact_once", "paper_offset", "paper_bound", "exact_k")
    found = {count["patch"]: tuple(count[key] for key in keys) for count in mask_counts()}
    assert found == {
        "0.4 %": (12544, 5041, 75264, 75264, 30246),
        "1 %": (625, 441, 3750, 3720, 2646),
        "2 %": (196, 144, 1176, 1176, 864),
        "2.4 %": (121, 81, 704, 684, 486),
        "3 %": (196, 121, 1080, 1044, 726),
    }
    for label in ("1 %", "2 %", "2.4 %", "3 %"):
        labelled = PATCHES[label]
        defences = {one.name: one for one in TABLE1.defences(labelled)}
        patch, mask = labelled.on((224, 224)), (MASKS[label], MASKS[label])
        offset = built_cover(defences["published k=6"], labelled, (224, 224))
        assert offset.placed == offset_count((224, 224), patch, mask, PAPER_FOLD) == found[label][2]
        least = built_cover(defences["published, exact minimum k=1"], labelled, (224, 224))
        assert len(least) == minimum_masks((224, 224), patch, mask) == found[label][1]


def test_passes_named_in_the_questions_are_those_of_the_covers() -> None:
    (patch,) = PARETO.patches["imagenet"]
    defences = {one.name: one for one in PARETO.defences(patch)}

    def passes(name: str) -> int:
        singles, pairs = Trial(PARETO, "m", "d", patch, (224, 224), (defences[name],), None).passes()
        return singles - 1 + pairs

    asked = [c for c in PARETO.comparisons if "passes" in c.question]
    assert len(asked) == 5
    for comparison in asked:
        named = re.findall(r"[\d,]+(?= (?:and|passes))", comparison.question)
        assert [passes(comparison.first), passes(comparison.second)] == [
            int(number.replace(",", "")) for number in (named * 2)[:2]
        ]


def test_absurd_covers_run_on_a_handful_of_images_with_the_exact_minimum_beside_them() -> None:
    usual, few = trials(TABLE1, "m", "cifar10", (224, 224), Limits(images=2000, patches=frozenset({"0.4"})))
    assert {"published k=6", "jury detection k=6", "Minority Reports k=6", "HiCert k=6"} == {
        one.name for one in few.declared if one.tiling == "offset"
    }
    assert {one.tiling for one in few.declared} == {"offset", "minimal"}
    assert (few.images, few.few, usual.images, usual.few) == (3, True, 2000, False)
    assert "offset" not in {one.tiling for one in usual.declared}
    assert few.path(Path("x")) != usual.path(Path("x"))
    assert few.passes()[0] > 50_000
    for one in few.declared + usual.declared:
        cover = built_cover(one, few.patch, few.image)
        assert cover.min_fold >= cover.k == one.fold[0] * one.fold[1]
        assert one.mask is None or cover.mask == (16, 16)


def test_choosing_patches_leaves_what_has_none() -> None:
    chosen_one = Limits(patches=frozenset({"2"}))
    assert [trial.patch.label for trial in trials(TABLE1, "m", "imagenet", (SIZE, SIZE), chosen_one)] == ["2 %"]
    assert len(trials(TABLE2, "m", "imagenet", (SIZE, SIZE), chosen_one)) == 1
    assert trials(TABLE4, "m", "imagenet", (SIZE, SIZE), chosen_one) == []


@pytest.mark.parametrize("name", [*EXPERIMENTS, "all"])
@pytest.mark.parametrize("data", [["cifar10"], ["demo-cifar10"], ["imagenette", "CIFAR-10"]], ids=str)
def test_an_unknown_patch_is_told_with_what_every_name_of_data_offers(name: str, data: list[str]) -> None:
    """One line; a patch that a name is said to have is taken for data of that name, and no other is."""
    experiments = chosen(name)
    with pytest.raises(CertmaskError) as caught:
        check_patches(experiments, data, frozenset({"77"}))
    message = str(caught.value)
    assert re.fullmatch(r"expected [^\n]+, got '77'", message)
    if name in ("table2", "counts"):
        assert message == "expected no choice of patches where there are none, got '77'"
        return
    own = re.findall(r"among ([\d., ]+|none) for data named (.+) \(", message)
    assert len(own) == 1
    offers = re.findall(r"(\w+) ([\d., ]+)[;)]", message.partition("NAME=SOURCE: ")[2])
    assert {label for label, _ in offers} <= {"imagenet", "imagenette", "cifar10"}
    assert [label for label, _ in offers] == list(dict.fromkeys(label for one in experiments for label in one.patches))
    everything = {patch.number for experiment in ALL for patch in experiment.every_patch}
    for numbers, names in [*own, *((numbers, label) for label, numbers in offers)]:
        said = set(numbers.split(", "))
        for number in everything - {"none"}:
            if number in said:
                check_patches(experiments, names.split(", "), frozenset({number}))
            else:
                with pytest.raises(CertmaskError, match=re.escape(repr(number))):
                    check_patches(experiments, names.split(", "), frozenset({number}))


def test_data_sets_of_the_paper_have_their_own_patches() -> None:
    assert [t.label for t in TABLE1.patches_on("CIFAR-10")] == ["0.4 %", "2.4 %"]
    assert [t.label for t in TABLE1.patches_on("imagenette")] == ["1 %", "2 %", "3 %"]
    assert TABLE1.patches_on("my photos") == TABLE1.patches_on("imagenet")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deit_tiny_patch16_224", "ViT"),
        ("vit_base_patch16_224", "ViT"),
        ("resmlp_24_224.fb_distilled_in1k", "MLP"),
        ("resnetv2_50x1_bit.goog_distilled_in1k", "ResNet"),
        ("cifar-resnet-greedy", "ResNet"),
        ("efficientnet-lite0", ""),
    ],
)
def test_families(model: str, expected: str) -> None:
    assert family(model) == expected


def test_unknown_names_are_errors() -> None:
    assert len(chosen("all")) == len(EXPERIMENTS)
    assert [experiment.patches for experiment in chosen("counts")] == [{}]
    assert LEVELS == PER_AXIS
    with pytest.raises(CertmaskError, match="'table9'"):
        chosen("table9")
    with pytest.raises(CertmaskError, match="'--'"):
        slug("--")
    assert slug("a  b--c/d") == "a-b-c-d"
    with pytest.raises(CertmaskError, match="none without masks, got 0"):
        DeclaredDefence("x", "undefended", "spread")
    with pytest.raises(CertmaskError, match="none without masks, got 1"):
        DeclaredDefence("x", "smoothing", "bands", mask=20, network=BANDS)


def photos(classifier: Classifier, count: int) -> Dataset:
    """Random pictures; every other one is labelled as the classifier sees it."""
    chance = np.random.default_rng(0)
    samples = []
    for number in range(count):
        pixels = chance.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
        label = int(classifier(tensor).argmax()) if number % 2 else number % classifier.classes
        samples.append(Sample(f"p{number}", label, partial(Image.fromarray, pixels)))
    return Dataset("noise", tuple(samples), Framing(1.0))


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier(tiny_network(classes=3, size=SIZE), SIZE, precision="fp32", batch=64, name="tiny")


def perform(trial: Trial, classifier: Classifier, dataset: Dataset, folder: Path) -> None:
    trial.perform(trial.engine(classifier), dataset, folder, lambda *_: None, Margin())


@pytest.fixture(scope="module")
def results(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments on four pictures by a small network that is called a ViT."""
    folder = tmp_path_factory.mktemp("results")
    for experiment in (TABLE4, FOLD):
        for trial in trials(experiment, "deit-tiny", "imagenet", (SIZE, SIZE), Limits(images=4)):
            perform(trial, classifier, photos(classifier, 4), folder)
    return folder


def test_tables_say_what_the_rows_say(results: Path, tmp_path: Path) -> None:
    """Every figure again by brute force over the rows; reported and measured never meet."""
    write_tables(FOLD, results, tmp_path)
    content = json.loads((tmp_path / "fold" / "table.json").read_text())
    (path,) = (results / "fold").glob("*.jsonl")
    header, rows = read_results(path)
    kinds = {"recovery": "certified_recovery", "detection": "certified_detection", "published test": "published_test"}
    assert len(content["rows"]) == 25
    some = 0
    for row in content["rows"]:
        found = [(r["label"], r["defences"][row["defence"]]) for r in rows]
        measured = row["measured"]
        own = kinds[header["defences"][row["defence"]]["rule"]["guarantee"]]
        assert row["reported"] is None
        assert measured["images"] == len(rows) == 4
        assert measured["clean_accuracy_count"] == sum(o["label"] == y and not o["alert"] for y, o in found)
        assert measured["false_alerts_count"] == sum(o["alert"] for _, o in found)
        assert measured[f"{own}_count"] == sum(o["certified"] for _, o in found)
        assert measured["passes_to_prove"] == pytest.approx(np.mean([o["certificate_passes"] for _, o in found]))
        some += measured[f"{own}_count"]
        for other in set(kinds.values()) - {own}:
            assert measured[other] is None
    assert some


def test_paired_comparisons_by_brute_force(results: Path, tmp_path: Path) -> None:
    write_tables(FOLD, results, tmp_path)
    content = json.loads((tmp_path / "fold" / "table.json").read_text())
    (path,) = (results / "fold").glob("*.jsonl")
    _, rows = read_results(path)
    assert len(content["paired"]) == len(FOLD.comparisons)
    tested = []
    for pair in content["paired"]:
        first, second = (
            {r["image"] for r in rows if r["defences"][pair[side]]["certified"]} for side in ("first", "second")
        )
        assert (pair["gained"], pair["lost"]) == (len(first - second), len(second - first))
        thrown = pair["gained"] + pair["lost"]
        if pair["note"]:
            assert (pair["p_mcnemar"], pair["p_holm"], pair["lost"]) == (None, None, 0)
        else:
            assert pair["p_mcnemar"] == pytest.approx(binomtest(pair["gained"], thrown).pvalue if thrown else 1.0)
            tested.append((pair["p_mcnemar"], pair["p_holm"]))
    assert [adjusted for _, adjusted in tested] == holm([chance for chance, _ in tested])
    assert 0 < len(tested) < len(content["paired"])


def test_a_gain_is_counted_on_the_right_side(results: Path, tmp_path: Path) -> None:
    """Change what two rows say, and see the change."""
    (path,) = (results / "fold").glob("*.jsonl")
    lines = path.read_text().splitlines()
    for number in (1, 2):
        row = json.loads(lines[number])
        row["defences"]["jury detection k=6"] |= {"certified": True, "label": row["label"], "alert": False}
        row["defences"]["published k=6"]["certified"] = False
        lines[number] = json.dumps(row)
    (tmp_path / "fold").mkdir()
    (tmp_path / "fold" / path.name).write_text("\n".join(lines) + "\n")
    write_tables(FOLD, tmp_path, tmp_path)
    content = json.loads((tmp_path / "fold" / "table.json").read_text())
    (pair,) = [p for p in content["paired"] if p["question"] == "juries against unanimity at k = 6"]
    assert pair["gained"] >= 2


def test_the_papers_figures_stand_beside_the_same_family_data_and_patch(results: Path, tmp_path: Path) -> None:
    (done,) = finished_trials(TABLE4, results)
    found = {name: entry.reported for name, entry in done.entries.items()}
    for k in range(1, 7):
        beside = found[f"published k={k}"]
        assert beside is not None
        assert (beside.clean, beside.robust) == figure(TABLE4, f"k={k}", "ViT", "imagenet", "3 %")
        assert found[f"jury detection k={k}"] is None
    assert unmeasured(TABLE4, done.entries.values()) == []
    (tmp_path / "table4").mkdir()
    for model, data in (("resnet", "imagenet"), ("deit-tiny", "imagenette"), ("efficientnet", "imagenet")):
        other = tmp_path / "table4" / f"{model}--{data}--patch39.jsonl"
        other.write_bytes(done.run.path.read_bytes())
    for done in finished_trials(TABLE4, tmp_path):
        assert all(entry.reported is None for entry in done.entries.values())
        assert unmeasured(TABLE4, done.entries.values()) == list(TABLE4.reported)


def test_markdown_and_csv_keep_reported_and_measured_apart(results: Path, tmp_path: Path) -> None:
    markdown = write_tables(TABLE4, results, tmp_path).markdown
    head = next(line for line in markdown.splitlines() if line.startswith("| model"))
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns.count("clean (paper, %)") == columns.count("clean (measured, %)") == 1
    for name in ("published test", "certified detection", "false alerts", "certified recovery"):
        assert columns.count(f"{name} (measured, %)") == 1
    first = next(line for line in markdown.splitlines() if "| published k=1 |" in line)
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert len(cells) == len(columns)
    assert (cells[columns.index("clean (paper, %)")], cells[columns.index("robust (paper, %)")]) == ("82.0", "78.6")
    assert cells[columns.index("certified recovery (measured, %)")] == "–"
    assert cells[columns.index("J to prove")] == "–"
    assert cells[columns.index("ms to prove")] != "–"
    csv = (tmp_path / "table4" / "table.csv").read_text().splitlines()
    assert {"reported_robust_percent", "published_test", "published_test_low"} <= set(csv[0].split(","))
    assert len(csv) == 13
    assert Image.open(tmp_path / "table4" / "table4--deit-tiny--imagenet--patch39.png").size[0] > 1200


def test_copies_of_masks_are_counted_beside_them(classifier: Classifier, tmp_path: Path) -> None:
    (trial,) = trials(TABLE3, "m", "imagenet", (SIZE, SIZE), Limits(images=1))
    perform(trial, classifier, photos(classifier, 1), tmp_path)
    write_tables(TABLE3, tmp_path, tmp_path)
    rows = {row["defence"]: row["measured"] for row in json.loads((tmp_path / "table3/table.json").read_text())["rows"]}
    once, six = (rows[f"published, Replicated k={k}"] for k in (1, 6))
    assert once["masks"] == once["masks_placed"] == six["masks"] == 16 * 16
    assert six["masks_placed"] == 6 * 16 * 16
    assert "| 256 (1,536 placed) |" in (tmp_path / "table3" / "table.md").read_text()


def test_passes_of_a_run_stay_within_the_plan(results: Path) -> None:
    for experiment in (TABLE4, FOLD):
        (trial,) = trials(experiment, "deit-tiny", "imagenet", (SIZE, SIZE), Limits())
        _, rows = read_results(trial.path(results))
        assert max(row["passes"] for row in rows) <= sum(trial.passes())


def test_an_image_that_every_defence_certifies_takes_all_planned_passes(tmp_path: Path) -> None:
    """A classifier that never changes its mind; only the masks of no jury, and none here, could be spared."""
    steady = Classifier(lambda x: torch.eye(2)[:1].expand(len(x), 2), SIZE, classes=2, batch=64, name="steady")
    (trial,) = trials(FOLD, "steady", "noise", (SIZE, SIZE), Limits())
    kept = tuple(one for one in trial.declared if one.fold == (2, 2))
    trial = Trial(FOLD, "steady", "noise", trial.patch, trial.image, kept, 1)
    perform(trial, steady, photos(steady, 1), tmp_path)
    _, (row,) = read_results(trial.path(tmp_path))
    singles, pairs = trial.passes()
    assert row["passes"] == singles - 1 + pairs


def test_one_margin_is_measured_on_the_engine_that_then_certifies(
    classifier: Classifier, little_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial measures, on an engine with all its covers; the next takes over; a third reads it in its file.

    What a file says is not handed on: it has no margin in units that its own rules do not read.
    """
    measured: list[Engine] = []
    certified: list[tuple[Engine, float]] = []

    def margin(engine: Engine, *_: Any) -> tuple[Margin, str]:
        measured.append(engine)
        return Margin(0.25, 0.5, 4.0), "measured"

    def certify(engine: Engine, dataset: Dataset, defences: list[MaskedDefence], path: Path, **_: Any) -> Any:
        certified.append((engine, defences[0].rule.margin))
        return certify_run(engine, dataset, defences, path)

    monkeypatch.setattr("certmask.experiments.campaign.run_margin", margin)
    monkeypatch.setattr("certmask.experiments.trials.certify_run", certify)
    said: list[str] = []

    def run(*experiments: Experiment) -> None:
        named = Named("tiny", str(little_model)), Named("noise", "noise")
        campaign = Campaign(experiments, named[:1], named[1:], Limits(images=1), tmp_path)
        pictures = photos(classifier, 1)
        campaign.run(
            lambda _: classifier, lambda *_: pictures, None, said.append, lambda _: nullcontext(lambda *_: None)
        )

    run(TABLE2, TABLE4)
    assert [engine for engine, _ in certified[:1]] == measured
    assert [margin for _, margin in certified] == [0.25, 0.25]
    monkeypatch.setattr("certmask.experiments.campaign.run_margin", run_margin)
    run(TABLE4, TABLE3)
    told = [line for line in said if line.startswith("margin")]
    assert told[:2] == [
        "margin 0.25 in probabilities, 0.5 in logarithms (measured)",
        "margin 0.25 in probabilities, 0 in logarithms (as in the file)",
    ]
    assert len(told) == 3
    assert told[2].endswith("(measured)")
    assert [margin for _, margin in certified[-2:]] == [0.25, pytest.approx(0, abs=1e-3)]


def test_every_defence_has_the_margin_in_its_own_unit() -> None:
    (trial,) = trials(PARETO, "m", "imagenet", (SIZE, SIZE), Limits())
    margins = {defence.name: defence.rule.margin for defence in trial.defences(Margin(0.25, 0.5))}
    assert margins == {one.name: 0.5 if "log-probability" in one.name else 0.25 for one in trial.declared}
    assert set(margins.values()) == {0.25, 0.5}


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda h: h["defences"].update({"another": h["defences"]["published k=1"]}), "'another'"),
        (lambda h: h["defences"]["published k=6"]["cover"].update(mask=[9, 9]), r"\(9, 9\)"),
        (lambda h: h["defences"]["published k=6"]["cover"].update(tiling="spread"), "'spread'"),
        (lambda h: h["defences"]["published k=6"]["cover"].update(patch=[5, 5]), "any 5×5 patch"),
        (lambda h: h.update(kind="speed"), "'speed'"),
    ],
)
def test_files_of_another_experiment_are_refused(results: Path, tmp_path: Path, change: Any, got: str) -> None:
    (done,) = finished_trials(TABLE4, results)
    lines = done.run.path.read_text().splitlines()
    header, rows = json.loads(lines[0]), [json.loads(line) for line in lines[1:]]
    change(header)
    for row in rows:
        row["defences"] = {
            name: row["defences"].get(name, row["defences"]["published k=1"]) for name in header["defences"]
        }
    path = tmp_path / "table4" / done.run.path.name
    path.parent.mkdir()
    path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n")
    with pytest.raises(ResultsError, match=got):
        write_tables(TABLE4, tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["model--patch39", "a--b--c--patch39", "a--b--patch40", "a--b--nonsense"])
def test_file_names_say_model_data_and_patch(results: Path, tmp_path: Path, name: str) -> None:
    (done,) = finished_trials(TABLE4, results)
    (tmp_path / "table4").mkdir()
    (tmp_path / "table4" / f"{name}.jsonl").write_bytes(done.run.path.read_bytes())
    with pytest.raises(ResultsError, match="MODEL--DATA--PATCH"):
        finished_trials(TABLE4, tmp_path)


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="got none"):
        write_tables(TABLE1, tmp_path, tmp_path)


def test_an_unfinished_run_is_called_unfinished(results: Path, tmp_path: Path) -> None:
    (done,) = finished_trials(TABLE4, results)
    (tmp_path / "table4").mkdir()
    lines = done.run.path.read_text().splitlines()
    (tmp_path / "table4" / done.run.path.name).write_text("\n".join(lines[:4]) + "\n")
    assert "| 3 of 4 |" in write_tables(TABLE4, tmp_path, tmp_path).markdown


def test_a_run_without_an_image_does_not_stand_in_the_way(results: Path, tmp_path: Path) -> None:
    (done,) = finished_trials(TABLE4, results)
    (tmp_path / "table4").mkdir()
    header = done.run.path.read_bytes().splitlines(keepends=True)[0]
    (tmp_path / "table4" / "resnet--imagenet--patch39.jsonl").write_bytes(header)
    with pytest.raises(ResultsError, match="got none"):
        write_tables(TABLE4, tmp_path, tmp_path)
    (tmp_path / "table4" / done.run.path.name).write_bytes(done.run.path.read_bytes())
    assert (
        "No image is done yet in resnet--imagenet--patch39.jsonl." in write_tables(TABLE4, tmp_path, tmp_path).markdown
    )


def packed(folder: Path, out: Path) -> Path:
    """The results under ``folder`` as they are kept: packed, with their meters beside them."""
    for path in folder.glob("*/*.jsonl"):
        target = out / path.parent.name / f"{path.name}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(path.read_bytes()))
        meter_path(target.with_suffix("")).write_bytes(meter_path(path).read_bytes())
    return out


@pytest.mark.parametrize("experiment", [TABLE4, FOLD], ids=lambda e: e.name)
def test_packed_results_give_the_same_tables(results: Path, tmp_path: Path, experiment: Experiment) -> None:
    folder = packed(results, tmp_path / "packed")
    plain, same = (write_tables(experiment, source, tmp_path / source.name).markdown for source in (results, folder))
    assert plain.replace(".jsonl |", ".jsonl.gz |") == same
    assert "– | – | – | – |" not in next(line for line in same.splitlines() if "k=1 |" in line), "the meter is lost"
    (one,), (other,) = (finished_trials(experiment, source) for source in (results, folder))
    assert (one.model, one.data, one.patch) == (other.model, other.data, other.patch)
    costs = [[e.measured.pass_milliseconds for e in done.entries.values()] for done in (one, other)]
    assert costs[0] == costs[1]
    assert None not in costs[0]


def test_results_in_both_forms_are_refused(results: Path, tmp_path: Path) -> None:
    packed(results, tmp_path)
    (kept,) = result_paths(FOLD, tmp_path)
    kept.with_suffix("").write_bytes(gzip.decompress(kept.read_bytes()))
    with pytest.raises(ResultsError, match=r"expected one of .*patch32\.jsonl and .*patch32\.jsonl\.gz, got both"):
        write_tables(FOLD, tmp_path, tmp_path)
    kept.unlink()
    assert len(finished_trials(FOLD, tmp_path)) == 1


def test_packed_files_that_say_nothing_or_are_broken(results: Path, tmp_path: Path) -> None:
    packed(results, tmp_path)
    (kept,) = result_paths(TABLE4, tmp_path)
    header = gzip.decompress(kept.read_bytes()).splitlines(keepends=True)[0]
    unfinished = kept.with_name("resnet--imagenet--patch39.jsonl.gz")
    unfinished.write_bytes(gzip.compress(header))
    assert [done.run.path for done in finished_trials(TABLE4, tmp_path)] == [kept]
    assert f"No image is done yet in {unfinished.name}." in write_tables(TABLE4, tmp_path, tmp_path).markdown
    unfinished.write_bytes(kept.read_bytes()[:50])
    with pytest.raises(ResultsError, match="expected a gzip file"):
        finished_trials(TABLE4, tmp_path)
    unfinished.rename(unfinished.with_name("nonsense.jsonl.gz"))
    kept.rename(kept.with_name("a--b--patch40.jsonl.gz"))
    unfinished.with_name("nonsense.jsonl.gz").unlink()
    with pytest.raises(ResultsError, match="MODEL--DATA--PATCH"):
        finished_trials(TABLE4, tmp_path)


def test_meters_add_up_and_leave_out_what_nobody_measured(tmp_path: Path) -> None:
    results = tmp_path / "run.jsonl"
    assert read_stretches(results) == []
    for stretch in (Stretch(100, 2.0, 50.0), Stretch(0, 9.0, None), Stretch(300, 2.0, None)):
        add_stretch(results, stretch)
    assert read_stretches(results) == [Stretch(100, 2.0, 50.0), Stretch(300, 2.0, None)]
    assert milliseconds_per_pass(read_stretches(results)) == 10.0
    assert joules_per_pass(read_stretches(results)) == 0.5
    assert milliseconds_per_pass([]) is joules_per_pass([]) is None
    for nonsense in ("{", "[1]", '[{"passes": 1}]'):
        meter_path(results).write_text(nonsense)
        with pytest.raises(ResultsError, match=r"run\.meter\.json"):
            read_stretches(results)


def test_a_meter_starts_with_the_first_word_and_passes_everything_on() -> None:
    heard: list[tuple[str, int]] = []
    joules = iter([100.0, 130.0])
    meter = Meter(lambda what, count: heard.append((what, count)), lambda: next(joules))
    for what, count in (("images", 0), ("passes", 5), ("images", 1), ("passes", 7)):
        meter(what, count)
    stretch = meter.stretch()
    assert (stretch.passes, stretch.joules) == (12, 30.0)
    assert stretch.seconds > 0
    assert len(heard) == 4
    assert Meter(lambda *_: None, lambda: None).stretch() == Stretch(0, 0.0, None)


class FakeDriver:
    """Behaves as the driver's library does: status codes returned, values written through pointers."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def nvmlInit_v2(self) -> int:
        return int(self.fails == "init")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        assert uuid == b"GPU-123"
        return int(self.fails == "device")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, joules: Any) -> int:
        joules._obj.value = 2_500
        return int(self.fails == "energy")


def test_energy_is_read_where_the_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        uuid = "123"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties())
    device = torch.device("cuda")
    for fails, expected in (("", 2.5), ("init", None), ("device", None), ("energy", None)):
        monkeypatch.setattr(ctypes, "CDLL", lambda _, fails=fails: FakeDriver(fails))
        assert energy_counter(device)() == expected

    def no_library(_: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert energy_counter(device)() is None
    assert energy_counter(torch.device("cpu"))() is None


def test_reported_only_rows_print_what_the_paper_prints(results: Path, tmp_path: Path) -> None:
    """Methods for which no network was run appear with the paper's figure alone."""
    alone = unmeasured(TABLE1, [])
    assert {r.method for r in alone} == {"CM", "PC", "CBN", "DS", "PG-BN", "PG-DS"}
    assert Reported("CBN", "", "imagenet", "3 %", "Table 1", 49.5, 3.1) in alone


def test_methods_that_certmask_lacks_are_printed_with_every_figure_of_the_paper() -> None:
    """One row per method, clean / robust for every data set and patch."""
    table = other_methods_table(APPENDIX_D)
    assert [row[0].text for row in table.rows] == ["MSGreedyCutout (ViT)"]
    for row in table.rows:
        method, _, model = row[0].text.rstrip(")").partition(" (")
        for heading, cell in zip(table.headings[1:], row[1:], strict=True):
            data, _, threat = heading.text.partition(" ")
            clean, robust = figure(APPENDIX_D, method, model, data, threat)
            assert cell.text == f"{clean:.1f} / {robust:.1f}"
    assert [other_methods_table(experiment).rows for experiment in (TABLE1, TABLE2)] == [[], []]


def test_two_pavements_that_the_paper_takes_for_one() -> None:
    """What the note under Tables 3 and 4 says of them."""
    image, (patch,) = (224, 224), TABLE4.patches["imagenet"]
    replicated, offset = (
        built_cover(next(one for one in experiment.defences(patch) if one.name == name), patch, image)
        for experiment, name in ((TABLE3, "published, Replicated k=6"), (TABLE4, "published k=1"))
    )
    for cover, begin in ((replicated, -19), (offset, -28)):
        starts = [begin + 17 * number for number in range(14)]
        assert {(mask.top, mask.left) for mask in cover.masks} == {(top, left) for top in starts for left in starts}
        assert {mask.wraps for mask in cover.masks} == {cover is offset}
    seen = [{mask.footprint(image) for mask in cover.masks} for cover in (replicated, offset)]
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("side", [224, SIZE])
def test_comparisons_that_a_theorem_decides_rest_on_one_cover_or_on_masks_within(side: int) -> None:
    for experiment in ALL:
        for patch in experiment.every_patch:
            defences = {one.name: one for one in experiment.defences(patch)}
            for comparison in (c for c in experiment.comparisons if c.theorem and patch.label != "0.4 %"):
                first, second = defences[comparison.first], defences[comparison.second]
                covers = [built_cover(one, patch, (side, side)) for one in (first, second)]
                if first.rule == second.rule == "published":
                    masks = [{mask.footprint((side, side)) for mask in cover.masks} for cover in covers]
                    assert masks[0] <= masks[1]
                else:
                    assert (first.rule, second.rule) == ("jury-detection", "published")
                    assert covers[0] is covers[1]
