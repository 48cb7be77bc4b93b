"""A patch in the photo on the command line: what is said of it, and that the defence is for all that it reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import certmask
from PIL import ExifTags, Image

from certmask.data import Framing, read_photo
from certmask.data.reach import stored
from certmask.data.sticker import Sticker, checked_sticker
from certmask.errors import DataError
from certmask.threat import PhotoPatch, Size

QUICK = ("--batch", "8", "--precision", "fp32", "--levels", "2,3")


@pytest.fixture
def album(photos: dict[str, Path], tmp_path: Path) -> tuple[Path, Path]:
    """A photo in JPEG that lies on its side, 300×451 when upright, and one in PNG, 600×400."""
    exif, path = Image.Exif(), tmp_path / "cat.jpg"
    exif[ExifTags.Base.Orientation] = 6
    Image.open(photos["cat"]).convert("RGB").save(path, exif=exif, quality=90)
    return path, photos["cup"]


def sticker_in(photo: Path, threat: PhotoPatch, framing: Framing, image: Size) -> Sticker:
    return checked_sticker(stored(photo, threat.before_jpeg), threat, framing, image, str(photo))


def predicted(*arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads(certmask("predict", *arguments, *QUICK, "--json", code=code).stdout)
    return answers


def test_each_photo_is_asked_about_what_its_patch_reaches(little_model: Path, album: tuple[Path, Path]) -> None:
    """The answers are those of ``--patch`` with the sizes that are reached, and both sizes are told."""
    found = predicted(*album, "--model", little_model, "--patch-in-photo", "40x20")
    for photo, one in zip(album, found, strict=True):
        told = one.pop("patch_in_photo")
        sticker = sticker_in(photo, PhotoPatch(40, 20), Framing(1.0), (32, 32))
        assert told == json.loads(json.dumps(sticker.describe()))
        assert str(sticker) in one["meaning"]
        (alone,) = predicted(photo, "--model", little_model, "--patch", "x".join(map(str, told["certified_for"])))
        assert {**one, "meaning": alone["meaning"]} == alone
    (cat, cup) = (one["meaning"] for one in found)
    assert "any 40×20 patch in the photo (451×300), which reaches at most 7×9 of the 32×32 input" in cat
    assert "any 40×20 patch in the photo (600×400), which reaches at most 8×6 of the 32×32 input" in cup
    words = certmask("predict", *album, "--model", little_model, "--patch-in-photo", "40x20", *QUICK).stdout
    assert words.count("by zoom: ") == 2, "two defences, each told"


def test_percent_and_rounding_are_told(album: tuple[Path, Path]) -> None:
    """5 % of 400 are 20 px, resized by 256/400: 12.8 px, four more for the resampling, and rounded up twice."""
    sticker = sticker_in(album[1], PhotoPatch(percent=5.0), Framing(), (224, 224))
    assert (sticker.patch, sticker.threat.size) == ((20, 20), (20, 20))
    assert str(sticker) == (
        "any 20×20 patch in the photo (600×400), which reaches at most 17×17 of the 224×224 input (rounded up to 20×20)"
    )


@pytest.mark.parametrize("before_jpeg", [False, True])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_sticker_on_a_real_photo_stays_inside_what_is_certified(
    orientation: int, before_jpeg: bool, photos: dict[str, Path], tmp_path: Path
) -> None:
    """Random places and the farthest one: encoded, decoded, turned, resized and cut as ``predict`` does it."""
    framing, image, chance = Framing(), (224, 224), np.random.default_rng(0)
    clean, path = Image.open(photos["cat"]).convert("RGB"), tmp_path / "cat.jpg"
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    clean.save(path, exif=exif, quality=85)
    sticker = sticker_in(path, PhotoPatch(24, 40, before_jpeg=before_jpeg), framing, image)
    before, largest = np.asarray(framing(read_photo(path), image)), [0, 0]
    corners = [sticker.reach.corner, *zip(chance.integers(0, 276, 12), chance.integers(0, 411, 12), strict=True)]
    for top, left in corners:
        pixels = np.asarray(clean if before_jpeg else Image.open(path)).copy()
        pixels[top : top + 24, left : left + 40] = chance.integers(0, 256, (24, 40, 3))
        options: dict[str, Any] = {"quality": 85} if before_jpeg else {}
        other = tmp_path / f"other.{'jpg' if before_jpeg else 'png'}"
        Image.fromarray(pixels).save(other, exif=exif, **options)
        moved = (np.asarray(framing(read_photo(other), image)) != before).any(axis=2)
        for axis in (0, 1):
            lines = np.flatnonzero(moved.any(axis=1 - axis))
            largest[axis] = max(largest[axis], int(lines[-1] - lines[0]) + 1 if lines.size else 0)
    for reached, most, proved in zip(largest, sticker.reach.size, sticker.threat.size, strict=True):
        assert most - 3 <= reached <= most <= proved < most + 4


def test_what_leaves_nothing_is_refused_and_others_are_answered(little_model: Path, album: tuple[Path, Path]) -> None:
    done = certmask("predict", *album, "--model", little_model, "--patch-in-photo", "300", *QUICK, "--json", code=1)
    cat, cup = json.loads(done.stdout)
    assert "expected a patch in" in cat["error"]
    assert "reaches at most 32×32 of the 32×32 input" in done.stderr
    assert cup["patch_in_photo"]["reach"] == [28, 28]
    asked = (album[1], "--model", little_model, "--patch-in-photo", "9", "--before-jpeg")
    assert "expected a JPEG file" in certmask("predict", *asked, code=1).stderr
    with pytest.raises(DataError, match="got 301×9"):
        sticker_in(album[0], PhotoPatch(301, 9), Framing(), (224, 224))


def test_plan_says_the_same_sizes(little_model: Path, album: tuple[Path, Path]) -> None:
    asked = ("plan", "--photo", album[0], "--patch-in-photo", "5%", "--before-jpeg", "--model", little_model)
    sticker = sticker_in(album[0], PhotoPatch(percent=5.0, before_jpeg=True), Framing(1.0), (32, 32))
    assert sticker.patch == (15, 15)
    found = json.loads(certmask(*asked, "--json").stdout)
    assert found["patch_in_photo"] == json.loads(json.dumps(sticker.describe()))
    assert (found["image"], found["patch"]) == ([32, 32], list(sticker.threat.size))
    words = certmask(*asked).stdout.splitlines()
    assert words[0] == str(sticker)
    assert f"of 32×32 against any {sticker.threat.height}×{sticker.threat.width} patch" in words[1]
    whole = (*asked[:4], "300", "--model", little_model)
    assert "leaves a part of the input alone" in certmask(*whole, code=1).stderr
