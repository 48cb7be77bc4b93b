"""What every member must pass, whoever joins: rules, tilings, whole defences, data sources, backends."""

from __future__ import annotations

import json
from pathlib import Path

import members
import numpy as np
import pytest
import torch
from commands import certmask
from members import EVERY_COVER, EVERY_DEFENCE, EVERY_RULE, PROVED, fits
from torch import Tensor, nn

from certmask.backends import BACKENDS, Backend
from certmask.certificate import Decision, Guarantee
from certmask.classifier import Classifier
from certmask.covers import TILINGS, Cover, band_cover, cover_from, minimal_cover
from certmask.data import load_dataset
from certmask.data.sources import SOURCES, Source
from certmask.deployed import Defence
from certmask.errors import CertmaskError, ClassifierError
from certmask.rules import RULES, Rule
from certmask.rules.registry import REGISTER, rule_from
from certmask.threat import Patch
from certmask.votes import Votes


def test_nobody_is_forgotten() -> None:
    """Every member of a register has its entry, and nobody else has one."""
    assert {rule.name for rule in EVERY_RULE} == set(RULES)
    assert set(members.TILED) == set(TILINGS)
    assert set(members.WRITTEN) == {source.file for source in SOURCES}
    assert {type(rule) for _, rule in EVERY_DEFENCE} == set(RULES.values())


# ------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("rule", EVERY_RULE, ids=repr)
def test_every_rule_is_rebuilt_from_its_description(rule: Rule) -> None:
    again = rule_from(json.loads(json.dumps(rule.describe())))
    assert (type(again), again.describe()) == (type(rule), rule.describe())


@pytest.mark.parametrize("rule", EVERY_RULE, ids=repr)
def test_every_rule_answers_and_certifies_unanimity(rule: Rule) -> None:
    """Where all masks agree there is nothing to doubt; another class than theirs is never certified."""
    for cover in (cover for cover in EVERY_COVER if fits(rule, cover)):
        row = torch.tensor([0.1, 0.1, 0.8])
        votes = Votes.from_table(cover, row.expand(len(cover), 3), row.expand(len(cover), len(cover), 3))
        if rule.guarantee is not Guarantee.NONE:
            assert rule.decide(votes) == Decision(2)
            assert [rule.certify(votes, label).holds for label in range(3)] == [False, False, True]
            assert rule.guarantee.value in rule.certify(votes, 2).sentence


@pytest.mark.parametrize("rule", [rule for rule in EVERY_RULE if rule.guarantee in PROVED], ids=repr)
def test_every_proof_asks_for_a_lead_beyond_the_margin(rule: Rule) -> None:
    """0.7 against 0.3 is proved with a small margin and not with a large one."""
    covers, row = (minimal_cover((1, 3), Patch(1, 1), 1), band_cover((1, 5), Patch(1, 1), 1)), torch.tensor([0.3, 0.7])
    cover = next(cover for cover in covers if fits(rule, cover))
    votes = Votes.from_table(cover, row.expand(len(cover), 2), row.expand(len(cover), len(cover), 2))
    for margin, holds in ((0.1, True), (0.9, False)):
        careful = rule_from({**rule.describe(), "margin": margin})
        assert careful.certify(votes, 1).holds == holds


@pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)
def test_no_rule_takes_a_margin_that_is_none(kind: type[Rule]) -> None:
    for margin in (-0.1, float("nan"), float("inf"), "wide"):
        with pytest.raises(CertmaskError, match=r"expected a margin .*got"):
            kind(margin=margin)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- tilings


