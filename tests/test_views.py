"""Views: the mean over a picture and its mirror image is one function, and a mask hides the same in every view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import certmask, outcomes
from conftest import DEVICES, tiny_network
from looking import outputs_under, singles_of
from torch import Tensor, nn
from torch.nn import functional

import certmask as cm
from certmask.attacks.descent import Surrogate
from certmask.classifier import Classifier
from certmask.covers import patchcleanser_cover, spread_cover
from certmask.deployed import Defence
from certmask.engine import Engine
from certmask.errors import CertmaskError, ClassifierError
from certmask.function import check_function
from certmask.identity import token_side
from certmask.results.file import read_results
from certmask.rules import JuryRecovery
from certmask.threat import Patch
from certmask.views import VIEWS
from certmask.votes import as_votes
from certmask.zoo import load_classifier
from certmask.zoo.timm_import import import_timm

BOTH = ("plain", "mirror")
COVER = spread_cover(24, Patch(4, 3), (11, 9), 2)


class Colours(nn.Module):
    """Names the colour that a picture has most of, which a mirror does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(60 * images.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def pictures() -> tuple[Tensor, Tensor]:
    """Two of each colour, one sure and one in doubt."""
    images, labels = torch.full((6, 3, 24, 24), 0.3), torch.arange(6) // 2
    images[torch.arange(6), labels] = torch.tensor([0.9, 0.32] * 3).view(-1, 1, 1).expand(-1, 24, 24)
    return images, labels


@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_the_mean_is_that_of_the_views_by_hand(backend: str, network: nn.Module, images: Tensor) -> None:
    options: dict[str, Any] = {"precision": "fp32", "batch": 5, "backend": backend, "mean": (0.2, 0.3, 0.4)}
    plain, both = Classifier(network, 24, **options), Classifier(network, 24, **options, views=BOTH)
    assert torch.equal(both(images), (plain(images) + plain(images.flip(3))) / 2)
    assert not torch.allclose(both(images), plain(images), atol=1e-3)
    overhead = Classifier(network, 24, **options, views=["upside-down"])
    assert torch.equal(overhead(images), plain(images.flip(2)))
    assert (plain.cost, both.cost, overhead.cost) == (1, 2, 1)


def test_the_order_in_which_views_are_named_does_not_matter(network: nn.Module, images: Tensor) -> None:
    one, two = (Classifier(network, 24, batch=4, precision="fp32", views=views) for views in ([*VIEWS], [*VIEWS][::-1]))
    assert one.views == two.views == tuple(VIEWS)
    assert one.describe() == two.describe()
    assert torch.equal(one(images), two(images))


@pytest.mark.parametrize("views", [(), ("mirrored",), ("plain", "plain"), ("plain", "x"), "mirror", "", None, 2, [3]])
def test_views_that_there_are_not(views: Any, network: nn.Module) -> None:
    with pytest.raises(ClassifierError, match=r"expected views among plain, mirror, upside-down, each once, got"):
        Classifier(network, 24, views=views)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_vote_does_not_depend_on_its_company(precision: str, device: str, network: nn.Module, images: Tensor) -> None:
    """Bit for bit: alone and among others, compiled where that is what a device does."""
    engine = Engine(Classifier(network, 24, precision=precision, batch=8, device=device, views=BOTH), [COVER])
    together = outputs_under(engine, COVER, images, [singles_of(COVER)] * len(images))
    alone = [outputs_under(engine, COVER, image[None], [singles_of(COVER)])[0] for image in images]
    assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))


