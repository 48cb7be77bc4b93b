"""Runs against a patch in the stored photo: each row is about what that reaches in its own photo, and says so."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask, outcomes
from PIL import ExifTags, Image

import certmask as cm
from certmask.certification import photo_record
from certmask.data import CIFAR10, Framing, load_dataset
from certmask.data.dataset import Sample
from certmask.data.reach import Stored, largest_side
from certmask.data.sticker import sticker_on
from certmask.data.tensors import pictures
from certmask.defences import by_photo, photo_defence_from
from certmask.errors import CertmaskError, DataError, GeometryError, ResultsError
from certmask.results.file import Row, read_results
from certmask.results.run import read_run
from certmask.threat import Patch, PhotoPatch, photo_patch, threat_from

QUICK = ("--batch", "8", "--precision", "fp32", "--levels", "2,3", "--rule", "zoom", "--rule", "undefended")
CAT, CUP = "n02124075", "n07920052"
SIZES = {
    f"{CAT}/large.jpg": (451, 300),
    f"{CAT}/turned.jpg": (200, 150),
    f"{CUP}/small.jpg": (36, 28),
    f"{CUP}/plain.jpg": (600, 400),
}


@pytest.fixture(scope="module")
def album(photos: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of four sizes (width × height): one lies on its side, one is plain grey and certified by any network."""
    root = tmp_path_factory.mktemp("album")
    for name, size in SIZES.items():
        exif, path = Image.Exif(), root / name
        exif[ExifTags.Base.Orientation] = 6 if path.stem == "turned" else 1
        path.parent.mkdir(exist_ok=True)
        photo = Image.open(photos["cat" if CAT in name else "cup"]).convert("RGB")
        photo = Image.new("RGB", size, (128, 128, 128)) if path.stem == "plain" else photo.resize(size)
        photo.save(path, exif=exif, quality=90)
    return root


