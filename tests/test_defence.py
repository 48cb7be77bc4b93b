"""The public objects, used as the README shows them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import certmask as cm


def test_the_readme_example(network: nn.Module, images: Tensor) -> None:
    cover = cm.spread_cover(image=(24, 24), patch=cm.Patch(4, 4), mask=(10, 10), fold=(2, 2))
    shield = cm.Defence(network, cover, rule=cm.JuryRecovery())
    answer = shield(images)
    assert answer.labels.shape == answer.alerts.shape == answer.passes.shape == (len(images),)
    proof = shield.certify(images, answer.labels)
    certified = proof.certified_recovery
    assert certified is not None
    assert 0 <= certified <= proof.clean_accuracy <= 1
    assert proof.certified_detection is None
    assert proof.certified_and_quiet is None
    assert len(proof.certificates) == len(images)


@pytest.mark.parametrize("rule", [cm.JuryDetection(), cm.MinorityReports(0.3)])
def test_detection_fills_only_its_own_column(rule: cm.JuryDetection, network: nn.Module, images: Tensor) -> None:
    cover = cm.spread_cover(24, cm.Patch(4, 4), 10, 2)
    proof = cm.Defence(network, cover, rule).certify(images, [0] * len(images))
    assert proof.certified_recovery is None
    assert proof.published_test is None
    assert proof.certified_detection is not None
    quiet = [c.holds and not alert for c, alert in zip(proof.certificates, proof.answer.alerts, strict=True)]
    right = [bool(label == 0) and one for label, one in zip(proof.answer.labels, quiet, strict=True)]
    assert proof.certified_and_quiet == sum(right) / len(right)


def by_colour(images: Tensor) -> Tensor:
    """Classifies by mean colour: simple enough that whole pictures can be certified."""
    return 40 * images.mean(dim=(2, 3))


def test_certified_images_survive_random_patches() -> None:
    """The guarantee as a user would test it: paste noise anywhere, the certified answer stays."""
    generator = torch.Generator().manual_seed(1)
    colour, noise = torch.rand(16, 3, 1, 1, generator=generator), torch.rand(16, 3, 24, 24, generator=generator)
    images = 0.8 * colour + 0.2 * noise
    cover = cm.spread_cover(24, cm.Patch(3, 3), 8, 2)
    for rule in (cm.JuryRecovery(), cm.JuryRecovery("aligned"), cm.PatchCleanser(), cm.PatchCleanser(True)):
        shield = cm.Defence(by_colour, cover, rule, batch=64)
        labels = shield(images).labels
        proof = shield.certify(images, labels)
        kept = torch.tensor([c.holds for c in proof.certificates])
        assert kept.any()
        for _ in range(8):
            attacked = images[kept].clone()
            y, x = torch.randint(0, 22, (2,), generator=generator).tolist()
            attacked[:, :, y : y + 3, x : x + 3] = torch.rand(len(attacked), 3, 3, 3, generator=generator).round()
            answer = shield(attacked)
            assert torch.equal(answer.labels, labels[kept])
            assert not answer.alerts.any()


def test_a_classifier_takes_no_further_options(network: nn.Module) -> None:
    cover = cm.spread_cover(24, cm.Patch(4, 4), 10)
    with pytest.raises(cm.CertmaskError, match="got batch"):
        cm.Defence(cm.Classifier(network, 24), cover, batch=3)


@pytest.mark.parametrize("labels", [[1], [[1] * 12], [0.5] * 12, []])
def test_labels_must_fit_the_images(labels: list[int], network: nn.Module, images: Tensor) -> None:
    shield = cm.Defence(network, cm.spread_cover(24, cm.Patch(4, 4), 10))
    with pytest.raises(cm.CertmaskError, match=r"expected .*got"):
        shield.certify(images, labels)


def test_every_public_name_is_there() -> None:
    for name in cm.__all__:
        assert getattr(cm, name) is not None
    with pytest.raises(AttributeError):
        cm.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import certmask", ("torch", "timm", "matplotlib", "ray", "numpy")),
        ("import certmask; certmask.spread_cover(32, certmask.Patch(4, 4), 9)", ("torch", "timm", "matplotlib")),
        ("import certmask; certmask.Defence", ("timm", "matplotlib", "ray")),
        ("import certmask.cli.app", ("torch", "timm", "matplotlib", "numpy")),
        ("from certmask.cli.plan import plan", ("torch", "timm", "matplotlib")),
        ("import certmask.scale.attempts, certmask.scale.photos", ("torch", "timm", "ray")),
    ],
)
def test_imports_stay_light(statement: str, absent: tuple[str, ...]) -> None:
    check = f"{statement}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
