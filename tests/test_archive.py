"""Votes that are kept: another rule, aggregate or margin is judged on them without a single pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DEVICES, tiny_network
from torch import Tensor, nn

from certmask.classifier import Classifier
from certmask.covers import Cover, patchcleanser_cover, spread_cover
from certmask.data import pixel_digest
from certmask.defences import MaskedDefence, Outcome, examine
from certmask.engine import Engine
from certmask.engine.archive import KeptVotes
from certmask.errors import VoteError
from certmask.geometry import IntArray
from certmask.passes import Passes
from certmask.rules import JuryDetection, JuryRecovery, LabelMajority, PatchCleanser, Published, Rule
from certmask.threat import Patch
from certmask.votes import as_votes

SINGLE, DOUBLE = patchcleanser_cover(24, Patch(4, 4), 4), spread_cover(24, Patch(4, 4), 10, 2)


def engine_of(covers: Sequence[Cover], fill: float = 0.5, cohort: int = 1, seed: int = 0) -> Engine:
    classifier = Classifier(tiny_network(seed=seed), 24, batch=16, precision="fp32")
    return Engine(classifier, covers, fill=(fill, fill, fill), cohort=cohort)


def judged(
    engine: Engine, images: Tensor, cover: Cover, rules: Sequence[Rule], folder: Path | None
) -> tuple[list[list[Outcome]], int]:
    """What the rules find, and how many passes were made for it."""
    archive = None if folder is None else KeptVotes(folder, engine, [pixel_digest(image) for image in images])
    labels = engine.classifier(images).argmax(dim=1).tolist()
    findings = sorted(
        examine(engine, images, labels, [MaskedDefence(cover, rule) for rule in rules], archive),
        key=lambda finding: finding.number,
    )
    return [finding.value for finding in findings], sum(finding.passes for finding in findings)


@pytest.mark.parametrize("cohort", [1, 5])
def test_other_rules_are_judged_without_a_pass(cohort: int, images: Tensor, tmp_path: Path) -> None:
    """A different aggregate, margin or rule on the same votes: the same findings as live, and nothing is computed."""
    engine = engine_of([SINGLE], cohort=cohort)
    _, made = judged(engine, images, SINGLE, [PatchCleanser(), PatchCleanser(True), JuryRecovery()], tmp_path)
    assert made > 0
    for rule in (PatchCleanser(margin=0.01), JuryDetection(LabelMajority()), Published(), JuryRecovery(margin=0.5)):
        kept, again = judged(engine_of([SINGLE], cohort=cohort), images, SINGLE, [rule], tmp_path)
        live, _ = judged(engine_of([SINGLE]), images, SINGLE, [rule], None)
        assert kept == live
        assert again == 0


def test_votes_are_found_by_the_pixels_of_masks(images: Tensor, tmp_path: Path) -> None:
    """Another cover, numbered otherwise: what it shares is taken, the rest is computed and kept beside it."""
    _, first = judged(engine_of([SINGLE]), images, SINGLE, [PatchCleanser()], tmp_path)
    both = engine_of([DOUBLE, SINGLE], cohort=3)
    kept, more = judged(both, images, DOUBLE, [JuryDetection()], tmp_path)
    live, alone = judged(engine_of([DOUBLE]), images, DOUBLE, [JuryDetection()], None)
    shared = {m.footprint((24, 24)) for m in DOUBLE.masks} & {m.footprint((24, 24)) for m in SINGLE.masks}
    assert kept == live
    assert more == alone - len(shared) * len(images)
    for cover, rule in ((SINGLE, PatchCleanser()), (DOUBLE, JuryDetection())):
        _, again = judged(engine_of([cover]), images, cover, [rule], tmp_path)
        assert again == 0
    assert first > 0


def test_votes_of_another_function_or_picture_are_not_taken(images: Tensor, tmp_path: Path) -> None:
    """Other weights, another fill, other pixels: computed anew, and kept in files of their own."""
    _, made = judged(engine_of([SINGLE]), images[:4], SINGLE, [JuryDetection()], tmp_path)
    for engine in (engine_of([SINGLE], seed=1), engine_of([SINGLE], fill=0.25)):
        kept, again = judged(engine, images[:4], SINGLE, [JuryDetection()], tmp_path)
        assert again == made
        assert kept == judged(engine, images[:4], SINGLE, [JuryDetection()], None)[0]
    _, others = judged(engine_of([SINGLE]), images[4:8], SINGLE, [JuryDetection()], tmp_path)
    assert others == made
    assert len(list(tmp_path.iterdir())) == 4 * 4


def test_a_spoilt_file_is_told_and_nothing_half_written_stays(images: Tensor, tmp_path: Path) -> None:
    judged(engine_of([SINGLE]), images[:1], SINGLE, [JuryDetection()], tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"no votes", whole[:-5]):
        file.write_bytes(content)
        with pytest.raises(VoteError, match="delete it to have them made again"):
            judged(engine_of([SINGLE]), images[:1], SINGLE, [JuryDetection()], tmp_path)
    with pytest.raises(VoteError, match="expected a folder for votes"):
        KeptVotes(file / "inside", engine_of([SINGLE]), [])


def test_what_is_kept_is_what_was_said(images: Tensor, tmp_path: Path) -> None:
    """Bit for bit, by set of masks."""
    engine = engine_of([SINGLE])
    judged(engine, images[:2], SINGLE, [PatchCleanser()], tmp_path)
    archive = KeptVotes(tmp_path, engine, [pixel_digest(image) for image in images[:2]])
    passes, probabilities = archive.recall(1, engine.passes)
    sets = engine.passes.sets(passes)
    for masks, row in zip(sets.tolist(), probabilities, strict=True):
        picture = images[1].clone()
        for mask in (m for m in masks if m >= 0):
            m = SINGLE.masks[mask]
            picture[:, max(m.top, 0) : m.top + m.height, max(m.left, 0) : m.left + m.width] = 0.5
        assert torch.equal(as_votes(engine.classifier(picture[None]))[0], row)
    assert np.unique(passes).size == len(passes) > len(SINGLE)


class Scaled(nn.Module):
    """The layers of every such network are printed and hashed alike; what it says is not."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.network, self.factor = tiny_network(), factor

    def forward(self, batch: Tensor) -> Tensor:
        return self.factor * self.network(batch)  # type: ignore[no-any-return]


