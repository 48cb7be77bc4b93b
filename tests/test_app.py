"""What the page is made of: the library's answers, within limits, and nothing that was not offered."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html import escape
from io import BytesIO
from pathlib import Path
from subprocess import run as run_process
from time import time
from typing import Any

import gradio as gr
import pytest
import torch
from commands import PROGRAM, certmask
from fastapi.testclient import TestClient
from PIL import Image

from certmask.app import check_installed, explorer, patching
from certmask.app.confrontation import confronted
from certmask.app.controls import answered
from certmask.app.door import CACHE, KEPT, POLICY
from certmask.app.examples import EXAMPLES, Photo, chosen_photo, example
from certmask.app.explore_tab import ExploreTab
from certmask.app.explorer import ALL, MOST_ROWS, Library, chosen_rows, class_names, photo_votes, rows_table, summary
from certmask.app.findings import found
from certmask.app.lab import KEPT as KEPT_DECODERS
from certmask.app.page import page_app
from certmask.app.patching import KINDS, Answered, Wish, compared, patched
from certmask.app.queue import ANOTHER, SMALL_EACH
from certmask.app.streams import END, Streams
from certmask.app.studio import RULES, Meter, Question, Studio
from certmask.app.study import price, study
from certmask.certificate import BASES, Decision, Guarantee
from certmask.data import CIFAR10, Framing, to_tensor
from certmask.defences import Outcome, examine
from certmask.errors import CertmaskError, ResultsError, UsageError
from certmask.report.gallery import FATES, Album
from certmask.rules.jury_hicert import JuryHiCert
from certmask.service.limits import Limits, RefusedError

API = "/gradio_api/"
SHUT = (
    *(f"{API}{name}" for name in ("file=/etc/passwd", "file/etc/passwd", "proxy=http://127.0.0.1:1/", "deep_link")),
    *(f"{API}{name}/predict" for name in ("run", "api", "call", "call/v2", "stream")),
    *(f"{API}{name}" for name in ("vibe-edit", "vibe-code", "undo-vibe-edit", "vibe-starter-queries", "dev/reload")),
    *(
        f"{API}{name}"
        for name in ("cancel", "reset", "component_server", "process_recording", "runs", "run-history/connect", "token")
    ),
    *(f"{API}{name}" for name in ("custom_component/1/client/component/style.css", "openapi.json", "profiling/traces")),
    *("/login", "/logout", "/monitoring", "/monitoring/summary", "/svelte/x.js", "/pwa_icon", "/docs", "/openapi.json"),
)
"""Addresses that Gradio knows and the page does not need."""
LIMITS = Limits(upload=2**20, pixels=1_000_000, passes=20_000, queue=4, seconds=120)


def open_studio(model: Path, limits: Limits) -> closing[Studio]:
    return closing(Studio([str(model)], limits, backend="torch", precision="fp32"))


@pytest.fixture(scope="module")
def studio(little_model: Path) -> Iterator[Studio]:
    with open_studio(little_model, LIMITS) as found:
        yield found


@pytest.fixture(scope="module")
def run(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos and one of runs, beside a file that is nobody's business."""
    folder = tmp_path_factory.mktemp("home")
    for name in EXAMPLES:
        own = folder / "photos" / "cat" / f"{name}.jpg"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(example(name).content)
    told = ("--model", little_model, "--patch", "5", "--rule", "undefended", "--rule", "patchcleanser")
    certmask("certify", folder / "photos", *told, "--precision", "fp32", "--out", folder / "runs" / "mine.jsonl")
    (folder / "secret.jsonl").write_text("{}\n")
    return folder


def large_photo() -> Photo:
    """One that takes a while to decode, and is within all limits on its size."""
    out = BytesIO()
    Image.effect_noise((1000, 1000), 90).save(out, "PNG")
    return Photo("large", out.getvalue())


def asked(rule: str = "zoom", side: int = 5, count: int = 1) -> Question:
    return Question("little", side, count, rule)


def test_a_study_is_what_predict_says(studio: Studio, little_model: Path, tmp_path: Path) -> None:
    photo = tmp_path / "cat.jpg"
    photo.write_bytes(example("cat").content)
    for rule in ("zoom", "zoom-detection", "patchcleanser", "jury-recovery", "published"):
        told = ("--model", little_model, "--patch", "5", "--rule", rule, "--precision", "fp32", "--json")
        code = 3 if study(studio, example("cat"), asked(rule)).explanation.alert else 0
        (record,) = json.loads(certmask("predict", photo, *told, code=code).stdout)
        one = study(studio, example("cat"), asked(rule))
        said = (
            one.name,
            one.explanation.alert,
            one.explanation.passes,
            one.sentence,
            one.explanation.certificate.holds,
        )
        assert said == tuple(record[key] for key in ("name", "alert", "passes", "meaning", "certified"))


@pytest.mark.parametrize("rule", RULES)
def test_the_price_holds(studio: Studio, rule: str) -> None:
    told = price(studio, asked(rule))
    one = study(studio, example("cup"), asked(rule))
    assert told.least <= one.explanation.passes <= told.most
    assert one.passes <= told.most


def test_the_price_is_told_beside_the_limit(little_model: Path) -> None:
    with open_studio(little_model, Limits(passes=20)) as tight:
        assert "refused where it takes more than 20" in price(tight, asked("zoom")).sentence
        assert "more than the 20 that are allowed" in price(tight, asked("patchcleanser")).sentence
        with pytest.raises(RefusedError, match="at most 20 passes"):
            study(tight, example("cat"), asked("patchcleanser"))


