"""What the proofs take for granted: no patch moves its own jury, no pass or pair is left out, no picture is another."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_network
from looking import outputs_under, singles_of
from members import COUNTING, RECOVERING
from PIL import Image
from torch import Tensor, nn

from certmask.attacks.certified_run import certified_photos
from certmask.classifier import Classifier
from certmask.covers import Cover, minimal_cover, offset_cover, patchcleanser_cover, spread_cover
from certmask.data import Dataset, Framing, Sample, pixel_digest
from certmask.engine import Engine
from certmask.errors import CoverError, ResultsError
from certmask.geometry import IntArray
from certmask.results.run import Run
from certmask.rules import Rule
from certmask.threat import Patch, Size
from certmask.votes import Votes

SIZE = 14
PATCH = Patch(4, 3)
COVERS = (
    spread_cover(SIZE, PATCH, (8, 7), 2),
    offset_cover(SIZE, PATCH, (9, 7), (1, 2)),
    patchcleanser_cover(SIZE, PATCH, 3),
)


def places(cover: Cover) -> list[Size]:
    """Every location of the patch."""
    rows, columns = cover.patch.positions(cover.image)
    return list(product(range(rows), range(columns)))


def jury_of(cover: Cover, location: Size) -> tuple[int, ...]:
    """The masks of which the library says that they cover a location."""
    return tuple(i for i, mask in enumerate(cover.masks) if mask.covers(location, cover.patch, cover.image))


def passes_with(jury: tuple[int, ...], masks: int) -> IntArray:
    """Every pass in which a member of the jury takes part, alone or with any other mask."""
    return np.array(sorted({(min(i, j), max(i, j)) for i in jury for j in range(masks)}), dtype=np.int64)


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_no_patch_anywhere_moves_a_vote_of_its_jury(cover: Cover) -> None:
    """Every location, every pass with a member of its jury, bit for bit, whatever else is in the batch."""
    chance = torch.Generator().manual_seed(0)
    clean = torch.rand(1, 3, SIZE, SIZE, generator=chance)
    locations = places(cover)
    attacked = clean.repeat(len(locations), 1, 1, 1)
    for picture, (y, x) in zip(attacked, locations, strict=True):
        picture[:, y : y + PATCH.height, x : x + PATCH.width] = torch.rand(3, *PATCH.size, generator=chance).round()
    juries = [jury_of(cover, location) for location in locations]
    assert set(juries) == {cover.districts.jury(district) for district in range(len(cover.districts))}
    engine = Engine(Classifier(tiny_network(size=SIZE), SIZE, batch=64, precision="fp32"), [cover])
    everything = passes_with(tuple(range(len(cover))), len(cover))
    (before,) = outputs_under(engine, cover, clean, [everything])
    row = {(i, j): number for number, (i, j) in enumerate(everything.tolist())}
    passes = [passes_with(jury, len(cover)) for jury in juries]
    for location, asked, after in zip(locations, passes, outputs_under(engine, cover, attacked, passes), strict=True):
        assert torch.equal(after, before[[row[i, j] for i, j in asked.tolist()]]), location


def test_defences_that_share_a_run_read_their_own_masks() -> None:
    """With several covers in one engine every rule sees the votes that it sees alone."""
    classifier = Classifier(tiny_network(size=SIZE), SIZE, batch=64, precision="fp32")
    image = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    together = Engine(classifier, COVERS)
    for cover in COVERS:
        (seen,) = outputs_under(together, cover, image, [singles_of(cover)])
        (alone,) = outputs_under(Engine(classifier, [cover]), cover, image, [singles_of(cover)])
        assert torch.equal(seen, alone), str(cover)


def test_every_pass_travels_in_a_batch_of_one_shape() -> None:
    """Also the last ones, for which no company is left: another shape may be rounded differently."""
    sizes: set[int] = set()

    class Counting(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            sizes.add(len(batch))
            return batch.mean(dim=(2, 3))

    cover = COVERS[2]
    engine = Engine(Classifier(Counting(), SIZE, batch=7, precision="fp32"), [cover])
    sizes.clear()
    assert len(cover) % 7
    outputs_under(engine, cover, torch.rand(1, 3, SIZE, SIZE), [singles_of(cover)])
    assert sizes == {7}


@pytest.mark.parametrize("rule", [rule for rule in RECOVERING if rule not in COUNTING], ids=repr)
def test_one_wrong_pair_anywhere_voids_a_certificate(rule: Rule) -> None:
    """190 pairs, each wrong in turn and all else right: whichever it is, and however late it is looked at."""
    cover, right, wrong = minimal_cover((1, 20), Patch(1, 1), 1), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    singles, doubles = right.expand(20, 2), right.expand(20, 20, 2)
    assert rule.certify(Votes.from_table(cover, singles, doubles), 1).holds
    for i, j in combinations(range(20), 2):
        table = doubles.clone()
        table[i, j] = table[j, i] = wrong
        assert not rule.certify(Votes.from_table(cover, singles, table), 1).holds, (i, j)


@pytest.mark.parametrize("cover", [COVERS[0], minimal_cover(9, Patch(2, 3), 5, 2)], ids=str)
def test_a_grid_is_complete_or_refused(cover: Cover) -> None:
    """Aligned pairs need every grid to cover every location; a mask is left out of each grid in turn."""
    juries = [jury_of(cover, location) for location in places(cover)]
    refused = 0
    for grid, missing in ((whole, mask) for whole in cover.grids for mask in whole):
        rest = tuple(mask for mask in grid if mask != missing)
        if all(set(jury) & set(rest) for jury in juries):
            assert replace(cover, grids=(rest,)).grids == (rest,)
        else:
            refused += 1
            with pytest.raises(CoverError, match="got one with a hole"):
                replace(cover, grids=(rest,))
    assert refused > 4


def test_only_the_certified_pixels_are_attacked() -> None:
    """A photo of the same name, label and size that differs in one value is refused."""
    photo = Image.new("RGB", (8, 8), (10, 20, 30))
    dataset = Dataset("data", (Sample("a.png", 3, lambda: photo),), framing=Framing(1.0))
    row = {"image": "a.png", "label": 3, "input_sha256": pixel_digest(dataset.tensor(0, (8, 8)))}
    run = Run("run", Path("run.jsonl"), "", {"data": {"crop": 1.0}}, (row,))
    assert list(certified_photos(run, dataset, {"a.png"}, (8, 8))) == ["a.png"]
    photo.putpixel((3, 4), (10, 20, 31))
    with pytest.raises(ResultsError, match=r"got one with other pixels"):
        certified_photos(run, dataset, {"a.png"}, (8, 8))