def test_a_network_that_only_looks_the_same_has_votes_of_its_own(images: Tensor, tmp_path: Path) -> None:
    """No hash of weights sees it: what the network says about fixed pictures does."""
    made = []
    for factor in (1.0, -1.0):
        engine = Engine(Classifier(Scaled(factor), 24, batch=16, precision="fp32"), [SINGLE])
        kept, passes = judged(engine, images[:3], SINGLE, [JuryDetection()], tmp_path)
        made.append(passes)
        assert kept == judged(engine, images[:3], SINGLE, [JuryDetection()], None)[0]
    assert made[0] == made[1] > 0


def test_a_callable_without_weights_is_refused(tmp_path: Path) -> None:
    engine = Engine(Classifier(lambda batch: batch.mean(dim=(2, 3)), 24, batch=4), [SINGLE])
    with pytest.raises(VoteError, match="expected a model whose weights can be hashed"):
        KeptVotes(tmp_path, engine, [])


def test_nothing_is_kept_once_the_batch_was_halved(images: Tensor, tmp_path: Path) -> None:
    """Then some votes were cast by another function than the name of the file says."""
    engine = engine_of([SINGLE])
    archive = KeptVotes(tmp_path, engine, [pixel_digest(image) for image in images])
    engine.forward.halve()
    list(examine(engine, images[:2], None, [MaskedDefence(SINGLE, JuryDetection())], archive))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cohort", [1, 4])
def test_recalled_votes_stay_as_they_are_while_others_come(device: str, cohort: int) -> None:
    """Also on a GPU, where votes that were recalled and votes that are computed are written by two streams."""
    classifier = Classifier(tiny_network(), 24, batch=8, precision="fp32", device=device)
    engine = Engine(classifier, [DOUBLE], cohort=cohort)

    class Marked:
        """Recalls, of every picture, the same known votes."""

        def recall(self, number: int, passes: Passes) -> tuple[IntArray, Tensor]:
            row = torch.eye(5)[number % 5]
            return passes.numbers(np.arange(len(DOUBLE) // 2)[:, None]), row.expand(len(DOUBLE) // 2, -1)

        def keep(self, number: int, passes: Passes, made: IntArray, probabilities: Tensor) -> None:
            known = np.isin(made, passes.numbers(np.arange(len(DOUBLE) // 2)[:, None]))
            stayed.append(bool((probabilities.cpu()[torch.from_numpy(known)] == torch.eye(5)[number % 5]).all()))

    stayed: list[bool] = []
    pictures = torch.rand(60, 3, 24, 24, generator=torch.Generator().manual_seed(2))
    list(examine(engine, pictures, None, [MaskedDefence(DOUBLE, JuryRecovery())], Marked()))
    assert stayed == [True] * 60