@pytest.fixture(scope="module")
def run(album: Path, little_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a 30×40 patch."""
    out = tmp_path_factory.mktemp("runs") / "photo.jsonl"
    said = certmask("certify", album, "--model", little_model, "--patch-in-photo", "30x40", *QUICK, "--out", out).stdout
    assert "any 30×40 patch in the photo: of the input it reaches at most 7×8 in 1, " in said
    assert "too much of it to prove anything in 1 of 4 photos" in said
    return out


def rows_of(path: Path) -> dict[str, Row]:
    return {row["image"]: row for row in read_results(path)[1]}


def test_each_row_is_that_of_a_run_against_what_its_patch_reaches(
    run: Path, album: Path, little_model: Path, tmp_path: Path
) -> None:
    """Votes, answers and proofs are those of ``--patch``; sizes are those that ``predict`` says."""
    found = rows_of(run)
    assert found.keys() == SIZES.keys()
    threats = {name: row["photo"]["threat"] for name, row in found.items()}
    assert threats.pop(f"{CUP}/small.jpg") is None
    assert len({tuple(threat) for threat in threats.values()}) == 3
    for name, (height, width) in threats.items():
        alone = tmp_path / f"{height}x{width}.jsonl"
        certmask("certify", album, "--model", little_model, "--patch", f"{height}x{width}", *QUICK, "--out", alone)
        assert outcomes(run)[name] == outcomes(alone)[name]
        asked = ("predict", album / name, "--model", little_model, "--patch-in-photo", "30x40", "--json", *QUICK[:-4])
        (told,) = json.loads(certmask(*asked).stdout)
        (said,) = [told["patch_in_photo"]]
        photo = found[name]["photo"]
        assert (photo["size"], photo["patch"], photo["reach"]) == (said["photo"], said["patch"], said["reach"])
        assert [height, width] == said["certified_for"]
        high, wide = photo["size"]
        stored = Stored(high, wide, said["orientation"])
        side = largest_side(stored, Framing(1.0), (32, 32), (height, width))
        assert photo["side"] == side == rows_of(alone)[name]["photo"]["side"]
        assert told["certified_side_in_photo"] == (side if told["certified"] else None)


def test_a_photo_without_a_proof_is_answered_by_the_network_alone(run: Path) -> None:
    row = rows_of(run)[f"{CUP}/small.jpg"]
    assert row["photo"] == {"size": [28, 36], "patch": [28, 36], "reach": [32, 32], "threat": None, "side": 0}
    zoom, bare = row["defences"]["zoom"], row["defences"]["undefended"]
    assert (zoom["certified"], zoom["label"], zoom["passes"], zoom["certificate_passes"]) == (
        False,
        bare["label"],
        1,
        0,
    )


def test_only_what_a_class_holds_is_of_that_class() -> None:
    """A patch that reaches all of the input, or a size that nobody made masks for, is of none."""
    (family,) = by_photo(
        PhotoPatch(9, 9), [[cm.MaskedDefence(cm.zoom_cover(32, 9, (2, 3)), cm.JuryRecovery(), "zoom")]]
    )
    for side, threat in ((32, [9, 9]), (20, None), (9, None), (5, None)):
        sticker = sticker_on(Stored(side, side), PhotoPatch(9, 9), Framing(1.0, "nearest"), (32, 32))
        told = photo_record(sticker, [family], Framing(1.0, "nearest"))
        assert (told["threat"], told["side"] > 0) == (threat, threat is not None), side


def test_the_header_has_every_class_and_they_can_be_rebuilt(run: Path) -> None:
    header, rows = read_results(run)
    described = header["defences"]["zoom"]
    assert threat_from(described["threat"]) == PhotoPatch(30, 40)
    family = photo_defence_from(described)
    assert json.loads(json.dumps(family.describe())) == described
    assert {tuple(row["photo"]["threat"]) for row in rows if row["photo"]["threat"]} == {
        one.threat.boxes_on(one.image)[0] for one in family.classes
    }
    assert family.of(Patch(1, 1)) is None
    read = read_run(run)
    for row in rows:
        met, threat = read.met("zoom", row), row["photo"]["threat"]
        assert met == (Patch(*threat) if threat else PhotoPatch(30, 40))
        assert (read.cover("zoom", row) or {}).get("patch") == threat


def test_a_run_goes_on_and_ends_the_same(run: Path, album: Path, little_model: Path, tmp_path: Path) -> None:
    asked = ("certify", album, "--model", little_model, "--patch-in-photo", "30x40", *QUICK, "--out")
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(run.read_bytes().splitlines(keepends=True)[:3]))
    assert "has 2 of 4 images already" in certmask(*asked, half).stdout
    assert outcomes(half) == outcomes(run)
    other = (*asked[:5], "31x40", *asked[6:], half)
    assert "expected to continue" in certmask(*other, code=1).stderr


def tampered(run: Path, path: Path, change: Callable[[Row, Row], Any]) -> Path:
    """A copy of a run in which something was done to its header and its first row."""
    lines = [json.loads(line) for line in run.read_bytes().splitlines()]
    change(lines[0], lines[1])
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def lower_cover(header: Row, _: Row) -> None:
    header["defences"]["zoom"]["classes"][-1]["threat"]["height"] += 1


LIES: dict[str, tuple[Callable[[Row, Row], Any], str]] = {
    "a class that there is not": (lambda _, row: row["photo"].update(threat=[7, 7]), "expected a class of the header"),
    "a class that is too small": (
        lambda _, row: row["photo"].update(reach=[20, 20]),
        "a class that holds what is reached",
    ),
    "no photo": (lambda _, row: row.pop("photo"), "expected 'photo'"),
    "no reach": (lambda _, row: row["photo"].pop("reach"), "expected 'reach'"),
    "no class, and a certificate": (
        lambda _, row: (row["photo"].update(threat=None), row["defences"]["zoom"].update(certified=True)),
        "expected a class of the header",
    ),
    "masks of another class": (lower_cover, "expected masks against any"),
    "no classes": (lambda header, _: header["defences"]["zoom"].pop("classes"), "expected classes for a patch"),
    "a class in the photo": (
        lambda header, _: header["defences"]["zoom"]["classes"][0].update(threat=PhotoPatch(3, 3).describe()),
        "expected a patch in the input",
    ),
    "another threat": (
        lambda header, _: header["defences"]["zoom"].update(threat=Patch(5, 5).describe()),
        "expected classes for a patch in the photo, and for nothing else",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_true_is_refused(lie: str, run: Path, tmp_path: Path) -> None:
    change, refusal = LIES[lie]
    with pytest.raises(ResultsError, match=refusal):
        read_run(tampered(run, tmp_path / "lie.jsonl", change))


def test_rows_of_other_photos_are_not_continued(run: Path, album: Path, little_model: Path, tmp_path: Path) -> None:
    """Whoever changes what a row says of its photo is found out by the photo."""
    lie = tampered(run, tmp_path / "lie.jsonl", lambda _, row: row["photo"].update(size=[9, 9]))
    asked = ("certify", album, "--model", little_model, "--patch-in-photo", "30x40", *QUICK, "--out", lie)
    assert "as its row says" in certmask(*asked, code=1).stderr


def test_what_was_asked_for_wrongly(album: Path, little_model: Path, tmp_path: Path) -> None:
    asked = ("certify", album, "--model", little_model, *QUICK, "--out", tmp_path / "none.jsonl")
    for wrong in (("0%",), ("0",), ("101%",), ("x",), ("4", "--patch", "5")):
        certmask(*asked, "--patch-in-photo", *wrong, code=2)
    certmask(*asked, "--before-jpeg", code=2)
    larger = certmask(*asked, "--patch-in-photo", "1000", code=1)
    assert "expected a photo with a patch that leaves a part of the input alone" in larger.stderr
    Image.open(album / f"{CUP}/plain.jpg").save(album.parent / "plain.png")
    table = tmp_path / "png.csv"
    table.write_text(f"file,label\n{album.parent / 'plain.png'},{CUP}\n")
    png = ("certify", table, *asked[2:], "--patch-in-photo", "9", "--before-jpeg")
    assert "expected a JPEG file for a patch before compression, got PNG" in certmask(*png, code=1).stderr
    assert not (tmp_path / "none.jsonl").exists()


def test_the_call_in_python_finds_the_same(run: Path, album: Path, little_model: Path, tmp_path: Path) -> None:
    """With the rules' own masks, so that only what is about photos is compared; and what cannot be asked for there."""
    options: dict[str, Any] = {"batch": 8, "precision": "fp32"}
    found = cm.certify(str(little_model), album, "zoom", patch_in_photo=(30, 40), out=tmp_path / "py.jsonl", **options)
    assert {row["image"]: row["photo"] for row in found.rows} == {n: row["photo"] for n, row in rows_of(run).items()}
    assert found.threat("zoom") == PhotoPatch(30, 40)
    share = cm.certify(str(little_model), album, "zoom", patch_in_photo="10%", before_jpeg=True, images=1, **options)
    assert share.threat("zoom") == PhotoPatch(percent=10.0, before_jpeg=True)
    assert share.rows[0]["photo"]["patch"] == [30, 30]
    with pytest.raises(CertmaskError, match="got both"):
        cm.certify(str(little_model), album, "zoom", 5, patch_in_photo=30, **options)
    with pytest.raises(CertmaskError, match="before_jpeg beside patch_in_photo"):
        cm.certify(str(little_model), album, "zoom", before_jpeg=True, **options)
    with pytest.raises(DataError, match="leaves a part of the input alone"):
        cm.certify(str(little_model), album, "zoom", patch_in_photo=1000, **options)
    tensors = (torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="expected a stored photo for a patch in it, got model input only"):
        cm.certify(str(little_model), tensors, "zoom", patch_in_photo=3, **options)


def test_every_source_knows_how_its_photos_are_stored(album: Path, tmp_path: Path) -> None:
    names = [(CAT,), (CUP,)]
    with tarfile.open(tmp_path / "album.tar", "w") as archive:
        archive.add(album, arcname=".")
    (tmp_path / "album.csv").write_text("\n".join(f"{album / name},{name.split('/')[0]}" for name in sorted(SIZES)))
    expected = [Stored(SIZES[n][1], SIZES[n][0], 6 if "turned" in n else 1) for n in sorted(SIZES)]
    for source in (album, tmp_path / "album.tar", tmp_path / "album.csv"):
        assert [sample.stored() for sample in load_dataset(str(source), names, 1.0).samples] == expected
    demo = load_dataset("demo-cifar10", [(name,) for name in CIFAR10], 1.0)
    assert {sample.stored() for sample in demo.samples} == {Stored(32, 32)}
    assert pictures(torch.rand(1, 3, 8, 8), [0]).samples[0].stored() is None
    loose = Sample("loose", 0, lambda: Image.fromarray(np.zeros((7, 9, 3), np.uint8)))
    assert loose.stored() == Stored(7, 9)
    with pytest.raises(DataError, match="got no file for loose"):
        loose.stored(before_jpeg=True)


def test_tables_and_words_know_the_photo(run: Path, tmp_path: Path) -> None:
    read = read_run(run)
    (zoom,) = (line for line in cm.figures(read) if line.defence == "zoom")
    (row,) = (row for row in read.rows if row["defences"]["zoom"]["certified"])
    assert zoom.photo_share == 100 * row["photo"]["side"] / 400
    certmask("report", run, "--out", tmp_path / "page.html")
    words = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Threat: one 30×40 patch in the photo" in words
    assert "In 1 photo the patch reaches too much of the input" in words


def test_patches_in_photos_as_they_are_written() -> None:
    assert photo_patch(60) == photo_patch("60") == PhotoPatch(60, 60)
    assert photo_patch((60, 40), before_jpeg=True) == PhotoPatch(60, 40, before_jpeg=True)
    assert photo_patch("60x40") == photo_patch(PhotoPatch(60, 40)) == PhotoPatch(60, 40)
    assert str(photo_patch("5.5 %", True)) == (
        "any patch in the photo of 5.5 % of its shorter side before it was compressed"
    )
    assert threat_from(json.loads(json.dumps(photo_patch("5%").describe()))) == photo_patch("5%")
    for wrong in ("5%%", "0%", "x", 0, (1, 2, 3), "0x3"):
        with pytest.raises(GeometryError):
            photo_patch(wrong)  # type: ignore[arg-type]
    for odd in ({"height": 3, "width": 3, "percent": 5.0}, {"height": 3}, {"percent": True}, {"before_jpeg": 1}):
        with pytest.raises(GeometryError):
            PhotoPatch(**odd)