def test_what_takes_too_long_is_refused(little_model: Path) -> None:
    with open_studio(little_model, Limits(seconds=0.001)) as hasty:
        with pytest.raises(RefusedError, match=r"within 0\.001 s"):
            study(hasty, example("cat"), asked("patchcleanser"))
        with pytest.raises(RefusedError, match=r"within 0\.001 s"):
            patched(hasty, example("cat"), asked(), Wish("network"))
    with (
        open_studio(little_model, Limits(decoding=0.001)) as hasty,
        pytest.raises(RefusedError, match=r"decoded within"),
    ):
        study(hasty, large_photo(), asked())


def test_a_meter_counts_and_tells() -> None:
    told: list[tuple[int, str]] = []
    meter = Meter(Limits(passes=10), lambda done, what: told.append((done, what)))
    meter(4)
    meter(6)
    assert told == [(4, "passes"), (10, "passes")]
    with pytest.raises(RefusedError, match="at most 10 passes"):
        meter(1)


def test_only_what_is_offered_is_loaded(studio: Studio) -> None:
    assert studio.models == ("little",)
    for model in ("resnet50", "../little", "/etc/passwd", ""):
        with pytest.raises(UsageError, match="expected the model little"):
            study(studio, example("cat"), Question(model, 5))
    for question in (asked("smoothing"), asked("nonsense"), asked("pair-detection")):
        with pytest.raises(UsageError, match="expected the defence"):
            price(studio, question)
    for question in (asked("zoom", 0), asked("zoom", 33), asked("patchcleanser", 5, 2), asked("zoom", 5, 99)):
        with pytest.raises(CertmaskError, match="expected"):
            price(studio, question)


def test_masked_views_are_what_the_model_saw(studio: Studio) -> None:
    """Asked again about every view alone, the bare model says what the vote says; dissenters come first."""
    one = study(studio, example("rocket"), asked("patchcleanser"))
    classifier = studio.classifier("little")
    assert len(one.views) == 36
    for view, picture in zip(one.views, one.masked, strict=True):
        hidden = (to_tensor(picture) - to_tensor(one.picture)).abs().amax(dim=0) > 0
        rows, columns = (torch.nonzero(hidden.any(dim=axis))[:, 0] for axis in (1, 0))
        mask = one.defence.cover.masks[view.mask]
        (top, bottom), (left, right) = mask.rows((32, 32))[0], mask.columns((32, 32))[0]
        assert top <= int(rows.min()) <= int(rows.max()) < bottom
        assert left <= int(columns.min()) <= int(columns.max()) < right
        image = to_tensor(one.picture).clone()
        image[:, top:bottom, left:right] = torch.tensor(classifier.fill)[:, None, None]
        assert int(classifier(image[None]).argmax()) == view.label
    order = [view.dissents for view in one.views]
    assert order == sorted(order, reverse=True)
    assert str(found(one)).count("cm-dissent") == sum(order)


