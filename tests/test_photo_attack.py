"""Patches that are really written into stored photos: what the model sees of them, and that no certificate falls."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import ExifTags, Image
from torch import Tensor, nn

import certmask as cm
from certmask.attacks import Budget, Job, RandomSearch
from certmask.attacks import scene as scenes
from certmask.attacks.attempts import PLACES
from certmask.attacks.scene import Lens, Scene, painted, snapped
from certmask.attacks.target import Target
from certmask.data import Framing, load_dataset, read_photo
from certmask.data.framing import RESAMPLINGS
from certmask.data.reach import Stored, largest_reach, shared_patch, touched
from certmask.errors import AttackError, BrokenCertificateError, ResultsError
from certmask.results.file import picture_folder, read_results
from certmask.results.run import read_run
from certmask.threat import Patch, Size

torch.set_num_threads(1)

MODEL = ("--model", "resnet26-cifar10", "--batch", "4", "--precision", "fp32")
RUN = (*MODEL, "--rule", "undefended", "--rule", "jury-recovery", "--mask", "24", "--patch-in-photo", "16")
CAT, FROG = "cat/b.png", "frog/c.jpg"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo of 64×64, one of 100×80 that lies on its side, and what was certified about them."""
    folder = tmp_path_factory.mktemp("attack")
    samples = {s.name: s for s in load_dataset("demo-cifar10", None, 1.0).samples}
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for name in (CAT, FROG):
        (folder / "photos" / name).parent.mkdir(parents=True)
    samples["cifar10_00_3.png"].photo().resize((64, 64)).save(folder / "photos" / CAT)
    turned = samples["cifar10_04_6.png"].photo().resize((80, 80)).rotate(90)
    turned.save(folder / "photos" / FROG, exif=exif, quality=95)
    certmask("certify", folder / "photos", *RUN, "--out", folder / "run.jsonl")
    return folder


def scene_of(size: Size, framing: Framing, image: Size, patch: Size, seed: int = 0) -> Scene:
    noise = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    threat = shared_patch(largest_reach(Stored(*size), framing, image, patch).size, image)
    return Scene(lambda: Image.fromarray(noise), size, framing, image, patch, threat)


SCENES = [
    scene_of(size, Framing(crop, resampling), (24, 20), patch)
    for size, crop, resampling, patch in product(((40, 60), (15, 12)), (1.0, 0.6), RESAMPLINGS, ((5, 3), (2, 7)))
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.size} {scene.framing} {scene.patch}")
def test_every_corner_leads_to_a_place_that_touches_nothing_else(scene: Scene) -> None:
    """Of all corners of the input: snapping twice is snapping once, and the box of the place lies in the threat's."""
    rows, columns = scene.threat.positions(scene.image)
    for corner in product(range(rows), range(columns)):
        near = scene.snapped(corner)
        assert scene.snapped(near) == near
        top, left = scene.place(near)
        box = touched(scene.photo, scene.framing, scene.image, (top, top + scene.patch[0], left, left + scene.patch[1]))
        assert box is not None, "a patch that is cut off attacks nothing"
        assert near[0] <= box[0] < box[1] <= near[0] + scene.threat.height
        assert near[1] <= box[2] < box[3] <= near[1] + scene.threat.width


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.size} {scene.framing} {scene.patch}")
def test_the_lens_shows_what_is_really_seen(scene: Scene) -> None:
    """But for rounding, and for values that are cut off between the two directions, which a gentle patch has not."""
    grey = replace(scene, read=lambda: Image.new("RGB", scene.size[::-1], (120, 130, 140)))
    corner = grey.snapped((3, 4))
    patch = 0.4 + 0.2 * torch.rand(1, 3, *grey.patch, generator=torch.Generator().manual_seed(0))
    lens = Lens.of([grey], torch.tensor([corner]))
    assert lens.size == grey.patch
    (picture,) = painted([grey], patch, torch.tensor([corner]))
    (top, left), (height, width) = corner, grey.threat.size
    shown = picture[:, top : top + height, left : left + width]
    assert (lens(patch)[0] - shown).abs().max() < 2 / 255
    patch.requires_grad_()
    assert torch.autograd.grad(lens(patch).sum(), patch)[0].abs().sum() > 0


