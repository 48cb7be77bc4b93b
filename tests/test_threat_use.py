"""Several patches, any rectangle, unknown sizes as users meet them: calls, files, tables, pages, the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from torch import Tensor

import certmask as cm
from certmask.cli.predict import Found
from certmask.errors import ResultsError
from certmask.report.report import markdown, read_report
from certmask.results.columns import figures
from certmask.results.run import read_run
from certmask.threat import AnyRectangle, Patch, Threat, UpTo

LITTLE = ("demo-cifar10", "--model", "resnet26-cifar10", "--images", "1", "--batch", "16", "--precision", "fp32")
"""One photo through the small model that comes with certmask."""

SIZED = cm.zoom_cover(24, UpTo(6, (2, 4, 6)), (4,))
"""Masks of 14, 12 and 10 pixels or less, a level for all sizes."""

THREATS: list[Threat] = [Patch(3, 3, 2), AnyRectangle(9), UpTo(6, (2, 4, 6))]


def by_colour(images: Tensor) -> Tensor:
    """Classifies by mean colour: simple enough that whole pictures can be certified."""
    return 40 * images.mean(dim=(2, 3))


def pictures(count: int = 16) -> Tensor:
    """A thing of one colour, from faint to strong, before another colour: the fainter, the less of it may be hidden."""
    images = torch.tensor([0.0, 0.1, 0.0]).view(1, 3, 1, 1).repeat(count, 1, 24, 24)
    images[:, :, 5:19, 5:19] = 0
    images[:, 0, 5:19, 5:19] = torch.linspace(0.25, 1, count).view(-1, 1, 1)
    return images


def pasted(images: Tensor, certificate: cm.Certificate, generator: torch.Generator) -> Tensor:
    """The picture with noise wherever the threat of its certificate allows it."""
    threat, attacked = cm.threat.threat_from(certificate.threat), images.clone()
    boxes = threat.boxes_on((24, 24))
    for _ in range(threat.count):
        height, width = boxes[int(torch.randint(len(boxes), (1,), generator=generator))]
        y, x = (int(torch.randint(25 - side, (1,), generator=generator)) for side in (height, width))
        attacked[:, y : y + height, x : x + width] = torch.rand(3, 1, 1, generator=generator).round()
    return attacked


@pytest.mark.parametrize("threat", THREATS, ids=str)
@pytest.mark.parametrize("rule", ["zoom", "zoom-detection"])
def test_certified_images_survive_random_patches(threat: Threat, rule: str) -> None:
    """Noise anywhere, in as many patches of as many shapes as the certificate speaks of."""
    images, generator = pictures(), torch.Generator().manual_seed(5)
    shield = cm.Defence(by_colour, threat, rule, size=24, batch=64)
    labels = by_colour(images).argmax(dim=1)
    proof = shield.certify(images, labels)
    kept = [n for n, certificate in enumerate(proof.certificates) if certificate.holds]
    assert kept, "some are certified"
    for _ in range(6):
        answer = shield(torch.stack([pasted(images[n], proof.certificates[n], generator) for n in kept]))
        right = answer.labels == labels[kept]
        assert (right | answer.alerts).all() if rule == "zoom-detection" else (right & ~answer.alerts).all()


def test_every_image_has_a_certificate_against_its_own_size() -> None:
    """The largest that is proved; none is a certificate that does not hold, against the whole threat."""
    images = pictures()
    shield = cm.Defence(by_colour, SIZED, batch=64)
    proof = shield.certify(images, by_colour(images).argmax(dim=1))
    said = [one.sentence for one in proof.certificates]
    sides = {side: sum(f"any {side}×{side} patch" in one for one in said) for side in (2, 4, 6)}
    assert sum(count > 0 for count in sides.values()) >= 2, sides
    assert any("not certified against any patch of up to 6×6" in one for one in said)
    single = cm.Defence(by_colour, cm.zoom_cover(24, 6, (4,)), batch=64).certify(
        images, by_colour(images).argmax(dim=1)
    )
    assert sum(one.holds for one in single.certificates) >= sides[6]


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_a_defence_is_saved_and_loaded(threat: Threat, tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3))
    shield = cm.Defence(network, threat, size=24, batch=64)
    shield.save(tmp_path / "defence.safetensors")
    again = cm.Defence.load(tmp_path / "defence.safetensors", network)
    assert list(again.defence.covers) == list(shield.defence.covers)
    assert again.defence.threat == threat
    assert torch.equal(again(pictures(3)).labels, shield(pictures(3)).labels)


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run against patches of unknown size."""
    path = tmp_path_factory.mktemp("sized") / "run.jsonl"
    images = pictures()
    rules = ("undefended", "zoom", "zoom-detection")
    cm.certify(by_colour, (images, by_colour(images).argmax(dim=1)), rules, cover=SIZED, out=path, batch=64, size=24)
    return path