def test_only_pictures_that_are_shown_are_made(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """All masks are counted, and a few are drawn."""
    monkeypatch.setattr("certmask.app.study.SHOWN", 5)
    one = study(studio, example("rocket"), asked("patchcleanser"))
    assert (len(one.views), len(one.masked)) == (36, 5)
    assert str(found(one)).count("<figcaption><b>") == 5
    assert "36 masks voted" in found(one)


def test_places_in_doubt_are_not_called_settled(studio: Studio) -> None:
    """HiCert wants a lead at the last level, too; other rules take any there."""
    told = 0
    for name in EXAMPLES:
        one = study(studio, example(name), asked("zoom-hicert"))
        last, rule = len(one.defence.cover.levels) - 1, one.defence.rule
        assert isinstance(rule, JuryHiCert)
        doubtful = sum(place.level == last and place.lead <= rule.last for place in one.explanation.places)
        assert (f"{doubtful:,} in doubt" in found(one)) == (doubtful > 0)
        told += doubtful
        assert not re.search(r"\d in doubt", found(study(studio, example(name), asked("zoom-detection"))))
    assert told


def test_uploads_are_bounded(studio: Studio) -> None:
    out = BytesIO()
    Image.new("L", (1001, 1000)).save(out, "PNG")
    refused = {
        out.getvalue(): "at most 1,000,000 pixels, got 1001×1000",
        b"words": "expected a readable image",
        b"": "expected a readable image",
        b"<svg/>": "expected a readable image",
        bytes(2**20 + 1): "at most 1,048,576 bytes",
    }
    for content, reason in refused.items():
        with pytest.raises(RefusedError, match=reason):
            study(studio, Photo("mine", content), asked())
        with pytest.raises(RefusedError, match=reason):
            patched(studio, example("cat"), asked(), Wish("sticker", (0, 0), Photo("mine", content)))


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_patch_changes_nothing_beside_it(studio: Studio, kind: str) -> None:
    steps: list[str] = []
    sticker = example("cup") if kind == "sticker" else None
    one = patched(studio, example("cat"), asked(), Wish(kind, (9, 20), sticker), lambda _, what: steps.append(what))
    changed = (to_tensor(one.picture) != to_tensor(one.clean)).any(dim=0)
    changed[9:14, 20:25] = False
    assert not changed.any()
    assert (to_tensor(one.picture) != to_tensor(one.clean)).any()
    assert ("steps of the attack" in steps) == (kind in ("network", "published"))
    assert [answer.guarantee for answer in one.answers] == [
        Guarantee.NONE, Guarantee.PUBLISHED, Guarantee.DETECTION, Guarantee.RECOVERY,
    ]  # fmt: skip
    assert not any(answer.broken for answer in one.answers)
    assert str(confronted(one)).count("cm-card") >= 4


def test_four_answers_are_those_of_the_defences(studio: Studio) -> None:
    """The patched picture, looked at by each defence alone."""
    one = patched(studio, example("cat"), asked("jury-recovery"), Wish("network"))
    out = BytesIO()
    one.picture.save(out, "PNG")
    assert compared("jury-recovery") == ("undefended", "published", "zoom-detection", "jury-recovery")
    assert compared("hicert") == ("undefended", "published", "hicert", "zoom")
    for answer in one.answers:
        alone = study(studio, Photo("again", out.getvalue()), asked(answer.rule)).explanation
        assert Decision(alone.label, alone.alert) == Decision(answer.patched.label, answer.patched.alert)


def test_clean_photos_are_decided_as_by_examine(studio: Studio) -> None:
    """Answers and certificates of all defences, from one run that asks for no vote twice."""
    for rule in ("zoom", "hicert", "zoom-hicert", "minority-reports"):
        one = patched(studio, example("cat"), asked(rule), Wish("noise"))
        bench, label = studio.bench(asked(rule), compared(rule)), max(one.answers[-1].clean.label, 0)
        (outcomes,) = examine(bench.engine, [to_tensor(one.clean)], [label], bench.defences)
        for answer, outcome in zip(one.answers, outcomes.value, strict=True):
            assert answer.clean == Decision(outcome.label, outcome.alert)
            assert (answer.passed, answer.label) == (bool(outcome.certified), label)


def test_an_attack_leads_away_from_the_answer_of_what_it_attacks(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from what recovery answers, which may be another class."""
    real, other, labels = patching._decided, 3, []

    def odd(*told: Any) -> Any:
        found = real(*told)
        return {**found, "published": (Decision(other), False), "undefended": (Decision(other), False)}

    def seen(*told: Any) -> Any:
        labels.append(told[3])
        return to_tensor(studio.seen(example("cat"), "little")), (0, 0)

    monkeypatch.setattr(patching, "_decided", odd)
    monkeypatch.setattr(patching, "_optimized", seen)
    for kind in ("network", "published"):
        one = patched(studio, example("cat"), asked(), Wish(kind))
        assert one.answers[-1].label == one.answers[-1].clean.label != other
    assert labels == [other, other]


def test_a_promise_is_about_the_class_that_was_certified(studio: Studio) -> None:
    """A certified photo may raise an alert, and be called something else, while it is clean."""
    said = Outcome(4, False, None, 0, 1, 0)
    one = Answered("hicert", Guarantee.DETECTION, 4, True, Decision(7, alert=True), said)
    assert one.certified
    assert not one.broken
    assert replace(one, label=7).broken
    assert not replace(one, label=7, patched=replace(said, alert=True)).broken


def test_two_patches_are_compared_without_the_published_rule(studio: Studio) -> None:
    two = asked("zoom", 3, 2)
    one = patched(studio, example("cat"), two, Wish("noise"))
    assert [answer.rule for answer in one.answers] == ["undefended", "zoom-detection", "zoom"]
    assert "The published rule knows one patch only" in confronted(one)
    with pytest.raises(UsageError, match="expected one patch at once"):
        patched(studio, example("cat"), two, Wish("published"))


@pytest.mark.parametrize(("limit", "reason"), [("upload", "at most 1 bytes"), ("pixels", "at most 1 pixels")])
def test_examples_are_shown_however_little_visitors_may_bring(little_model: Path, limit: str, reason: str) -> None:
    with open_studio(little_model, replace(LIMITS, **{limit: 1})) as tight:
        for name in EXAMPLES:
            assert study(tight, example(name), asked()).photo == name
        with pytest.raises(RefusedError, match=reason):
            tight.seen(Photo("mine", example("cat").content), "little")


def test_one_pass_is_not_called_passes(little_model: Path) -> None:
    with open_studio(little_model, Limits(passes=1)) as tight:
        assert "more than the 1 that is allowed here" in price(tight, asked()).sentence
        with pytest.raises(RefusedError, match="at most 1 pass, got one more"):
            study(tight, example("cat"), asked())


def test_what_an_answer_rests_on_is_said_once(studio: Studio) -> None:
    bases = set()
    for name in EXAMPLES:
        for rule in ("zoom", "jury-recovery"):
            one = study(studio, example(name), asked(rule))
            (words,) = [part for part in re.findall(r"<p>(.*?)</p>", str(found(one))) if " places " in part]
            assert words.count(str(escape(BASES[one.explanation.basis]))) == 1
            bases.add(one.explanation.basis)
    assert len(bases) > 1


def test_a_long_photo_is_said_to_be_shown_in_part(studio: Studio) -> None:
    """A model looks at the middle of it, and of nothing else is anything proved."""
    out = BytesIO()
    Image.effect_noise((1500, 100), 90).convert("RGB").save(out, "PNG")
    one = study(studio, Photo("long", out.getvalue()), asked())
    assert one.sharp.width == one.sharp.height
    assert "<figcaption>as much of the photo as the model looks at</figcaption>" in found(one)
    thin = BytesIO()
    Image.new("L", (2010, 10)).save(thin, "PNG")
    with pytest.raises(RefusedError, match="less than 200 times as long as wide, got 2010×10"):
        study(studio, Photo("thin", thin.getvalue()), asked())


def test_a_wish_that_makes_no_sense_is_refused(studio: Studio) -> None:
    for wish in (Wish("sticker", (0, 0)), Wish("magic"), Wish("noise", (28, 28)), Wish("noise", (-1, 0))):
        with pytest.raises(CertmaskError, match="expected"):
            patched(studio, example("cat"), asked(), wish)


def test_only_results_below_the_folder_are_opened(run: Path) -> None:
    runs = run / "runs"
    (runs / "deep").mkdir(exist_ok=True)
    (runs / "deep" / "again.jsonl").write_bytes((runs / "mine.jsonl").read_bytes())
    (runs / "way-out.jsonl").symlink_to(run / "secret.jsonl")
    (runs / "words.jsonl").write_text("no results")
    library = Library(runs)
    assert library.names() == ["deep/again.jsonl", "mine.jsonl", "words.jsonl"]
    for name in ("../secret.jsonl", str(run / "secret.jsonl"), "way-out.jsonl", "/etc/passwd", "", "deep"):
        with pytest.raises(UsageError, match="expected a results file below runs"):
            library.run(name)
    with pytest.raises(ResultsError, match="expected"):
        library.run("words.jsonl")
    assert Library(run / "nowhere").names() == []


def test_packed_results_are_opened_unless_they_are_too_large_once_unpacked(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = (run / "runs" / "mine.jsonl").read_bytes()
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "padded.jsonl.gz").write_bytes(gzip.compress(plain + b"\n" * 2**21))
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(plain)[:-9])
    library = Library(tmp_path)
    assert library.names() == ["broken.jsonl.gz", "packed.jsonl.gz", "padded.jsonl.gz"]
    assert library.run("packed.jsonl.gz").rows == Library(run / "runs").run("mine.jsonl").rows
    with pytest.raises(ResultsError, match="expected a gzip file at"):
        library.run("broken.jsonl.gz")
    monkeypatch.setattr(explorer, "MOST_BYTES", 2**21)
    with pytest.raises(ResultsError, match="at most 2,097,152 bytes, got a larger one"):
        library.run("padded.jsonl.gz")


def test_classes_are_called_by_the_names_that_certmask_knows(run: Path, studio: Studio) -> None:
    mine = Library(run / "runs").run("mine.jsonl")

    def called(name: str, classes: int) -> Any:
        told = {**mine.header, "model": {**mine.model, "name": name, "classes": classes}}
        return class_names(studio, replace(mine, header=told))

    assert "resnet26w3-cifar10" not in studio.models
    assert called("resnet26w3-cifar10", 10) == CIFAR10
    assert called("deit_tiny-imagenette", 10)[1] == "English springer"
    assert called("resnet50", 1000)[281] == called("efficientnet-lite0", 1000)[281] == "tabby"
    assert called("somebody's", 10) == called("somebody's", 1000) == called("resnet26w3-cifar10", 11) == ()


def test_photos_are_found_by_a_part_of_their_names(run: Path) -> None:
    mine = Library(run / "runs").run("mine.jsonl")
    (row,) = chosen_rows(mine, "patchcleanser", ALL, " ROCK")
    assert row["image"] == "cat/rocket.jpg"
    assert chosen_rows(mine, "patchcleanser", ALL, "nowhere") == []


def test_a_long_list_of_photos_shows_what_the_table_shows(run: Path, studio: Studio, tmp_path: Path) -> None:
    header, row, *_ = (run / "runs" / "mine.jsonl").read_text().splitlines()
    rows = [json.dumps({**json.loads(row), "image": f"cat/{number}.jpg"}) for number in range(MOST_ROWS + 50)]
    (tmp_path / "long.jsonl").write_text("\n".join([header, *rows]) + "\n")
    with gr.Blocks():
        tab = ExploreTab(studio, Library(tmp_path))
    listed, table = tab._filtered("long.jsonl", "patchcleanser", ALL, "")
    assert listed["choices"] == [f"cat/{number}.jpg" for number in range(MOST_ROWS)]
    assert table.count("<tr>") == 1 + MOST_ROWS
    assert f"{MOST_ROWS + 50} of {MOST_ROWS + 50} photos under patchcleanser; the first {MOST_ROWS} are shown" in table
    listed, table = tab._filtered("long.jsonl", "patchcleanser", ALL, "149")
    assert (listed["value"], table.count("<tr>")) == ("cat/149.jpg", 2)


def test_odd_files_break_nothing_and_tell_nothing_of_this_machine(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes((run / "runs" / "mine.jsonl").read_bytes())
    (tmp_path / "words.jsonl").write_text("no results")
    with open(os.fsencode(tmp_path) + b"/\xff.jsonl", "w"):
        pass
    library = Library(tmp_path)
    assert library.names() == ["mine.jsonl", "words.jsonl"]
    with pytest.raises(ResultsError, match="words") as told:
        library.run("words.jsonl")
    assert str(tmp_path.parent) not in str(told.value)
    with pytest.raises(ResultsError, match="No such file") as told, library.discreet():
        (tmp_path / "gone.jsonl").stat()
    assert str(tmp_path.parent) not in str(told.value)


def test_a_run_of_another_model_is_shown_by_its_numbers(run: Path, studio: Studio, tmp_path: Path) -> None:
    """Photos and names of classes are those of the page's own models alone."""
    header, *rows = (run / "runs" / "mine.jsonl").read_text().splitlines()
    for number, (key, value) in enumerate({"name": "another", "classes": 11}.items()):
        told = json.loads(header)
        told["model"][key] = value
        (tmp_path / f"{number}.jsonl").write_text("\n".join([json.dumps(told), *rows]) + "\n")
        library = Library(tmp_path, str(run / "photos"))
        other = library.run(f"{number}.jsonl")
        assert class_names(studio, other) == ()
        table = rows_table(other, other.rows, "patchcleanser", library.album(()))
        assert table.count("<tr>") == 1 + len(other.rows)
        page = photo_votes(studio, library, f"{number}.jsonl", str(other.rows[0]["image"]), "patchcleanser", None)
        assert "The file says of patchcleanser" in page
        assert str(run) not in page


def test_what_the_file_says_stays_where_votes_cannot_be_made_again(
    run: Path, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise ResultsError(f"expected a defence, got none in {run}/photos/x.jpg")

    monkeypatch.setattr(explorer, "defence_from", refused)
    library = Library(run / "runs", str(run / "photos"))
    name = str(library.run("mine.jsonl").rows[0]["image"])
    page = photo_votes(studio, library, "mine.jsonl", name, "patchcleanser", None)
    assert "The file says of patchcleanser" in page
    assert "expected a defence, got none in photos/x.jpg" in page


def test_a_published_test_that_is_passed_proves_nothing(run: Path) -> None:
    mine = Library(run / "runs").run("mine.jsonl")
    row = {**mine.rows[0], "defences": {"published": {**mine.rows[0]["defences"]["patchcleanser"], "certified": True}}}
    rule = {"rule": {"rule": "published", "guarantee": "published test", "margin": 0.0}}
    header = {**mine.header, "defences": {"published": {**mine.defences["patchcleanser"], **rule}}}
    table = rows_table(replace(mine, header=header), [row], "published", Album())
    assert "passes the published test, which proves nothing" in table


def test_two_models_of_one_name_are_refused(little_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="different names"):
        Studio([str(little_model), str(tmp_path / little_model.name)], LIMITS)


def test_a_fault_takes_the_place_of_the_last_result() -> None:
    def faulty() -> str:
        raise RuntimeError("out of something, at /a/place/of/this/machine")

    assert "got a fault" in answered(faulty)()
    assert "machine" not in answered(faulty)()


def test_rows_are_filtered_by_what_became_of_them(run: Path, studio: Studio) -> None:
    library = Library(run / "runs")
    mine = library.run("mine.jsonl")
    parts = [chosen_rows(mine, "patchcleanser", fate) for fate in FATES]
    assert sum(map(len, parts)) == len(chosen_rows(mine, "patchcleanser", ALL)) == len(mine.rows)
    for wrong in (("nobody", ALL), ("patchcleanser", "odd")):
        with pytest.raises(UsageError, match="expected"):
            chosen_rows(mine, *wrong)
    table = rows_table(mine, mine.rows, "patchcleanser", library.album(studio.card("little").classes))
    assert table.count("<tr>") == 1 + len(mine.rows)
    assert "patchcleanser" in summary(mine)


def test_votes_are_made_again_where_photos_are_at_hand(run: Path, studio: Studio) -> None:
    names = [str(row["image"]) for row in Library(run / "runs").run("mine.jsonl").rows]
    told: Any = ("mine.jsonl", names[0], "patchcleanser", None)
    assert "start the page with --photos" in photo_votes(studio, Library(run / "runs"), *told)
    page = photo_votes(studio, Library(run / "runs", str(run / "photos")), *told)
    assert "The model answers here as it did in that run." in page
    assert "The file says of patchcleanser: " in page
    assert page.count("cm-vote") >= 36
    with pytest.raises(UsageError, match="expected a photo"):
        photo_votes(studio, Library(run / "runs"), "mine.jsonl", "<script>", "patchcleanser", None)


def test_votes_are_made_again_as_the_run_was_computed(run: Path, little_model: Path, tmp_path: Path) -> None:
    """Another backend and another precision than the page's own, where these are at hand."""
    told = ("--model", little_model, "--patch", "5", "--rule", "patchcleanser", "--backend", "torch")
    certmask("certify", run / "photos", *told, "--precision", "bf16", "--out", tmp_path / "other.jsonl")
    library = Library(tmp_path, str(run / "photos"))
    name = str(library.run("other.jsonl").rows[0]["image"])
    with closing(Studio([str(little_model)], LIMITS, backend="openvino", precision="fp32")) as other:
        page = photo_votes(other, library, "other.jsonl", name, "patchcleanser", None)
        assert "The model answers here as it did in that run." in page
        made = {"backend": "elsewhere", "precision": "bf16", "batch": 4}
        assert other.classifier("little", made).describe()["backend"] == "openvino"


def test_no_proof_is_stated_about_an_answer_that_the_run_knows_to_be_wrong(
    run: Path, studio: Studio, tmp_path: Path
) -> None:
    """The same photo twice: once as what it is called, once as something else."""
    header, *rows = (run / "runs" / "mine.jsonl").read_text().splitlines()
    library, proofs = Library(tmp_path, str(run / "photos")), 0
    for row in map(json.loads, rows):
        answer = row["defences"]["patchcleanser"]["label"]
        proved = False
        for label in (answer, (answer + 1) % 10):
            (tmp_path / f"{label}.jsonl").write_text(f"{header}\n{json.dumps({**row, 'label': label})}\n")
            page = photo_votes(studio, library, f"{label}.jsonl", str(row["image"]), "patchcleanser", None)
            proved = "whatever the patch shows" in page if label == answer else proved
            assert ("The certificate as a file" in page) == (proved and label == answer)
            assert ("is none about it" in page) == (proved and label != answer)
            assert ("No guarantee is stated here." in page) == (proved and label != answer)
        proofs += proved
    assert proofs


@pytest.mark.parametrize("changed", ["weights_sha256", "fingerprint", "batch"])
def test_no_guarantee_is_stated_for_another_function_than_that_of_the_run(
    run: Path, studio: Studio, tmp_path: Path, changed: str
) -> None:
    """Neither where weights, batch or behaviour are others, nor where nobody knows whether they are."""
    header, *rows = (run / "runs" / "mine.jsonl").read_text().splitlines()
    told = json.loads(header)
    told["model"][changed] = {"weights_sha256": "0" * 64, "fingerprint": None, "batch": 999}[changed]
    (tmp_path / "other.jsonl").write_text("\n".join([json.dumps(told), *rows]) + "\n")
    library = Library(tmp_path, str(run / "photos"))
    name = str(library.run("other.jsonl").rows[0]["image"])
    page = photo_votes(studio, library, "other.jsonl", name, "patchcleanser", None)
    assert page.count("cm-vote") >= 36
    assert "No guarantee is stated here." in page
    for word in ("as it did in that run.", "as a file", "cm-badge", "whatever the patch shows"):
        assert word not in page


@pytest.mark.parametrize("rule", RULES)
def test_a_guarantee_is_stated_where_it_is_proved_and_nowhere_else(studio: Studio, rule: str) -> None:
    """In the words of the page, the colour of its badge and what its file is called."""
    for name in EXAMPLES:
        one = study(studio, example(name), asked(rule))
        page, kind = str(found(one)), one.defence.guarantee
        proved = one.explanation.certificate.holds and kind in (Guarantee.RECOVERY, Guarantee.DETECTION)
        promised = "whatever the patch shows" in page
        assert promised == ("The certificate as a file" in page) == proved
        assert (f">certified {kind.value}<" in page) == (proved and not one.explanation.alert)
        assert ("cm-badge cm-proved" in page) == (proved and not one.explanation.alert)
        if kind is not Guarantee.DETECTION:
            assert "certified detection" not in page
        if kind is not Guarantee.RECOVERY:
            assert "certified recovery" not in page
        if promised:
            assert f"If this photo is clean and shows {one.name}: " in page


def test_what_a_patch_changed_is_told_beside_what_was_said_before(studio: Studio) -> None:
    one = patched(studio, example("cat"), asked(), Wish("network"))
    names = studio.classifier("little").class_names
    for answer, card in zip(one.answers, str(confronted(one)).split("<section")[1:], strict=True):
        before, after = names[answer.clean.label], names[answer.patched.label]
        assert f"Without the patch: {before}" in card
        assert (f"(says {after})" if answer.patched.alert else f"<strong>{after}</strong>") in card
        same = answer.clean.label == answer.patched.label
        said = "ALERT" if answer.patched.alert else "not changed" if same else "changed by the patch"
        assert f">{said}</span>" in card
        proved = answer.passed and answer.guarantee in (Guarantee.RECOVERY, Guarantee.DETECTION)
        assert ("whatever such a patch shows" in card) == proved
        assert (f"it says {names[answer.label]}" in card) == proved
    assert "made against the model alone" in confronted(one)


def test_a_photo_that_is_gone_is_asked_for_again() -> None:
    mine = Photo("mine", b"...")
    assert chosen_photo("cup", mine) == example("cup")
    assert chosen_photo(None, mine) is mine
    with pytest.raises(UsageError, match="upload it again"):
        chosen_photo(None, None)


def test_people_are_shown_the_part_of_the_photo_that_the_model_sees(studio: Studio) -> None:
    """Made smaller, the sharp picture is the model's input, up to what resizing twice does."""
    seen, sharp = studio.seen(example("rocket"), "little"), studio.sharp(example("rocket"), "little")
    assert (seen.size, sharp.size) == ((32, 32), (256, 256))
    small = to_tensor(sharp.resize((32, 32), Image.Resampling.BICUBIC))
    assert float((small - to_tensor(seen)).abs().mean()) < 0.01


def test_bombs_are_refused_by_a_process_that_may_die(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that somebody brings is opened here; what breaks a decoder breaks it alone, and the next one is there."""

    def opened_here(*_: Any, **__: Any) -> None:
        raise AssertionError("expected a photo to be opened elsewhere, got it here")

    monkeypatch.setattr(Image, "open", opened_here)
    assert studio.seen(example("cat"), "little").size == (32, 32)
    for decoder in studio.lab._decoders.values():
        decoder.kill()
    with pytest.raises(RefusedError, match="pixels"):
        studio.seen(Photo("bomb", squeezed_png(20_000)), "little")
    assert studio.seen(example("cup"), "little").size == (32, 32)


def test_a_studio_that_is_closed_leaves_no_process(little_model: Path) -> None:
    with open_studio(little_model, LIMITS) as own:
        for side in (5, 6, 7, 8, 9):
            own.lab.developed(example("cat"), Framing(), (side, side))
        processes = [decoder._process for decoder in own.lab._decoders.values()]
        assert len(processes) == KEPT_DECODERS
    assert all(process is not None and process.poll() is not None for process in processes)
    with pytest.raises(UsageError, match="one that ends"):
        own.seen(example("cat"), "little")


def squeezed_png(side: int) -> bytes:
    """A picture of one colour with so many pixels a side, which is a small file."""
    out = BytesIO()
    Image.new("1", (side, side)).save(out, "PNG")
    return out.getvalue()


def test_no_name_becomes_markup(studio: Studio) -> None:
    photo = Photo("<script>alert(1)</script>", example("cat").content)
    assert "<script" not in found(study(studio, photo, asked()))


@pytest.fixture
def client(studio: Studio, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The page, with a network that has nobody but this machine in it."""
    connect = socket.socket.connect

    def at_home(line: socket.socket, address: Any) -> None:
        assert isinstance(address, (str, bytes)) or address[0] in ("127.0.0.1", "::1"), address
        connect(line, address)

    monkeypatch.setattr(socket.socket, "connect", at_home)
    for module in ("streams", "door"):  # this client does not hang up
        monkeypatch.setattr(f"certmask.app.{module}.PATIENCE", 0.1)
    with TestClient(page_app(studio, Library(run / "runs"), tmp_path), base_url="http://127.0.0.1:7860") as found:
        yield found


def test_the_page_names_no_other_address(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == POLICY
    config = client.get("/config").json()
    assert config["analytics_enabled"] is False
    assert not config.get("is_space")
    assert "https://fonts" not in page.text + json.dumps(config)
    assert client.get("/gradio_api/info").json() == {"named_endpoints": {}, "unnamed_endpoints": {}}


def test_files_are_not_given_out(client: TestClient, run: Path) -> None:
    for path in (
        "/etc/passwd",
        run / "secret.jsonl",
        run / "runs" / "mine.jsonl",
        "../pyproject.toml",
        "pyproject.toml",
    ):
        assert client.get(f"/gradio_api/file={path}").status_code == 404
        assert client.get(f"/gradio_api/file/{path}").status_code == 404
    own = client.post("/gradio_api/upload", files={"files": ("cat.jpg", example("cat").content)}).json()[0]
    assert Path(own).is_file()
    assert client.get(f"/gradio_api/file={own}").status_code == 404


def test_doors_that_the_page_does_not_need_are_shut(client: TestClient) -> None:
    """Of all that Gradio would answer, only what is listed is reached, whatever the method."""
    for path in SHUT:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            answer = client.request(method, path, json={"data": []})
            assert answer.status_code == 404, (method, path)
            assert answer.headers["content-security-policy"] == POLICY


def test_pages_of_others_cannot_use_this_one(client: TestClient) -> None:
    """Neither by a name that leads here, nor from another page in the same browser."""
    for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:7860", "evil@127.0.0.1"):
        assert client.get("/", headers={"host": host}).status_code == 403
    for host in ("127.0.0.1", "localhost:7860", "[::1]:7860"):
        assert client.get("/", headers={"host": host}).status_code == 200
    own, photo = "http://127.0.0.1:7860", {"files": ("cat.jpg", example("cat").content)}
    for origin, code in ((own, 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)):
        assert client.get("/", headers={"origin": origin}).status_code == code
        assert client.post("/gradio_api/upload", files=photo, headers={"origin": origin}).status_code == code
    for site, code in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert client.post("/gradio_api/upload", files=photo, headers={"sec-fetch-site": site}).status_code == code


def test_only_what_was_uploaded_is_read(client: TestClient, run: Path, tmp_path: Path) -> None:
    """Somebody who writes requests by hand names a file of this machine, or an address, as what they uploaded."""
    config = client.get("/config").json()
    (upload,) = [part["id"] for part in config["components"] if part["props"].get("elem_id") == "photo"]
    (number,) = [one["id"] for one in config["dependencies"] if [upload, "upload"] in one["targets"]]
    own = client.post("/gradio_api/upload", files={"files": ("cat.jpg", example("cat").content)}).json()[0]

    def join(path: str, model: Any = "little") -> int:
        photo = {"path": path, "meta": {"_type": "gradio.FileData"}}
        asked = {"data": [photo, model], "fn_index": number, "session_hash": "somebody"}
        body, headers = json.dumps(asked).encode(), {"content-type": "application/json"}
        return client.post("/gradio_api/queue/join", content=body, headers=headers).status_code

    secret = run / "photos" / "cat" / "cat.jpg"
    way_out = tmp_path / "way-out.jpg"
    way_out.symlink_to(secret)
    for path in (
        secret,
        f"{tmp_path}/../{secret}",
        way_out,
        "/etc/passwd",
        "",
        "\0",
        "\ud800",
        "http://127.0.0.1:1/cat.jpg",
    ):
        assert join(str(path)) == 403
    assert join(own, [{"deep": {"path": str(secret)}}]) == 403
    assert client.post("/gradio_api/queue/join", content=b"[" * 10_000).status_code == 400
    assert client.post("/gradio_api/queue/join", content=bytes(2**20 + 1)).status_code == 413
    assert join(own) == 200
    said = client.get("/gradio_api/queue/data?session_hash=somebody").text
    (done,) = [line for line in said.splitlines() if "process_completed" in line]
    assert json.loads(done.removeprefix("data: "))["success"] is True


def test_uploads_have_a_place_of_their_own_that_can_be_full(client: TestClient, tmp_path: Path) -> None:
    def upload(content: bytes) -> int:
        return client.post("/gradio_api/upload", files={"files": ("photo.png", content)}).status_code

    assert upload(b"small") == 200
    assert any(path.read_bytes() == b"small" for path in tmp_path.rglob("photo.png"))
    assert upload(bytes(LIMITS.upload + 1)) == 413
    several = [("files", (f"{n}.png", bytes(LIMITS.upload // 2))) for n in range(3)]
    assert client.post("/gradio_api/upload", files=several).status_code == 413
    assert client.post("/gradio_api/upload", content=iter([b"of", b"unknown", b"size"])).status_code == 411
    few = [("files", (f"{n}.png", b"small")) for n in range(2)]
    assert client.post("/gradio_api/upload", files=few).status_code == 400
    body = b"".join(b'--a\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n\r\n' for _ in "12")
    twice = [("content-type", f"multipart/form-data; boundary={name}") for name in "ab"]
    assert client.post("/gradio_api/upload", content=body + b"--a--\r\n--b--b", headers=twice).status_code == 400
    (tmp_path / "others").write_bytes(bytes(KEPT * LIMITS.upload + 1))
    assert upload(b"small") == 503


def test_folders_of_deleted_uploads_shut_nobody_out(client: TestClient, tmp_path: Path) -> None:
    """Gradio makes a folder for each upload and leaves it there, empty, once the upload is deleted."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new, *(tmp_path / str(number) for number in range(KEPT * LIMITS.upload // 4096))):
        folder.mkdir()
    os.utime(old, (0, time() - CACHE[1] - 1))
    assert client.post("/gradio_api/upload", files={"files": ("photo.png", b"small")}).status_code == 200
    assert (old.exists(), new.exists()) == (False, True)


def test_small_uploads_take_as_much_room_as_on_disk(client: TestClient, tmp_path: Path) -> None:
    for number in range(KEPT * LIMITS.upload // 4096):
        (tmp_path / str(number)).write_bytes(b"")
    assert client.post("/gradio_api/upload", files={"files": ("photo.png", b"small")}).status_code == 503


def test_results_go_with_the_settings_that_they_are_about(client: TestClient) -> None:
    """Every control that changes the question empties what was said about the last one."""
    config = client.get("/config").json()
    parts = {part["props"].get("elem_id"): part["id"] for part in config["components"]}

    def empties(control: str, result: str) -> bool:
        return any(
            [parts[control], "change"] in one["targets"] and one["outputs"] == [parts[result]]
            for one in config["dependencies"]
        )

    question = ("model", "rule", "side", "count")
    for result, controls in {
        "result": question,
        "attacked": (*question, "kind", "sticker", "free", "top", "left"),
        "photo-votes": ("run-defence", "fate", "image"),
    }.items():
        assert [name for name in controls if not empties(name, result)] == []


def test_a_question_is_confirmed_once_the_last_stream_is_known_to_have_ended() -> None:
    """Else a browser waits for its answer on a stream that has ended."""
    happened: list[str] = []
    streams = Streams()

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": END + b"}\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def visit() -> None:
        hung_up = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def told(message: Any) -> None:
            happened.append("end" if END in message.get("body", b"") else message["type"])

        async def confirm(visitor: str) -> None:
            async def said(_: Any) -> None:
                happened.append(f"{visitor}'s question")

            await streams.confirming(visitor, said)({"type": "http.response.start"})

        stream = asyncio.create_task(streams.run(answers, "anna", {}, receive, told))
        await asyncio.sleep(0.01)
        questions = [asyncio.create_task(confirm(visitor)) for visitor in ("anna", "otto")]
        await asyncio.sleep(0.01)
        happened.append("hangs up")
        hung_up.set()
        await asyncio.gather(stream, *questions)
        await confirm("anna")

    asyncio.run(visit())
    assert happened[:4] == ["http.response.start", "end", "otto's question", "hangs up"]
    assert sorted(happened[4:]) == ["anna's question", "anna's question", "http.response.body"]


def test_the_queue_is_bounded(client: TestClient, studio: Studio) -> None:
    """While one question, which makes no sense, waits for the model, some more may wait, and others are sent away."""
    config = client.get("/config").json()
    (look,) = [part["id"] for part in config["components"] if part["props"].get("elem_id") == "look"]
    (number,) = [one["id"] for one in config["dependencies"] if [look, "click"] in one["targets"]]
    asked = {"data": ["cat", None, "little", 5, 2, "patchcleanser"], "fn_index": number}

    def join(visitor: int) -> int:
        told = {**asked, "session_hash": f"visitor{visitor}"}
        return client.post("/gradio_api/queue/join", json=told).status_code

    with studio.alone:
        codes = [join(visitor) for visitor in range(LIMITS.queue + 3)]
    assert codes.count(200) in (LIMITS.queue, LIMITS.queue + 1)
    assert codes[-1] == 503
    assert "expected" in client.get("/gradio_api/queue/data?session_hash=visitor0").text


def joined(client: TestClient, control: str, event: str, visitor: str, *told: Any) -> Any:
    """The answer to a visitor who does something to a control, with these settings."""
    config = client.get("/config").json()
    (part,) = [one["id"] for one in config["components"] if one["props"].get("elem_id") == control]
    ways = [
        one for one in config["dependencies"] if [part, event] in one["targets"] and len(one["inputs"]) == len(told)
    ]
    body = {"data": list(told), "fn_index": ways[0]["id"], "session_hash": visitor}
    return client.post("/gradio_api/queue/join", json=body)


def test_nobody_has_more_than_one_question_in_the_queue(client: TestClient, studio: Studio) -> None:
    """Whoever asks again is told why not, and others get in until their queue is full; then the first asks again."""
    question = ("cat", None, "little", 5, 2, "patchcleanser")  # which makes no sense, and is answered at once
    attack = ("cat", None, "noise", None, False, 0, 0, *question[2:])
    with studio.alone:
        assert joined(client, "look", "click", "greedy", *question).status_code == 200
        for _ in range(3 * LIMITS.queue):
            again = joined(client, "look", "click", "greedy", *question)
            assert (again.status_code, again.json()["detail"]) == (400, ANOTHER)
        assert joined(client, "attack", "click", "greedy", *attack).status_code == 400
        others = [joined(client, "look", "click", f"other{n}", *question) for n in range(LIMITS.queue)]
        assert [one.status_code for one in others] == [200] * LIMITS.queue
    assert "process_completed" in client.get("/gradio_api/queue/data?session_hash=greedy").text
    assert joined(client, "look", "click", "greedy", *question).status_code == 200


def test_a_full_queue_keeps_nobody_from_choosing(client: TestClient, studio: Studio) -> None:
    """Previews and prices do not wait behind questions to a model."""
    question = ("cat", None, "little", 5, 2, "patchcleanser")
    with studio.alone:
        while joined(client, "look", "click", os.urandom(4).hex(), *question).status_code == 200:
            pass
        assert joined(client, "rule", "change", "somebody", *question[2:]).status_code == 200
        assert "process_completed" in client.get("/gradio_api/queue/data?session_hash=somebody").text


def test_one_visitor_cannot_keep_others_from_choosing(client: TestClient, studio: Studio) -> None:
    preview = ("cat", None, "little")
    with studio.lab._alone:  # nothing is developed meanwhile
        codes = [joined(client, "examples", "input", "greedy", *preview).status_code for _ in range(SMALL_EACH + 3)]
        assert codes == [200] * SMALL_EACH + [400] * 3
        assert joined(client, "examples", "input", "modest", *preview).status_code == 200
    assert "process_completed" in client.get("/gradio_api/queue/data?session_hash=modest").text


def test_threads_of_the_page_sleep_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with other work, threads that spin take several times as long; whoever asks for them gets them."""
    monkeypatch.setenv("OMP_DISPLAY_ENV", "TRUE")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)

    def policy() -> list[str]:
        done = run_process([*PROGRAM, "app", "--model", "nonsense"], cwd=tmp_path, capture_output=True, text=True)
        return re.findall(r"OMP_WAIT_POLICY = '(\w+)'", done.stderr)

    assert policy() == ["PASSIVE"]
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert policy() == ["ACTIVE"]


def test_the_command_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certmask("app", "--model", "nonsense", "--port", "0", code=1, cwd=tmp_path)
    monkeypatch.setattr("certmask.app.find_spec", lambda package: None)
    with pytest.raises(CertmaskError, match=r"expected the package gradio, got none: pip install 'certmask\[app\]'"):
        check_installed()