def test_a_picture_is_masked_and_then_mirrored(images: Tensor) -> None:
    """Through the engine, by hand; the other order, with masks that are not symmetric, says something else."""
    cover = patchcleanser_cover((24, 20), Patch(4, 3), 3)
    plain = Classifier(Wide(), (24, 20), batch=8, precision="fp32")
    engine = Engine(Classifier(Wide(), (24, 20), batch=8, precision="fp32", views=BOTH), [cover], fill=(0.1, 0.7, 0.2))
    image, fill = images[0, :, :, :20], torch.tensor([0.1, 0.7, 0.2]).view(3, 1, 1)
    (found,) = outputs_under(engine, cover, image[None], [singles_of(cover)])
    hidden = torch.stack([_pixels(cover, number) for number in range(len(cover))])[:, None]
    painted, mirrored = torch.where(hidden, fill, image), torch.where(hidden, fill, image.flip(2))
    assert torch.equal(found, as_votes((plain(painted) + plain(painted.flip(3))) / 2))
    assert not torch.allclose(found, as_votes((plain(painted) + plain(mirrored)) / 2), atol=1e-3)


class Wide(nn.Module):
    """A linear function of every pixel of a picture that is no square."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 20, 4))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)  # type: ignore[no-any-return]


def _pixels(cover: cm.Cover, number: int) -> Tensor:
    """Which pixels a mask hides."""
    hidden = torch.zeros(cover.image, dtype=torch.bool)
    rows, columns = cover.masks[number].footprint(cover.image)
    for top, bottom in rows:
        for left, right in columns:
            hidden[top:bottom, left:right] = True
    return hidden


def test_what_a_mask_hides_is_hidden_in_every_view() -> None:
    """A patch at every place, under every mask that covers it: no vote moves, though the network reads every pixel."""
    clean = torch.rand(1, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    engine = Engine(Classifier(tiny_network(), 24, batch=64, precision="fp32", views=tuple(VIEWS)), [COVER])
    (before,) = outputs_under(engine, COVER, clean, [singles_of(COVER)])
    for top, left in torch.cartesian_prod(*map(torch.arange, COVER.patch.positions(COVER.image))).tolist():
        attacked = clean.clone()
        attacked[..., top : top + 4, left : left + 3] = 1 - attacked[..., top : top + 4, left : left + 3].round()
        jury = [n for n, mask in enumerate(COVER.masks) if mask.covers((top, left), COVER.patch, COVER.image)]
        (after,) = outputs_under(engine, COVER, attacked, [singles_of(COVER)])
        assert torch.equal(after[jury], before[jury]), (top, left)
        assert not torch.equal(after, before), (top, left)


class Fragile(nn.Module):
    """Gives no numbers about a picture whose top left pixel is white."""

    def forward(self, images: Tensor) -> Tensor:
        white = images[:, :, 0, 0].amin(dim=1, keepdim=True) == 1
        return torch.where(white, torch.nan, images.mean(dim=(2, 3)))


def test_nan_in_one_view_silences_the_vote(images: Tensor) -> None:
    classifier = Classifier(Fragile(), 24, batch=4, precision="fp32", views=BOTH)
    image = 0.9 * images[:1]
    assert torch.isfinite(classifier(image)).all()
    image[:, :, 0, -1] = 1  # the mirror sees it in the top left corner, and only the mirror
    with pytest.raises(ClassifierError, match="expected finite logits"):
        classifier(image)
    (votes,) = outputs_under(Engine(classifier, [COVER]), COVER, image, [singles_of(COVER)])
    hides = [mask.covers((0, 23), Patch(1, 1), COVER.image) for mask in COVER.masks]
    assert True in hides
    assert [bool(vote.any()) for vote in votes] == hides


def test_every_view_is_a_pass_and_kept_votes_are_not_those_of_others(tmp_path: Path) -> None:
    """A mirror changes no vote about these pictures, so that all counts are exactly twice what they were."""
    counted: dict[str, int] = {}

    def run(name: str, **options: Any) -> dict[str, Any]:
        def count(what: str, more: int) -> None:
            counted[name] = counted.get(name, 0) + more * (what == "passes")

        options |= {"out": tmp_path / name, "votes": tmp_path / "votes", "progress": count, "margin": 0.0, "batch": 16}
        rules = ["undefended", "jury-detection", "jury-recovery"]
        return outcomes(cm.certify(Colours(), pictures(), rules, 4, precision="fp32", **options).path)

    plain, both = run("plain.jsonl"), run("both.jsonl", views=BOTH)
    assert counted["both.jsonl"] == 2 * counted["plain.jsonl"] > 0
    for row, twice in zip(plain.values(), both.values(), strict=True):
        assert twice["passes"] == 2 * row["passes"] > 0
        for name, own in row["defences"].items():
            doubled = {key: 2 * own[key] for key in ("passes", "certificate_passes")}
            found = twice["defences"][name]
            assert (found["weakest"] or {}).get("lead") == (own["weakest"] or {}).get("lead")
            assert {**found, "weakest": own["weakest"]} == {**own, **doubled}, "a mirror may tell ties apart"
    assert any(row["defences"]["jury-recovery"]["certified"] for row in both.values())
    with pytest.raises(CertmaskError, match=r"expected to continue .* got another model\.views"):
        run("plain.jsonl", views=BOTH)
    with pytest.raises(CertmaskError, match=r"expected to continue .* got another model\.views"):
        run("both.jsonl")


def test_other_views_are_another_function(network: nn.Module) -> None:
    """Described only where they are not the default; told from the fingerprint, and where that is the same, by name."""
    plain, both = (Classifier(network, 24, batch=4, precision="fp32", views=views) for views in (BOTH[:1], BOTH))
    assert both.describe() == {**plain.describe(), "views": ["plain", "mirror"]}
    assert "views" not in plain.describe()
    assert "views plain + mirror" in repr(both)
    assert Engine(plain, [COVER]).fingerprint().name != Engine(both, [COVER]).fingerprint().name
    one, two = (Engine(Classifier(Colours(), 24, batch=4, views=views), [COVER]) for views in (BOTH[:1], BOTH))
    header = json.loads(json.dumps({"model": one.describe()}))
    with pytest.raises(CertmaskError, match=r"with views None, got \['plain', 'mirror'\]"):
        check_function(header, two, [JuryRecovery()], "run.jsonl")


def test_a_saved_defence_keeps_its_views(network: nn.Module, images: Tensor, tmp_path: Path) -> None:
    for views in (BOTH, ("plain",), ("mirror",)):
        shield = Defence(network, COVER, batch=8, precision="fp32", views=views)
        shield.save(tmp_path / "shield.safetensors")
        again = Defence.load(tmp_path / "shield.safetensors", tiny_network(seed=1))
        assert again.classifier.views == views
        assert torch.equal(again.classifier(images), shield.classifier(images))


def test_an_attack_goes_through_the_same_mean(network: nn.Module, images: Tensor) -> None:
    """Its logits are logarithms of the mean, and its gradients come through every view."""
    classifier = Classifier(network, 24, batch=2, precision="fp32", mean=(0.5, 0.5, 0.5), views=BOTH)
    shown, own = images[:2].clone().requires_grad_(), images[:2].clone().requires_grad_()
    logits = Surrogate(classifier, [COVER])(shown, torch.full((2, 1, 2), -1))[:, 0]
    torch.testing.assert_close(logits.detach().exp(), classifier(images[:2]))
    mean = sum(network(view - 0.5).softmax(dim=1) for view in (own, own.flip(3))) / 2
    labels = torch.tensor([0, 1])
    (found,) = torch.autograd.grad(functional.cross_entropy(logits, labels), shown)
    (wanted,) = torch.autograd.grad(functional.nll_loss(mean.log(), labels), own)
    torch.testing.assert_close(found, wanted)


def test_from_the_command_line_to_the_attack(tmp_path: Path) -> None:
    """The shipped model certifies real photos, more passes each; the attack takes the views from the results file."""
    common = ("certify", "demo-cifar10", "--model", "resnet26-cifar10", "--patch", "5", "--images", "2")
    rules = ("--rule", "undefended", "--rule", "jury-detection", "--precision", "fp32", "--batch", "4")
    certmask(*common, *rules, "--out", "plain.jsonl", cwd=tmp_path)
    done = certmask(*common, *rules, "--views", "mirror, plain", "--out", "both.jsonl", cwd=tmp_path)
    assert "mean of plain and mirror" in done.stdout
    header, rows = read_results(tmp_path / "both.jsonl")
    assert header["model"]["views"] == ["plain", "mirror"]
    assert any(row["defences"]["jury-detection"]["certified"] for row in rows)
    for row, before in zip(rows, read_results(tmp_path / "plain.jsonl")[1], strict=True):
        for name in ("undefended", "jury-detection"):
            assert row["defences"][name]["passes"] == 2 * before["defences"][name]["passes"]
    assert "model.views" in certmask(*common, *rules, "--out", "both.jsonl", cwd=tmp_path, code=1).stderr
    budget = ("--rule", "jury-detection", "--images", "1", "--locations", "1", "--steps", "2")
    few = ("--masks-per-step", "2", "--out", "attack.jsonl")
    certmask("attack", "both.jsonl", "demo-cifar10", *budget, *few, cwd=tmp_path)
    assert read_results(tmp_path / "attack.jsonl")[0]["model"]["views"] == ["plain", "mirror"]


@pytest.mark.parametrize("views", ["mirrored", "plain,plain", ""])
def test_views_on_the_command_line_that_there_are_not(views: str, little_model: Path, tmp_path: Path) -> None:
    for command in (("certify", "demo-cifar10"), ("reproduce", "table1", "--data", "demo-cifar10", "--dry-run")):
        done = certmask(*command, "--model", little_model, "--views", views, cwd=tmp_path, code=2)
        assert "expected views among plain, mirror, upside-down" in " ".join(done.stderr.split())


def test_predict_and_plans_take_views(little_model: Path, photos: dict[str, Path], tmp_path: Path) -> None:
    plain, both = (
        certmask("reproduce", "table2", "--model", little_model, "--data", "x", "--dry-run", *views).stdout
        for views in ((), ("--views", "plain,mirror"))
    )
    assert "| 1 each" in plain
    assert plain.replace("| 1 each", "| 2 each") == both
    options = ("--model", little_model, "--patch", "5", "--rule", "undefended", "--views", "plain,mirror", "--json")
    (found,) = json.loads(certmask("predict", photos["cup"], *options, cwd=tmp_path).stdout)
    assert found["rule"] == "undefended"


class Upsampled(nn.Module):
    """A network for larger pictures behind a resize."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(functional.interpolate(images, (224, 224)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("deit_tiny_patch16_224", 16),
        ("vit_small_patch32_224", 32),
        ("resmlp_12_224", 16),
        ("mixer_s32_224", 32),
        ("beit_base_patch16_224", 16),
        ("swin_tiny_patch4_window7_224", 4),
        ("twins_svt_small", 4),
        ("resnet18", 1),
        ("efficientnet_lite0", 1),
        ("convnext_atto", 1),
        ("pvt_v2_b0", 1),  # tokens that overlap
        ("vit_tiny_r_s16_p8_224", 1),  # tokens of what a ResNet saw
        ("crossvit_9_240", 1),  # two sizes of tokens
    ],
)
def test_the_grid_of_real_networks(name: str, side: int) -> None:
    with torch.device("meta"):
        network = import_timm().create_model(name)
    size = (240, 240) if name.startswith("crossvit") else (224, 224)
    assert token_side(network, size) == side
    assert token_side(nn.Sequential(nn.Identity(), network), size) == side
    assert token_side(Upsampled(network), (32, 32)) == 1
    assert token_side(network, (225, 225)) == 1


@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_a_classifier_knows_its_grid(backend: str, little_model: Path) -> None:
    classifier = load_classifier(str(little_model), precision="fp32", batch=2, backend=backend)
    assert classifier.grid == 16
    assert Classifier(lambda batch: batch.mean(dim=(2, 3)), 24).grid == 1