def test_the_curve_of_unknown_size_counts_every_image_up_to_its_own(sized: Path) -> None:
    """And the share against the whole threat is that of the largest size."""
    run = read_run(sized)
    for line in figures(run):
        sides = [row["defences"][line.defence].get("side") for row in run.rows]
        assert [size.side for size in line.sizes] == ([] if line.defence == "undefended" else [2, 4, 6])
        for size in line.sizes:
            assert size.certified.count == sum(side >= size.side for side in sides)
        if line.sizes:
            shares = [size.certified.count for size in line.sizes]
            assert shares == sorted(shares, reverse=True)
            assert line.certified == line.sizes[-1].certified
            assert shares[0] > shares[-1], "more are certified for small patches than for large ones"


def test_tables_and_page_show_the_curve(sized: Path, tmp_path: Path) -> None:
    report = read_report([sized])
    text = markdown(report)
    assert "Certified for patches of each size" in text
    assert "any patch of up to 6×6, its size untold" in text
    certmask("report", sized, "--out", tmp_path / "page.html")
    assert "certified for a patch of each size" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("side", [None, 3, 6, "4", -2])
def test_a_side_that_cannot_be_is_refused(sized: Path, tmp_path: Path, side: object) -> None:
    """One that is not deployed, none, or the largest for an image that is not certified against the whole threat."""
    header, *rows = [json.loads(line) for line in sized.read_text().splitlines()]
    row = next(row for row in rows if row["defences"]["zoom"]["side"] == 4)
    row["defences"]["zoom"]["side"] = side
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n")
    with pytest.raises(ResultsError, match=r"expected a certified side among \[0, 2, 4, 6\] for 'zoom'"):
        read_run(path)


@pytest.mark.parametrize(
    "threat", [{"kind": "up to", "side": 6, "sizes": [2, 6]}, {"kind": "patch", "height": 9, "width": 9}], ids=str
)
def test_a_threat_that_the_masks_are_not_made_for_is_refused(
    sized: Path, tmp_path: Path, threat: dict[str, object]
) -> None:
    header, *rows = [json.loads(line) for line in sized.read_text().splitlines()]
    header["defences"]["zoom"]["threat"] = threat
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n")
    with pytest.raises(ResultsError, match=r"expected masks against any .* for 'zoom' .* got some for any patch"):
        read_run(path)


@pytest.mark.parametrize("wrong", [{"label": 2}, {"alert": True}], ids=str)
def test_a_picture_that_is_certified_for_some_size_is_answered_as_promised(
    sized: Path, tmp_path: Path, wrong: dict[str, object]
) -> None:
    """No patch is one of that size, too, though the image is not certified against the whole threat."""
    header, *rows = [json.loads(line) for line in sized.read_text().splitlines()]
    row = next(row for row in rows if row["defences"]["zoom"]["side"] == 4)
    row["defences"]["zoom"].update(wrong)
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n")
    with pytest.raises(ResultsError, match="expected a certified clean image to be answered as promised"):
        read_run(path)


def by_what_is_hidden(images: Tensor) -> Tensor:
    """Sure of class 1 where little is hidden, of class 0 where nothing is or more: only small masks mislead it."""
    hidden = (images == 0.5).all(dim=1).sum(dim=(1, 2))
    few = ((hidden > 0) & (hidden <= 49)).float()
    return 9 * torch.stack([1 - few, few], dim=1)


@pytest.mark.parametrize("rule", ["zoom", "zoom-detection"])
def test_places_of_smaller_patches_may_dissent_in_a_certified_picture(rule: str, tmp_path: Path) -> None:
    """Theorem 18 asks nothing of their claims: the last resort may answer, or an alert be raised; the file is read."""
    cover = cm.zoom_cover(24, UpTo(8, (2, 8)), (4,))
    shield = cm.Defence(by_what_is_hidden, cover, rule, fill=0.5, size=24, mean=(0, 0, 0), std=(1, 1, 1))
    run = shield.certify(torch.zeros(1, 3, 24, 24), [0]).save(tmp_path / "run.jsonl")
    (outcome,) = (row["defences"][rule] for row in run.rows)
    assert (outcome["certified"], outcome["side"]) == (True, 8)
    assert (outcome["alert"], outcome["basis"]) == ((False, "bare") if rule == "zoom" else (True, ""))


def test_what_fails_of_a_larger_patch_is_not_told_of_the_certified_one() -> None:
    """The only proof that failed is that of the largest size: it is not where the certificate is weakest."""

    def by_much(images: Tensor) -> Tensor:
        much = ((images == 0.5).all(dim=1).sum(dim=(1, 2)) > 100).float()
        return 9 * torch.stack([1 - much, much], dim=1)

    cover = cm.zoom_cover(24, UpTo(8, (2, 8)), (4,))
    shield = cm.Defence(by_much, cover, "zoom-detection", fill=0.5, size=24, mean=(0, 0, 0), std=(1, 1, 1))
    (found,) = shield.explain(torch.zeros(1, 3, 24, 24))
    assert "certified detection against any 2×2 patch" in found.certificate.sentence
    assert found.weakest is not None
    assert not found.weakest.proved
    shown = Found(found, shield.defence, (), None)  # type: ignore[arg-type]
    assert shown.reasons[-1].startswith("not proved of a larger patch with the patch's corner in rows 0–4")