def test_patches_of_several_sizes_share_a_lens() -> None:
    both = [scene_of((40, 60), Framing(1.0), (24, 20), patch, seed) for seed, patch in enumerate(((5, 3), (3, 4)))]
    both = [replace(one, threat=Patch(8, 8)) for one in both]
    corners = snapped(both, torch.tensor([[2, 2], [2, 2]]))
    together = Lens.of(both, corners)
    assert together.size == (5, 4)
    patches = torch.rand(2, 3, 5, 4)
    for number, one in enumerate(both):
        alone = Lens.of([one], corners[number : number + 1])
        own = patches[number : number + 1, :, : one.patch[0], : one.patch[1]]
        assert torch.allclose(together(patches)[number], alone(own)[0], atol=1e-6)


def test_a_reach_that_is_too_small_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assertion about Theorem 16 can fail."""
    scene = scene_of((40, 60), Framing(1.0), (24, 20), (5, 3))
    content = np.zeros((5, 3, 3), np.uint8)
    scene.painted(content, (10, 30))
    box = touched(scene.photo, scene.framing, scene.image, (10, 15, 30, 33))
    assert box is not None
    monkeypatch.setattr(scenes, "touched", lambda *_: (box[0] + 2, box[1], box[2], box[3]))
    with pytest.raises(BrokenCertificateError, match="a fault in the reach"):
        scene.painted(content, (10, 30))


def test_attacks_that_cannot_patch_photos_say_so() -> None:
    scene = scene_of((40, 60), Framing(1.0), (24, 20), (5, 3))
    job = Job(torch.rand(1, 3, 24, 20), torch.tensor([0]), scene.threat, scenes=[scene])
    with pytest.raises(AttackError, match="expected an attack that patches photos, got RandomSearch"):
        RandomSearch(lambda pictures: torch.rand(len(pictures), 2))(job, lambda pictures: [])
    with pytest.raises(AttackError, match="expected photos in which a patch becomes"):
        Job(job.images, job.labels, Patch(1, 1), scenes=[scene]).checked()


def test_the_undefended_network_falls_and_no_certificate_does(base: Path) -> None:
    """A gauntlet through the command line; what was judged differs from the clean input in what is reached only."""
    header, certified = read_results(base / "run.jsonl")
    proved = [row["image"] for row in certified if row["defences"]["jury-recovery"]["certified"]]
    assert proved, "something to attack"
    out = base / "attempts.jsonl"
    budget = ("--images", "2", "--locations", "2", "--steps", "20", "--masks-per-step", "2")
    said = certmask("attack", base / "run.jsonl", base / "photos", *budget, "--out", out).stdout
    attempts = read_run(out)
    rows = {row["image"]: row["photo"] for row in certified}
    bare = [row for row in attempts.rows if row["defence"] == "undefended"]
    assert all(row["answer"] != row["label"] for row in bare), "the attack is a strong one"
    assert "All patches were written into the stored photos, which were then resized and cut." in said
    assert not any(row["broken"] for row in attempts.rows if row["defence"] == "jury-recovery")
    assert {row["image"] for row in attempts.rows if row["defence"] == "jury-recovery"} == set(proved)
    for row in attempts.rows:
        photo = row["photo"]
        assert row["place"] in PLACES
        assert photo["threat"] == rows[row["image"]]["threat"]
        assert photo["patch"] == [16, 16]
        if row["picture"]:
            stored = Stored(*rows[row["image"]]["size"])
            (top, left), clean = photo["corner"], read_photo(base / "photos" / row["image"])
            box = touched(stored, Framing(1.0), (32, 32), (top, top + 16, left, left + 16))
            judged = np.array(read_photo(picture_folder(out) / row["picture"]))
            moved = (judged != np.array(Framing(1.0)(clean, (32, 32)))).any(axis=2)
            assert box is not None
            assert moved.any()
            moved[box[0] : box[1], box[2] : box[3]] = False
            assert not moved.any()
    assert header["defences"].keys() == attempts.defences.keys()
    fell = next(number for number, row in enumerate(attempts.rows, start=1) if row["picture"])
    again = certmask("attack", base / "run.jsonl", base / "photos", "--out", out, "--replay", str(fell)).stdout
    assert "undefended answers" in again
    certmask("report", base / "run.jsonl", out, "--photos", base / "photos", "--out", base / "page.html")
    certmask("attack", base / "run.jsonl", base / "photos", "--uncertified", "--out", base / "no.jsonl", code=1)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    lines[1]["photo"]["threat"] = [1, 1]
    lie = base / "lie.jsonl"
    lie.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(ResultsError, match="expected a class of the header"):
        read_run(lie)


def test_other_photos_than_those_of_the_rows_are_refused(base: Path, tmp_path: Path) -> None:
    """A row that calls its photo larger than it is would have a smaller patch attacked than was certified."""
    lines = [json.loads(line) for line in (base / "run.jsonl").read_bytes().splitlines()]
    for row in lines[1:]:
        row["photo"]["size"] = [640, 640]
    lie = tmp_path / "lie.jsonl"
    lie.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(ResultsError, match="as in"):
        Target(lie, str(base / "photos"), tmp_path / "none.jsonl").gauntlet(Budget(1, 1, 1, 1, 1))


def test_the_patch_turns_with_the_photo(base: Path) -> None:
    """A 10×4 patch in the file of a photo that lies on its side is 4×10 in the upright one."""
    out = base / "turned.jsonl"
    certmask("certify", base / "photos", *RUN[:-1], "10x4", "--out", out)
    gauntlet = Target(out, str(base / "photos"), base / "none.jsonl", rules=["undefended"]).gauntlet(
        Budget(2, 1, 1, 1, 1)
    )
    assert {name: scene.patch for name, scene in gauntlet.scenes.items()} == {CAT: (10, 4), FROG: (4, 10)}


def test_a_patch_from_before_compression_is_attacked_after_it_and_that_is_said(base: Path) -> None:
    out, files = base / "early.jsonl", base / "jpeg"
    (files / FROG).parent.mkdir(parents=True)
    shutil.copy(base / "photos" / FROG, files / FROG)
    certmask("certify", files, *MODEL, "--rule", "undefended", *RUN[-2:], "--before-jpeg", "--out", out)
    (row,) = read_run(out).rows
    (late,) = (row for row in read_run(base / "run.jsonl").rows if row["image"] == FROG)
    assert all(early > after for early, after in zip(row["photo"]["reach"], late["photo"]["reach"], strict=True))
    budget = ("--images", "1", "--locations", "1", "--steps", "2")
    said = certmask("attack", out, files, *budget, "--out", base / "early-attempts.jsonl").stdout.split()
    assert "after they were decompressed: a patch from before that is certified and was not tried" in " ".join(said)


class Colours(nn.Module):
    """How red, green and blue the 3×3 pixels of each cell are."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 3, 3, stride=2, bias=False)
        with torch.no_grad():
            self.look.weight.copy_(2 * torch.eye(3)[:, :, None, None].expand(-1, -1, 3, 3))

    def local(self, images: Tensor) -> Tensor:
        maps: Tensor = self.look(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return self.local(images).mean(dim=(2, 3))


class Reds:
    """Red photos of two sizes, as a torch Dataset has them: without files."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", ((30, 40), (50, 32))[number], (220, 40, 40)), 0


def test_local_evidence_against_a_patch_in_photos_without_files(tmp_path: Path) -> None:
    """Certified from Python, continued, and attacked; the two photos are of two classes."""
    network, out = Colours(), tmp_path / "run.jsonl"
    options: dict[str, Any] = {"patch_in_photo": (5, 7), "size": 16, "batch": 8, "precision": "fp32", "framing": 1.0}
    found = cm.certify(network, Reds(), ["undefended", "patchguard"], out=out, **options)
    assert [row["photo"]["size"] for row in found.rows] == [[32, 50], [40, 30]]
    assert all(row["defences"]["patchguard"]["certified"] for row in found.rows)
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:2]))
    again = cm.certify(network, Reds(), ["undefended", "patchguard"], out=out, **options)
    assert [row["photo"] for row in again.rows] == [row["photo"] for row in found.rows]
    target = Target(out, Reds(), tmp_path / "attempts.jsonl", network)
    attempts = target.gauntlet(Budget(2, 2, 1, 5, 1)).attack()
    target.check_proofs(attempts)
    assert {tuple(row["photo"]["threat"]) for row in attempts.rows} == {
        tuple(row["photo"]["threat"]) for row in found.rows
    }