@pytest.mark.parametrize("cover", EVERY_COVER, ids=str)
def test_every_tiling_covers_and_is_rebuilt(cover: Cover) -> None:
    """Pixel by pixel: each location of the patch lies inside as many masks as the fold says, copies counted."""
    hidden = []
    for mask in cover.masks:
        picture = np.zeros(cover.image, dtype=bool)
        rows, columns = (np.arange(start, start + length) for start, length in
                         ((mask.top, mask.height), (mask.left, mask.width)))  # fmt: skip
        if not mask.wraps:
            rows, columns = (line[(line >= 0) & (line < size)] for line, size in
                             zip((rows, columns), cover.image, strict=True))  # fmt: skip
        picture[np.ix_(rows % cover.image[0], columns % cover.image[1])] = True
        hidden.append(picture)
    height, width = cover.patch.size
    windows = np.lib.stride_tricks.sliding_window_view(np.stack(hidden), (height, width), axis=(1, 2))
    inside = windows.all(axis=(3, 4))
    assert inside.shape[1:] == cover.patch.positions(cover.image)
    folds = (inside * np.array(cover.copies)[:, None, None]).sum(axis=0)
    assert folds.min() >= cover.fold[0] * cover.fold[1]
    assert cover_from(json.loads(json.dumps(cover.describe()))).masks == cover.masks


# ---------------------------------------------------------------------------------------------------- defences


@pytest.mark.parametrize(("cover", "rule"), EVERY_DEFENCE, ids=str)
def test_what_a_defence_proves_it_answers(cover: Cover, rule: Rule, network: nn.Module, images: Tensor) -> None:
    """Alone or in company; a certified clean picture gets its label, and an alert only where detection is promised."""
    shield = Defence(network, cover, rule, batch=16, precision="fp32")
    answer = shield(images[:3])
    assert torch.equal(shield(images[1:2]).labels, answer.labels[1:2])
    proof = shield.certify(images[:3], answer.labels)
    for label, alert, certificate in zip(answer.labels, answer.alerts, proof.certificates, strict=True):
        assert certificate.guarantee is rule.guarantee
        assert certificate.label == int(label)
        assert not (certificate.holds and alert) or rule.guarantee is Guarantee.DETECTION


OF_PAIRS = ("pair-detection",)
"""Rules that ask for an even number of patches."""


def test_every_rule_of_the_register_runs_by_its_name(little_model: Path, tmp_path: Path) -> None:
    """One run with all of them, and a line of the table for each."""
    for number, told in enumerate((["--mask", "18"], ["--patches", "2", "--patch", "4", "--levels", "3"])):
        names = [row.option for row in REGISTER if (row.option in OF_PAIRS) == bool(number)]
        rules = [word for name in names for word in ("--rule", name)]
        out = tmp_path / f"run{number}.jsonl"
        certmask("certify", "demo-cifar10", "--model", little_model, "--images", "2", *told, *rules, "--out", out)
        (run,) = json.loads(certmask("table", out, "--json").stdout)
        assert [line["defence"] for line in run["lines"]] == names


@pytest.mark.parametrize("tiling", TILINGS)
def test_every_tiling_runs_by_its_name(tiling: str) -> None:
    figures = json.loads(certmask("plan", "--image", "24", "--patch", "4", "--tiling", tiling, "--json").stdout)
    assert figures["min_fold"] >= 1


# --------------------------------------------------------------------------------------------- sources, backends


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.file)
def test_every_source_gives_labelled_photos(source: Source, tmp_path: Path) -> None:
    """The same ones each time; photos of the model's size with values in [0, 1]."""
    name = members.WRITTEN[source.file](tmp_path)
    classes = [(str(number),) for number in range(10 if source.file in ("cifar10", "demo") else 2)]
    first, again = (load_dataset(name, classes, 1.0) for _ in range(2))
    assert len(first) >= 2
    assert len({sample.label for sample in first.samples}) >= 2
    assert first.describe() == again.describe()
    tensor = first.tensor(1, (24, 20))
    assert tensor.shape == (3, 24, 20)
    assert 0 <= tensor.min() < tensor.max() <= 1


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_backend_computes_the_network(
    backend: Backend, precision: str, network: nn.Module, images: Tensor
) -> None:
    """The network's own probabilities up to rounding, the same ones in any company; or the precision is refused."""
    if precision not in backend.precisions:
        with pytest.raises(ClassifierError, match=f"expected precision .* got '{precision}'"):
            Classifier(network, 24, batch=8, precision=precision, backend=backend.name)
        return
    classifier = Classifier(network, 24, batch=8, precision=precision, backend=backend.name)
    found = classifier(images)
    torch.testing.assert_close(found, network(images).softmax(dim=1), atol=0.05, rtol=0)
    assert torch.equal(classifier(images.flip(0)), found.flip(0))