def test_the_weakest_place_of_a_row_says_of_which_rectangle_it_is() -> None:
    """Also where all of its places are of one shape, which is not the first one of the threat."""
    shield = cm.Defence(by_colour, AnyRectangle(9), size=24)
    rows = shield.certify(pictures(4), by_colour(pictures(4)).argmax(dim=1)).rows
    for weakest in (row["defences"]["zoom"]["weakest"] for row in rows):
        assert len(weakest["sizes"]) == len(weakest["places"])
        assert all(Patch(*size) in shield.defence.covers[0].patches for size in weakest["sizes"])


@pytest.mark.parametrize("rule", ["zoom", "zoom-detection"])
def test_claims_about_two_patches_are_no_duels(rule: str) -> None:
    """Two masks are what every claim takes then; only recovery looks through more."""
    cover = cm.zoom_cover(24, Patch(3, 3, 2), (3,))
    noisy = torch.rand(1, 3, 24, 24, generator=torch.Generator().manual_seed(3))
    (found,) = cm.Defence(by_colour, cover, rule, size=24).explain(noisy)
    assert len(set(found.claims)) > 1, "places disagree, else nobody would duel"
    assert (found.duels > 0) == (rule == "zoom")
    assert ("with more than 2 masks decided between them" in found.why()) == (rule == "zoom")


def test_unknown_sizes_on_the_command_line(tmp_path: Path) -> None:
    """Certified, tabled, continued; and a photo told its own size."""
    out = tmp_path / "run.jsonl"
    asked = ("certify", *LITTLE, "--patch-sizes", "2,4", "--levels", "2", "--rule", "zoom", "--out", out)
    said = certmask(*asked).stdout
    assert "certified for a size, which is not told" in said
    assert "1 of 1 images already" in certmask(*asked).stdout
    assert all(row["defences"]["zoom"]["side"] in (0, 2, 4) for row in read_run(out).rows)


def test_two_patches_on_the_command_line(tmp_path: Path) -> None:
    asked = ("--patch", "3", "--patches", "2", "--levels", "3", "--rule", "pair-detection", "--rule", "zoom-detection")
    certmask("certify", *LITTLE, *asked, "--out", tmp_path / "run.jsonl")
    run = read_run(tmp_path / "run.jsonl")
    assert {str(run.threat(name)) for name in run.defences} == {"any 2 patches of 3×3"}
    most = cm.zoom_cover(32, Patch(3, 3, 2), (3,)).sets(2)
    assert all(o["certificate_passes"] <= most for row in run.rows for o in row["defences"].values())


def test_photos_are_told_what_is_certified(tmp_path: Path) -> None:
    """Two patches on a map; of unknown size, the size."""
    photo = tmp_path / "photo.png"
    Image.effect_mandelbrot((32, 32), (-2, -1, 1, 1), 50).convert("RGB").save(photo)
    asked = ("--model", "resnet26-cifar10", "--levels", "2", "--precision", "fp32", "--batch", "16", "--margin", "0")
    certmask("predict", photo, *asked, "--patch", "3", "--patches", "2", "--draw", tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000
    (found,) = json.loads(certmask("predict", photo, *asked, "--patch-sizes", "2,4", "--json").stdout)
    assert "certified" in found["meaning"]
    assert "patch" in found["meaning"]


def test_areas_in_percent_are_whole_squares() -> None:
    """2 % of 224×224 is 32×32: the smallest square that has as much."""
    found = json.loads(certmask("plan", "--patch-area", "2%", "--json").stdout)
    assert found["threat"] == {"kind": "any rectangle", "area": 1024}
    assert [level["masks"] for level in found["levels"]] == [10, 38, 84, 302]
    assert np.prod(found["patches"], axis=1).max() > 1024


@pytest.mark.parametrize(
    "wrong",
    [
        "--patches 0", "--patches 9", "--patches x", "--patch-area x", "--patch-area 0", "--patch-area 100000",
        "--patch-area 0%", "--patch-area 2% --patch 32", "--patch-area 2% --patches 2", "--patch-sizes 2,x",
        "--patch-sizes 0", "--patch-sizes 300", "--patch-sizes 4,8 --patch 8", "--patches 2 --tiling spread",
        "--patch-area 2% --mask 64", "--patch-area 2% --levels 3:2", "--patch-area 2% --align 16",
    ],
)  # fmt: skip
def test_threats_that_make_no_sense_are_wrong_usage(wrong: str) -> None:
    certmask("plan", *wrong.split(), code=2)


@pytest.mark.parametrize(
    "wrong",
    [
        "--rule pair-detection", "--rule pair-detection --patches 3", "--rule patchcleanser --patches 2",
        "--rule smoothing --patch-sizes 2,4", "--patches 2 --levels 2,3,12", "--rule jury-recovery --patches 2",
    ],
)  # fmt: skip
def test_rules_that_do_not_know_a_threat_are_wrong_usage(wrong: str, tmp_path: Path) -> None:
    certmask("certify", *LITTLE, "--patch" if "sizes" not in wrong else "--images", "3", *wrong.split(),
             "--out", tmp_path / "no.jsonl", code=2)  # fmt: skip
    assert not (tmp_path / "no.jsonl").exists()
