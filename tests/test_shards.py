"""Shards of a run and their merging: together the file of one machine; gaps, overlaps and other runs are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import certmask

from certmask.data import load_dataset
from certmask.results.file import ResultsFile, read_results, read_set_aside

OPTIONS = ("demo-cifar10", "--patch", "5", "--mask", "18", "--rule", "jury-recovery", "--rule", "undefended",
           "--batch", "8", "--images", "10")  # fmt: skip
SHARDS = 3
Row = dict[str, Any]


@pytest.fixture(scope="module")
def plain(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine writes."""
    path = tmp_path_factory.mktemp("plain") / "run.jsonl"
    certmask("certify", *OPTIONS, "--model", little_model, "--out", path)
    return path


@pytest.fixture(scope="module")
def parts(little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards")
    for number in range(1, SHARDS + 1):
        out = folder / f"{number}.jsonl"
        certmask("certify", *OPTIONS, "--model", little_model, "--shard", f"{number}/{SHARDS}", "--out", out)
    return [folder / f"{number}.jsonl" for number in range(1, SHARDS + 1)]


def found(path: Path) -> dict[str, Row]:
    return {row["image"]: {key: row[key] for key in row if key != "seconds"} for row in read_results(path)[1]}


def test_merged_shards_are_the_file_of_one_machine(
    plain: Path, parts: list[Path], little_model: Path, tmp_path: Path
) -> None:
    """In whatever order they are named; and the command of one machine finds nothing left to do."""
    out = tmp_path / "merged.jsonl"
    done = certmask("merge", parts[2], parts[0], parts[1], "--out", out)
    assert "10 images of 3 shards" in done.stdout
    assert read_results(out)[0] == read_results(plain)[0]
    assert found(out) == found(plain)
    before = out.read_bytes()
    certmask("certify", *OPTIONS, "--model", little_model, "--out", out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_shards_share_no_photo_and_have_all() -> None:
    whole = load_dataset("demo-cifar10", None, 1.0)
    for of in range(1, len(whole) + 1):
        shards = [whole.shard(number, of) for number in range(1, of + 1)]
        names = [sample.name for shard in shards for sample in shard.samples]
        assert sorted(names) == sorted(sample.name for sample in whole.samples)
        assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_the_shard_is_in_the_header_and_another_one_does_not_go_on(parts: list[Path], little_model: Path) -> None:
    data = read_results(parts[1])[0]["data"]
    assert (data["images"], data["shard"]["number"], data["shard"]["of"], data["shard"]["images"]) == (3, 2, 3, 10)
    options = (*OPTIONS, "--model", little_model, "--out", parts[1])
    for more in ((), ("--shard", "1/3"), ("--shard", "2/4")):
        assert "with the same inputs, got another data" in certmask("certify", *options, *more, code=1).stderr


def edited(path: Path, target: Path, change: Callable[[Row, list[Row]], None]) -> Path:
    """A copy with another header or other rows."""
    header, rows = read_results(path)
    change(header, rows)
    target.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *rows)))
    return target


CHANGES: dict[str, tuple[Callable[[Row, list[Row]], Any], str]] = {
    "unfinished": (lambda header, rows: rows.pop(), "expected all 3 photos of shard 2/3, got 2"),
    "weights": (lambda header, rows: header["model"].update(weights_sha256="0"), "got another model.weights_sha256"),
    "fingerprint": (
        lambda header, rows: header["model"]["fingerprint"].update(name="0"),
        "got another model.fingerprint.name",
    ),
    "defence": (
        lambda header, rows: header["defences"]["jury-recovery"]["rule"].update(margin=0.5),
        "got another defences.jury-recovery.rule.margin",
    ),
    "version": (lambda header, rows: header["versions"].update(torch="1"), "got another versions.torch"),
    "photos": (lambda header, rows: header["data"]["shard"].update(digest="0"), "got another data.digest"),
    "framing": (lambda header, rows: header["data"].update(crop=0.5), "got another data.crop"),
    "cut": (lambda header, rows: header["data"]["shard"].update(of=4), "expected shards of one cut"),
    "number": (lambda header, rows: header["data"]["shard"].update(number=1), "got 1/3 twice"),
    "none": (lambda header, rows: header["data"].pop("shard"), "expected a shard of a run"),
    "row": (lambda header, rows: rows[0].pop("label"), "expected 'label'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_no_shard_of_the_run_is_refused(name: str, parts: list[Path], tmp_path: Path) -> None:
    change, reason = CHANGES[name]
    odd = edited(parts[1], tmp_path / "odd.jsonl", change)
    done = certmask("merge", parts[0], odd, parts[2], "--out", tmp_path / "out.jsonl", code=1)
    assert reason in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_gaps_overlaps_and_files_that_are_there_are_refused(plain: Path, parts: list[Path], tmp_path: Path) -> None:
    first = read_results(parts[0])[1][0]["image"]
    twin = edited(parts[1], tmp_path / "twin.jsonl", lambda header, rows: rows[0].update(image=first))
    out = tmp_path / "out.jsonl"
    for files, reason in (
        (parts[:2], "expected all 3 shards, got none of 3/3"),
        ([*parts, parts[0]], "expected every shard once, got 1/3 twice"),
        ([parts[0], twin, parts[2]], f"expected every photo once, got {first} in"),
        ([plain], "expected a shard of a run"),
        ([tmp_path / "absent.jsonl"], "expected a results file, got nothing"),
    ):
        assert reason in certmask("merge", *files, "--out", out, code=1).stderr
    assert not out.exists()
    assert "expected a new file" in certmask("merge", *parts, "--out", parts[0], code=1).stderr
    assert "not packed" in certmask("merge", *parts, "--out", tmp_path / "out.jsonl.gz", code=1).stderr


def test_photos_that_were_set_aside_stay_so(parts: list[Path], tmp_path: Path) -> None:
    """A note in a shard counts for its photo, and is in the merged file."""
    header, rows = read_results(parts[1])
    odd, gone = tmp_path / "odd.jsonl", rows.pop()["image"]
    with ResultsFile(odd, {key: value for key, value in header.items() if key != "certmask_results"}) as file:
        for row in rows:
            file.write(row)
        file.set_aside(gone, "expected a readable image, got none")
    certmask("merge", parts[0], odd, parts[2], "--out", tmp_path / "out.jsonl")
    assert read_set_aside(tmp_path / "out.jsonl") == {gone: "expected a readable image, got none"}
    assert len(read_results(tmp_path / "out.jsonl")[1]) == 9


@pytest.mark.parametrize("told", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/3", ""])
def test_a_shard_that_makes_no_sense_is_wrong_usage(told: str, little_model: Path, tmp_path: Path) -> None:
    options = (*OPTIONS, "--model", little_model, "--out", tmp_path / "run.jsonl")
    assert "expected --shard as i/n" in certmask("certify", *options, f"--shard={told}", code=2).stderr


def test_more_shards_than_photos_are_wrong_usage(little_model: Path, tmp_path: Path) -> None:
    options = (*OPTIONS, "--model", little_model, "--out", tmp_path / "run.jsonl")
    assert (
        "expected at most a shard for each of 10 images"
        in certmask("certify", *options, "--shard", "1/11", code=2).stderr
    )
