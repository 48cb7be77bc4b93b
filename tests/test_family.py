"""The family of defences: one protocol, with masks or without, from a photo to the page; and why a defence answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask
from conftest import tiny_network
from PIL import Image
from torch import Tensor, nn

import certmask as cm
from certmask.certificate import Certificate, Decision, Guarantee
from certmask.certification import certified_rows, certify_run
from certmask.classifier import Classifier
from certmask.data import load_dataset
from certmask.defences import AnyDefence, MaskedDefence, engine_covers, examine
from certmask.engine import Engine
from certmask.geometry import IntArray
from certmask.passes import BARE, Ask
from certmask.results.columns import figures
from certmask.results.run import read_run
from certmask.rules.rule import Asking
from certmask.threat import Patch, Size
from certmask.votes import BoolArray, VoteStore

COVER = cm.patchcleanser_cover(24, Patch(4, 4), 3)


class AlwaysAlert(AnyDefence):
    """A defence without masks that really detects: it looks at the picture once and always warns."""

    name = "always alert"
    threat = Patch(4, 4)
    image: Size = (24, 24)
    guarantee = Guarantee.DETECTION
    looks = "one look"

    def deciding(self, engine: Engine, store: VoteStore) -> Asking[list[Decision]]:
        everyone = np.arange(store.pictures)
        yield Ask(everyone, np.full(store.pictures, BARE))
        labels = store.heads()[store.slots(everyone, np.full(store.pictures, BARE)), 0]
        return [Decision(int(label), alert=True) for label in labels]

    def certifying(self, engine: Engine, store: VoteStore, labels: IntArray) -> Asking[BoolArray]:
        yield from ()
        return np.ones(len(labels), dtype=bool)

    def parameters(self) -> dict[str, Any]:
        return {"rule": {"rule": "always alert", "guarantee": self.guarantee.value, "margin": 0.0}}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    for label in ("0", "1"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(3):
            pixels = chance.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("beside", [[], [MaskedDefence(COVER, cm.JuryDetection(), "juries")]], ids=["alone", "beside"])
def test_a_defence_without_masks_goes_all_the_way(beside: list[AnyDefence], photos: Path, tmp_path: Path) -> None:
    """Certify, results file, table and page: nothing on the way asks for a cover."""
    defences: list[AnyDefence] = [AlwaysAlert(), *beside]
    engine = Engine(Classifier(tiny_network(), 24, batch=4, precision="fp32"), engine_covers(defences))
    dataset = load_dataset(str(photos), None, 1.0)
    certify_run(engine, dataset, defences, tmp_path / "run.jsonl")
    found = figures(read_run(tmp_path / "run.jsonl"))[0]
    assert (found.defence, found.images) == ("always alert", 6)
    assert found.certified is not None
    assert found.certified.count == found.false_alerts.count == 6
    assert found.answer_passes == 1
    table = certmask("table", tmp_path / "run.jsonl").stdout
    assert "always alert" in table
    assert "100.0" in table
    certmask("report", tmp_path / "run.jsonl", "--out", tmp_path / "page.html")
    assert "always alert" in (tmp_path / "page.html").read_text()
    certificate = AlwaysAlert().certificate(1, True)
    assert certificate.sentence.startswith("certified detection against any 4×4 patch on a 24×24 input")
    assert certificate.cover is None


def test_rows_are_made_without_a_file(photos: Path, tmp_path: Path) -> None:
    """The first half of certifying alone gives the very rows that the second half records."""
    defences = [MaskedDefence(COVER, cm.JuryRecovery(), "juries")]
    classifier = Classifier(tiny_network(), 24, batch=4, precision="fp32")
    dataset = load_dataset(str(photos), None, 1.0)
    engine = Engine(classifier, engine_covers(defences))
    rows = {row["image"]: row for row in certified_rows(engine, dataset, defences)}
    _, recorded = certify_run(Engine(classifier, [COVER]), dataset, defences, tmp_path / "run.jsonl")
    for row in recorded:
        mine = {**rows[row["image"]], "seconds": 0}
        assert mine == {**row, "seconds": 0}


@pytest.mark.parametrize("cohort", [1, 2, 7])
def test_cohorts_change_nothing(cohort: int, images: Tensor, network: nn.Module) -> None:
    """Answers, certificates, dissent and passes of every image are those it has alone."""
    rules = [cm.JuryRecovery(), cm.JuryDetection(), cm.PatchCleanser(), cm.PatchCleanser(True), cm.MinorityReports(),
             cm.Published(), cm.Undefended()]  # fmt: skip
    covers = [cm.spread_cover(24, Patch(4, 4), 10, 2), COVER]
    defences = [MaskedDefence(cover, rule, f"{rule} {cover}") for rule in rules for cover in covers]
    classifier = Classifier(network, 24, batch=16, precision="fp32")
    labels = classifier(images).argmax(dim=1).tolist()

    def found(size: int) -> list[Any]:
        engine = Engine(classifier, covers, cohort=size)
        findings = examine(engine, images, labels, defences)
        return [(f.number, f.value, f.passes) for f in sorted(findings, key=lambda finding: finding.number)]

    assert found(cohort) == found(12)


@pytest.mark.parametrize("rule", [cm.JuryRecovery(), cm.JuryDetection(), cm.PatchCleanser(), cm.Published()], ids=str)
def test_an_explanation_says_who_voted_what(rule: cm.JuryRecovery, images: Tensor, network: nn.Module) -> None:
    """Its answer, passes and certificate are the defence's own; its claims follow from its votes."""
    shield = cm.Defence(network, COVER, rule, batch=16, precision="fp32")
    answer = shield(images)
    found = shield.explain(images)
    proof = shield.certify(images, answer.labels)
    for number, one in enumerate(found):
        assert (one.label, one.alert, one.passes) == (
            int(answer.labels[number]), bool(answer.alerts[number]), int(answer.passes[number]))  # fmt: skip
        assert one.certificate.holds == proof.certificates[number].holds
        assert len(one.votes) == len(COVER)
        assert len(one.claims) == len(one.hypotheses)
        for jury, claim in zip(one.hypotheses, one.claims, strict=True):
            if len(jury) == 1:
                assert claim == one.votes[jury[0]][0]
        beside = len(COVER) + (one.basis in ("unbeaten", "bare"))
        assert one.duels == (one.passes - beside if rule.guarantee is Guarantee.RECOVERY else 0)
        assert one.why().startswith("all " if len(set(one.claims)) == 1 else "of ")
    names = [f"thing {c}" for c in range(5)]
    assert any("thing" in one.why(names) for one in found) or all(len(set(one.claims)) == 1 for one in found)


def test_a_threat_survives_a_description() -> None:
    """And an unknown one is refused in one line."""
    patch = Patch(3, 5)
    assert cm.threat.threat_from(patch.describe()) == patch
    assert patch.boxes_on((8, 8)) == ((3, 5),)
    for wrong in ({"kind": "cloud"}, {"kind": "patch", "height": 3}, {"kind": "patch", "height": 3, "breadth": 5}, {}):
        with pytest.raises(cm.CertmaskError, match="expected"):
            cm.threat.threat_from(wrong)


def test_certificates_carry_their_threat(images: Tensor, network: nn.Module) -> None:
    shield = cm.Defence(network, COVER, batch=16, precision="fp32")
    certificate: Certificate = shield.certify(images[:1], torch.tensor([0])).certificates[0]
    assert certificate.threat == {"kind": "patch", "height": 4, "width": 4}
    assert certificate.image == (24, 24)
    assert "any 4×4 patch on a 24×24 input" in certificate.sentence
