"""PatchGuard on bands: every attack on small bands, agreement with the definition, margins, what it refuses."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
import reference_evidence as reference
import torch
from test_smoothing import BANDS, decided, touched_by, votes_of
from torch import Tensor

from certmask.certificate import NO_CLASS, Decision
from certmask.covers import Cover, band_cover, block_cover, minimal_cover
from certmask.errors import CertmaskError
from certmask.evidence import band_fields, touched
from certmask.evidence.maps import ONE
from certmask.passes import Ballot
from certmask.rules import BandMasking
from certmask.rules.band_masking import fields_of
from certmask.rules.rule import answer
from certmask.rules.smoothing import hidden_by
from certmask.votes import Votes, VoteStore

torch.set_num_threads(1)

CLEAN = torch.tensor([[4, 0, 0], [0, 0, 4], [1, 0, 3], [0, 0, 0]]).div(4)
"""Certain, unsure and silent bands."""
SHOWN = torch.cat([CLEAN, torch.tensor([[3, 0, 1], [2, 2, 0]]).div(4)])
"""What a patch may make bands say."""


def cells_of(views: set[int]) -> frozenset[tuple[int, int]]:
    return frozenset((0, view) for view in views)


def certifies(cover: Cover, views: Tensor, label: int, share: float) -> bool:
    """By the definition: no place beats the label, and in none are all bands silent that it does not touch."""
    places = [cells_of(views) for views in touched_by(cover)]
    table = {(0, view): [round(float(p) * ONE) for p in row] for view, row in enumerate(views)}
    boxes = reference.windows((1, max(map(len, places))), (1, len(views)), wraps=True)
    heard = all(any(any(table[cell]) for cell in set(table) - place) for place in places)
    sets = reference.largest(places)
    return heard and reference.masked_certifies(table, views.shape[1], label, sets, boxes, Fraction(str(share)), 0)


def proved(rule: BandMasking, cover: Cover, tables: Tensor, label: int) -> list[bool]:
    """Whether the rule certifies pictures ``[pictures, views, classes]``."""
    ballot = Ballot(cover)
    votes = Votes(ballot, VoteStore(len(tables), ballot.passes, tables.shape[2]))
    votes.store.add(votes.ask(ballot.singles[None]), tables.reshape(-1, tables.shape[2]))
    return list(map(bool, answer(rule.certifying(votes, np.full(len(tables), label)), votes)))


@pytest.mark.parametrize("cover", [*BANDS, band_cover(24, (5, 4), 6, 4), band_cover(224, 32, 19, 10)], ids=str)
def test_bands_are_the_cells_of_the_field(cover: Cover) -> None:
    """What a patch touches as evidence is what it touches as views, and the field is that of such bands."""
    fields = fields_of(cover)
    same = band_fields(cover.image, cover.image[1] - cover.mask[1], cover.align)
    for field, other in zip(fields, same, strict=True):
        assert (field.sees == other.sees).all()
        assert (field.size, field.stride, field.start, field.wraps) == (
            other.size, other.stride, other.start, other.wraps
        )  # fmt: skip
    rows, columns = touched(cover.patch, fields)
    assert rows.all()
    assert {tuple(row) for row in columns.tolist()} == {tuple(row) for row in (~hidden_by(cover)).tolist()}


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("label", [0, 2])
@pytest.mark.parametrize("cover", BANDS, ids=str)
def test_every_attack_on_masked_bands(cover: Cover, label: int, share: float) -> None:
    """Every table of four votes, every place, everything that a patch may make of the bands it touches."""
    rule = BandMasking(share)
    tables = CLEAN[torch.tensor(list(product(range(len(CLEAN)), repeat=len(cover))))]
    holds = proved(rule, cover, tables, label)
    certified = tables[torch.tensor(holds)]
    assert 4 < len(certified) < len(tables) / 2
    for place in {frozenset(views) for views in touched_by(cover)}:
        said = torch.tensor(list(product(range(len(SHOWN)), repeat=len(place))), dtype=torch.long)
        attacked = certified[:, None].repeat(1, len(said), 1, 1)
        attacked[:, :, sorted(place)] = SHOWN[said]
        assert set(decided(rule, cover, attacked.flatten(0, 1))) == {Decision(label)}, "a certificate is broken"
    some = Random(1).sample(range(len(tables)), min(len(tables), 150))
    assert [holds[i] for i in some] == [certifies(cover, tables[i], label, share) for i in some]


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_every_noise_within_the_margin_of_bands(share: float) -> None:
    """Every number that the patch does not touch moves by half the margin, up or down, beside every attack."""
    cover, margin = band_cover((1, 4), (1, 1), band=1), 0.125
    rows = torch.tensor([[2, 14], [4, 12], [5, 11], [6, 10]]).div(16)
    tables = rows[torch.tensor(list(product(range(len(rows)), repeat=4)))]
    careful, bold = (proved(BandMasking(share, m), cover, tables, 1) for m in (margin, 0.0))
    assert 10 < sum(careful) < sum(bold)
    noise = torch.tensor(list(product((-margin / 2, margin / 2), repeat=8))).reshape(-1, 4, 2)
    shown = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    lost = 0
    for clean in tables[torch.tensor(bold)]:
        moved = (clean + noise)[:, None].repeat(1, 4 * len(shown), 1, 1)
        for number, (place, said) in enumerate(product(range(4), shown)):
            moved[:, number, place] = said
        answers = set(decided(BandMasking(share), cover, moved.flatten(0, 1)))
        if proved(BandMasking(share, margin), cover, clean[None], 1) == [True]:
            assert answers == {Decision(1)}
        lost += answers != {Decision(1)}
    assert lost or share, "without a margin some would be lost, where the certificate is exact"


def test_the_margin_counts_every_band_that_is_not_touched() -> None:
    """Two of six bands touched: two sums over the other four, each number by half of the margin."""
    cover = band_cover((1, 6), (1, 1), band=2)
    assert BandMasking(margin=0.25).masking(cover).margin == 1.0
    assert BandMasking(margin=1.5 / ONE).masking(cover).margin == 0.0, "no number moves by less than a unit"
    assert BandMasking(margin=2 / ONE).masking(cover).margin == 8 / ONE


def test_pictures_are_judged_alike_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    cover, rule = BANDS[2], BandMasking()
    tables = CLEAN[torch.randint(4, (50, len(cover)), generator=torch.Generator().manual_seed(2))]
    whole = decided(rule, cover, tables), proved(rule, cover, tables, 0)
    monkeypatch.setattr("certmask.rules.band_masking.AT_ONCE", 7 * len(cover) * 3)
    assert (decided(rule, cover, tables), proved(rule, cover, tables, 0)) == whole


def test_silence_is_an_alert_and_no_proof() -> None:
    """Scores that are all 0 are nobody's, although the smallest class would win such a tie."""
    cover, rule = band_cover((1, 4), (1, 1), band=1), BandMasking()
    assert rule.decide(votes_of(cover, torch.zeros(4, 3))) == Decision(NO_CLASS, alert=True)
    assert not rule.certify(votes_of(cover, torch.zeros(4, 3)), 0).holds
    alone = torch.zeros(4, 3)
    alone[2, 0] = 1.0
    assert rule.decide(votes_of(cover, alone)) == Decision(0)
    assert not rule.certify(votes_of(cover, alone), 0).holds, "a patch there leaves nobody who has spoken"


def test_covers_and_shares_that_make_no_sense() -> None:
    with pytest.raises(CertmaskError, match="blocks would need windows in two dimensions"):
        BandMasking().check(block_cover(6, 2, 2))
    with pytest.raises(CertmaskError, match="expected a cover of bands"):
        BandMasking().check(minimal_cover(6, 2, 4))
    with pytest.raises(CertmaskError, match="expected more than 4 bands"):
        BandMasking().check(band_cover((1, 4), (1, 2), band=1))
    with pytest.raises(CertmaskError, match="expected a share of evidence from 0 to below 1"):
        BandMasking(1.0)
