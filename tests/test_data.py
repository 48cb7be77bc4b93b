"""Photos and data sets: every kind that is taken, and one clear line for every kind that is not."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from certmask.data import Framing, check_source, load_dataset, pixel_digest, read_photo, to_array, to_tensor
from certmask.data.demo import DEMOS
from certmask.data.sources import SOURCES, sources_help
from certmask.errors import CertmaskError, DataError
from certmask.threat import Size
from certmask.zoo.timm_import import import_timm

CLASSES = [("n0", "cat"), ("n1", "cup"), ("n2", "rocket")]


def photo(path: Path, mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = rng.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8).squeeze()
    Image.fromarray(pixels, mode if mode != "P" else "L").convert(mode).save(path)
    return path


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "1", "CMYK", "I;16"])
def test_every_colour_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("photo.jpg" if mode == "CMYK" else "photo.png")
    if mode in ("1", "I;16"):
        Image.fromarray(np.zeros((30, 40), dtype=bool if mode == "1" else np.uint16)).save(path)
    else:
        photo(path, mode)
    tensor = to_tensor(Framing(0.875)(read_photo(path), (24, 24)))
    assert tensor.shape == (3, 24, 24)
    assert tensor.dtype == torch.float32
    assert 0 <= tensor.min() <= tensor.max() <= 1


def test_an_array_is_the_tensor_bit_for_bit() -> None:
    values = np.arange(256 * 3, dtype=np.uint8).reshape(16, 16, 3)
    array, tensor = to_array(Image.fromarray(values)), to_tensor(Image.fromarray(values))
    assert array.dtype == np.float32
    assert array.tobytes() == tensor.numpy().tobytes()
    assert torch.equal(tensor, torch.from_numpy(values.copy()).permute(2, 0, 1).float() / 255)
    assert pixel_digest(array) == pixel_digest(tensor) == hashlib.sha256(array.tobytes()).hexdigest()[:16]


def test_photos_are_read_without_torch() -> None:
    script = "import sys; from certmask.data import *; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert to_tensor(read_photo(tmp_path / "clear.png")).min() == 1


def test_a_16_bit_photo_keeps_its_tones(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 32768], [65535, 65535]], dtype=np.uint16)).save(tmp_path / "deep.png")
    grey = np.asarray(read_photo(tmp_path / "deep.png"))[..., 0]
    assert grey.tolist() == [[0, 128], [255, 255]]


@pytest.mark.parametrize("size", [(500, 300), (300, 500), (24, 24), (5, 3), (1, 1), (24, 200), (1900, 10)])
def test_photos_of_any_size_become_the_models_input(size: tuple[int, int]) -> None:
    assert Framing(0.875)(Image.new("RGB", size), (24, 32)).size == (32, 24)


def test_a_photo_of_the_right_size_is_untouched_without_crop() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Framing(1.0)(Image.fromarray(pixels), (24, 24))), pixels)


@pytest.mark.parametrize("crop", [1.0, 0.875, 0.5])
@pytest.mark.parametrize("resampling", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["center", "squash"])
def test_photos_are_framed_as_timm_does_it(mode: str, resampling: str, crop: float) -> None:
    """timm's own transform as the reference, at a size where both round alike."""
    import_timm()
    theirs = import_module("timm.data").create_transform(
        (3, 28, 28), interpolation=resampling, crop_pct=crop, crop_mode=mode, mean=(0, 0, 0), std=(1, 1, 1)
    )
    noise = np.random.default_rng(2).integers(0, 256, (56, 112, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((224, 112), Image.Resampling.BICUBIC)
    frame = Framing(crop, resampling, mode == "squash")
    assert torch.equal(to_tensor(frame(photo, (28, 28))), theirs(photo))


def test_a_framing_survives_a_results_file() -> None:
    shares = (Framing(), Framing(1.0, "bilinear"), Framing(0.9, "bicubic", squash=True))
    for frame in (*shares, Framing(resampling="lanczos", resized=256), Framing(resized=(40, 36))):
        assert Framing.described(json.loads(json.dumps(frame.describe()))) == frame
    assert Framing(0.9).describe() == {"resize": "bicubic", "crop": 0.9}


@pytest.mark.parametrize(("photo", "resized", "expected"), [
    ((30, 45), 28, (28, 42)),
    ((451, 300), 28, (42, 28)),  # 42.09…
    ((300, 599), 28, (28, 55)),  # 55.9…: down, not to the next
    ((24, 24), 40, (40, 40)),
    ((30, 45), (29, 50), (29, 50)),
])  # fmt: skip
def test_a_framing_in_pixels(photo: Size, resized: int | Size, expected: Size) -> None:
    """As torchvision resizes; the cut is in the middle."""
    size, cut = Framing(resized=resized).cut(photo, (24, 24))
    assert size == expected
    assert cut == ((expected[0] - 24) // 2, (expected[1] - 24) // 2)
    if isinstance(resized, int):
        import_timm()  # torchvision comes with it
        theirs = import_module("torchvision.transforms").Resize(resized)(Image.new("RGB", photo[::-1]))
        assert theirs.size == expected[::-1]


@pytest.mark.parametrize("resized", [23, (23, 40), (40, 23)])
def test_a_framing_that_would_leave_a_border_is_refused(resized: int | Size) -> None:
    with pytest.raises(DataError, match=r"expected photos resized to at least 24×24, the model's input, got "):
        Framing(resized=resized)(Image.new("RGB", (40, 40)), (24, 24))


@pytest.mark.parametrize("resized", [0, -1, 2.5, (1,), (3, 0), "9"])
def test_odd_pixels_of_a_framing_are_refused(resized: Any) -> None:
    with pytest.raises(CertmaskError, match="expected resized as"):
        Framing(resized=resized)


@pytest.mark.parametrize(("crop", "resampling", "message"), [
    (0.0, "bicubic", "expected crop in (0, 1], got 0.0"),
    (1.5, "bicubic", "expected crop in (0, 1], got 1.5"),
    (1.0, "random", "expected resampling by nearest, bilinear, bicubic, lanczos, got 'random'"),
])  # fmt: skip
def test_an_odd_framing_is_refused(crop: float, resampling: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        Framing(crop, resampling)


def test_the_exif_orientation_is_followed(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert read_photo(tmp_path / "turned.jpg").size == (20, 40)


def bad_files(folder: Path) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    whole = photo(folder / "whole.jpg", size=(200, 200)).read_bytes()
    files = {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "text": b"not a picture",
        "cut-png": photo(folder / "w.png").read_bytes()[:60],
    }
    for name, content in files.items():
        (folder / f"{name}.jpg").write_bytes(content)
    return {name: folder / f"{name}.jpg" for name in files} | {"absent": folder / "none.jpg", "folder": folder}


@pytest.mark.parametrize("kind", ["truncated", "empty", "text", "cut-png", "absent", "folder"])
def test_a_bad_file_is_named_in_one_line(kind: str, tmp_path: Path) -> None:
    path = bad_files(tmp_path / "bad")[kind]
    with pytest.raises(DataError, match=r"expected .*got") as error:
        read_photo(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_every_row_of_the_table_recognises_its_own_form(tmp_path: Path) -> None:
    """One string of each form, in the table's order; a form that is listed is one that is read."""
    for name in ("folder/cat", "batches"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("set.tar", "other.tar.gz", "list.csv", "batches/test_batch"):
        (tmp_path / name).write_bytes(b"")
    forms = [(row.file, row.reader) for row in SOURCES]
    for text, file in (
        ("folder", "folders"),
        ("set.tar", "tar"),
        ("set.tar:inside", "tar"),
        ("set", "tar"),
        ("list.csv", "csv_file"),
        ("other.tar.gz", "csv_file"),
        ("batches", "cifar10"),
        ("batches:train", "cifar10"),
        ("*.tar", "shards"),
        ("list.parquet", "parquet"),
    ):
        assert [name for name, reader in forms if reader.recognises(str(tmp_path / text))][-1] == file
    for name in DEMOS:
        assert name in SOURCES[-1].words
        assert [file for file, reader in forms if reader.recognises(name)] == ["demo"]
    for name in ("absent", "folder:train"):
        wanted = (
            "a folder of class folders, a tar, a CSV file, a URL, tar shards, Parquet files or a built-in set "
            "(demo, demo-cifar10)"
        )
        with pytest.raises(DataError, match=re.escape(f"expected {wanted}, got '{tmp_path / name}'")):
            check_source(str(tmp_path / name))
    assert sources_help() == (
        "Folder of class folders, tar, CSV, CIFAR-10, a URL of class folders, tar shards (*.tar), Parquet, "
        "demo or demo-cifar10."
    )


def test_class_folders_by_alias_number_or_order(tmp_path: Path) -> None:
    for defence in (("n0", "n1"), ("cat", "cup"), ("0", "1")):
        root = tmp_path / defence[0]
        for name in defence:
            photo(root / name / "b.png")
            photo(root / name / "a.jpg")
            (root / name / "notes.txt").write_text("not a photo")
        dataset = load_dataset(str(root), CLASSES, 0.875)
        assert [s.label for s in dataset.samples] == [0, 0, 1, 1]
        assert [s.name for s in dataset.samples] == [f"{c}/{f}" for c in defence for f in ("a.jpg", "b.png")]
    for name in ("x", "y", "z"):
        photo(tmp_path / "free" / name / "a.jpg")
    nameless = [("0",), ("1",), ("2",)]
    assert [s.label for s in load_dataset(str(tmp_path / "free"), nameless, 1.0).samples] == [0, 1, 2]
    with pytest.raises(DataError, match="got 'x'"):
        load_dataset(str(tmp_path / "free"), CLASSES, 1.0)


def test_csv_with_and_without_heading(tmp_path: Path) -> None:
    photo(tmp_path / "one.png")
    for text in ("one.png,2\n", "file,label\none.png,rocket\n", "\ufefffile,label\none.png, n2\n"):
        (tmp_path / "list.csv").write_text(text, encoding="utf-8")
        (sample,) = load_dataset(str(tmp_path / "list.csv"), CLASSES, 1.0).samples
        assert (sample.label, sample.photo().size) == (2, (40, 30))
    assert next(load_dataset(str(tmp_path / "list.csv"), CLASSES, 1.0).tensors((8, 8))).shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("one.png,dog\n", "'dog'"),
        ("one.png,7\n", "'7'"),
        ("one.png\n", "'one.png'"),
        ("", "none"),
        ("file,label\n", "none"),
    ],
)
def test_bad_csv(text: str, got: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(DataError, match=r"expected .*got") as error:
        load_dataset(str(tmp_path / "list.csv"), CLASSES, 1.0)
    assert got in str(error.value)


def test_a_binary_file_is_no_csv(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(b"\xff\xd8\xff\x00")
    with pytest.raises(DataError, match="expected a CSV file"):
        load_dataset(str(tmp_path / "list.csv"), CLASSES, 1.0)


def test_bad_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    photo(tmp_path / "strange" / "zebra" / "a.jpg")
    for name, got in (("empty", "got none"), ("hollow", "got none"), ("strange", "got 'zebra'"), ("absent", "absent")):
        with pytest.raises(DataError, match=r"expected .*got") as error:
            load_dataset(str(tmp_path / name), CLASSES, 1.0)
        assert got in str(error.value)


def test_the_demo_photos_are_real_and_labelled() -> None:
    dataset = load_dataset("demo", [], 0.875)
    assert len(dataset) == 20
    assert {s.label for s in dataset.samples} >= {243, 559, 949}
    assert all(t.shape == (3, 224, 224) for t in dataset.tensors((224, 224)))
