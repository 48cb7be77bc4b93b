"""Photos in tar shards, in Parquet and behind URLs: the same pictures, names and labels as in a folder."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import pytest
from commands import certmask, outcomes
from PIL import Image

from certmask.data import CIFAR10, Dataset, load_dataset, pixel_digest
from certmask.errors import DataError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
CLASSES = [(name,) for name in CIFAR10]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, chance = tmp_path_factory.mktemp("stores") / "photos", random.Random(0)
    for number in range(12):
        path = root / CIFAR10[number % 4] / f"{number:02d}.{'png' if number % 3 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (32, 32), chance.randbytes(32 * 32 * 3)).resize((48, 40)).save(path)
    return root


def photos(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.*") if path.is_file())


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def in_shards(folder: Path, root: Path, beside: bool = False) -> str:
    """Three tars, of class folders, or of photos with their classes beside them."""
    root.mkdir()
    for shard in range(3):
        with tarfile.open(root / f"{shard}.tar", "w") as archive:
            for path in photos(folder)[shard::3]:
                if beside:
                    add(archive, path.name, path.read_bytes())
                    add(archive, f"{path.stem}.cls", str(CIFAR10.index(path.parent.name)).encode())
                else:
                    archive.add(path, f"./{path.parent.name}/{path.name}")
    return f"{root}/*.tar"


def in_parquet(folder: Path, root: Path, nested: bool = False) -> str:
    """Two files of several row groups; nested as Hugging Face has it."""
    root.mkdir()
    for part in range(2):
        own = photos(folder)[part::2]
        images = [{"bytes": p.read_bytes(), "path": None} if nested else p.read_bytes() for p in own]
        names = [f"{path.parent.name}/{path.name}" for path in own]
        labels = [CIFAR10.index(path.parent.name) if nested else path.parent.name for path in own]
        table = pyarrow.table({"image": images, "label": labels, "name": names})
        parquet.write_table(table, root / f"{part}.parquet", row_group_size=4)
    return f"{root}/*.parquet"


def seen(dataset: Dataset) -> dict[str, tuple[int, str]]:
    return {s.name: (s.label, pixel_digest(dataset.tensor(n, (32, 32)))) for n, s in enumerate(dataset.samples)}


def known(source: str) -> dict[str, tuple[int, str]]:
    return seen(load_dataset(source, CLASSES, 1.0))


def test_every_store_has_what_the_folder_has(folder: Path, tmp_path: Path) -> None:
    wanted = known(str(folder))
    assert len(wanted) == 12
    tars, tables = in_shards(folder, tmp_path / "tars"), in_parquet(folder, tmp_path / "tables")
    nested = in_parquet(folder, tmp_path / "nested", nested=True)
    folders = (f"file://{folder}", f"local://{folder}", f"simplecache::file://{folder}")
    for source in (*folders, tars, f"file://{tars}", tables, f"local://{tables}", nested):
        assert known(source) == wanted, source
    flat = known(in_shards(folder, tmp_path / "flat", beside=True))
    assert flat == {name.split("/")[1]: told for name, told in wanted.items()}


def test_the_order_of_a_url_is_that_of_the_folder(folder: Path) -> None:
    """So that a run that was begun on one goes on with the other."""
    local, remote = (load_dataset(source, CLASSES, 1.0).describe() for source in (str(folder), f"file://{folder}"))
    assert local == remote


def test_what_the_photos_of_a_store_are_is_known_to_a_patch_in_them(folder: Path, tmp_path: Path) -> None:
    for source in (in_shards(folder, tmp_path / "tars"), in_parquet(folder, tmp_path / "tables")):
        stored = load_dataset(source, CLASSES, 1.0).samples[0].stored()
        assert stored is not None
        assert (stored.height, stored.width) == (40, 48)


def test_a_parquet_file_is_certified_from_the_command_line(folder: Path, little_model: Path, tmp_path: Path) -> None:
    options = ("--model", little_model, "--patch", "5", "--mask", "18", "--rule", "jury-recovery", "--batch", "8")
    for name, source in (("folder", str(folder)), ("tables", f"file://{in_parquet(folder, tmp_path / 'tables')}")):
        certmask("certify", source, *options, "--out", tmp_path / f"{name}.jsonl")
    assert outcomes(tmp_path / "folder.jsonl") == outcomes(tmp_path / "tables.jsonl")


def test_what_cannot_be_read_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"no table")
    parquet.write_table(pyarrow.table({"image": [b"no photo"], "label": [3]}), tmp_path / "photo.parquet")
    parquet.write_table(pyarrow.table({"picture": [b""], "label": [3]}), tmp_path / "column.parquet")
    parquet.write_table(pyarrow.table({"image": ["text"], "label": [3]}), tmp_path / "text.parquet")
    parquet.write_table(pyarrow.table({"image": [b""], "label": ["zebra"]}), tmp_path / "label.parquet")
    parquet.write_table(
        pyarrow.table({"image": [b"", b""], "label": [1, 2], "name": ["a", "a"]}), tmp_path / "t.parquet"
    )
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "0.tar").write_bytes(b"no archive at all")
    for source, reason in {
        "bad.parquet": "expected to reach",
        "photo.parquet": "expected a readable image in photo.parquet/000000, got no image",
        "column.parquet": "expected a column image or bytes or img",
        "text.parquet": "expected the bytes of an image",
        "label.parquet": "expected a class number or an unambiguous name as label of label.parquet/000000, got 'zebra'",
        "t.parquet": "expected photos with a name of their own",
        "none.parquet": "expected files at",
        "none/*.tar": "expected files at",
        "bad/*.tar": "expected to reach",
    }.items():
        with pytest.raises(DataError, match=reason.replace("(", r"\(")) as error:
            known(str(tmp_path / source))
        assert "\n" not in str(error.value)
    for source in ("nothing://there", f"file://{tmp_path}/nowhere", f"file://{tmp_path}/bad"):
        with pytest.raises(DataError, match="expected"):
            known(source)


def test_a_photo_in_two_shards_is_refused(folder: Path, tmp_path: Path) -> None:
    source = in_shards(folder, tmp_path / "tars")
    (tmp_path / "tars" / "3.tar").write_bytes((tmp_path / "tars" / "0.tar").read_bytes())
    with pytest.raises(DataError, match="expected every photo once"):
        known(source)
