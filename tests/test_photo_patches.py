"""A patch that is put on a 32×32 photo before it is enlarged: what it reaches in the input, by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from certmask.data import Framing
from certmask.experiments import EXPERIMENTS
from certmask.experiments.experiment import PAPER_SIDE, PHOTO, LabelledPatch
from certmask.experiments.paper_tables import IN_THE_PHOTO, PATCHES
from certmask.zoo.models import framing_of

Pixels = npt.NDArray[Any]
FRAMING = framing_of("resnet26-cifar10")
(SIDE, _), INPUT = PHOTO, (PAPER_SIDE, PAPER_SIDE)
ON_CIFAR = IN_THE_PHOTO["cifar10"]


def shown(photo: Pixels) -> Pixels:
    """What the model is shown of a photo of 8 bits."""
    return np.asarray(FRAMING(Image.fromarray(photo), INPUT))


def moved(photo: Pixels, other: Pixels) -> Pixels:
    """Which pixels of the input differ, ``[224, 224]``."""
    return np.asarray((shown(photo) != shown(other)).any(axis=2))


def box(pixels: Pixels) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of those that are true, ends excluded."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def reaches(pixels: int, length: int) -> list[int]:
    """How far so many neighbouring pixels of a line of a photo reach in the enlarged line, by where they begin.

    What counts is whether a resampling weight is zero, before anything is rounded.
    """
    lines = (Image.fromarray(line[None]) for line in np.eye(SIDE, dtype=np.float32))
    enlarged = [np.asarray(line.resize((length, 1), Image.Resampling.BICUBIC))[0] for line in lines]
    counts = np.stack(enlarged, axis=1) != 0
    found = (np.flatnonzero(counts[:, start : start + pixels].any(axis=1)) for start in range(SIDE - pixels + 1))
    return [int(reached[-1] - reached[0] + 1) for reached in found]


def test_photos_of_cifar_are_enlarged_whole() -> None:
    assert (FRAMING.crop, FRAMING.resampling) == (1.0, "bicubic")
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(FRAMING(Image.fromarray(noise), PHOTO)), noise)
    assert shown(noise).shape == (*INPUT, 3)


@pytest.mark.parametrize("patch", ON_CIFAR, ids=lambda patch: patch.label)
def test_the_reach_is_that_of_the_weights_and_no_smaller(patch: LabelledPatch) -> None:
    """Both axes are enlarged one after the other with the same weights, so that a line says it all."""
    assert patch.photo is not None
    spans = reaches(patch.photo, PAPER_SIDE)
    assert max(spans) == patch.side == patch.on(INPUT).height
    assert spans.index(patch.side) == 2, "at the border less is reached"


@pytest.mark.parametrize("patch", ON_CIFAR, ids=lambda patch: patch.label)
@pytest.mark.parametrize("factor", range(1, 13))
def test_other_inputs_are_known_only_where_the_declared_side_covers_the_reach(
    patch: LabelledPatch, factor: int
) -> None:
    assert patch.photo is not None
    length = factor * SIDE
    if patch.known_on((length, length), FRAMING):
        assert max(reaches(patch.photo, length)) <= patch.on((length, length)).height
    assert patch.known_on((length, length), FRAMING) is (factor <= 7)


@pytest.mark.parametrize("patch", ON_CIFAR, ids=lambda patch: patch.label)
def test_no_content_at_any_place_reaches_farther(patch: LabelledPatch) -> None:
    """Every place: the whole patch to extremes and to noise, on noise and on plain greys; channels are apart."""
    assert patch.photo is not None
    chance, most = np.random.default_rng(0), 0
    noise = chance.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
    for photo in (noise, np.zeros_like(noise), np.full_like(noise, 255)):
        clean = shown(photo)
        for top, left in np.ndindex(SIDE - patch.photo + 1, SIDE - patch.photo + 1):
            changed = np.zeros(INPUT, dtype=bool)
            for fill in (0, 255, chance.integers(0, 256, (patch.photo, patch.photo))):
                other = photo.copy()
                other[top : top + patch.photo, left : left + patch.photo] = fill
                changed |= shown(other) != clean
            low, high, begin, end = box(changed)
            most = max(most, high - low, end - begin)
    assert most == patch.side


@pytest.mark.parametrize("patch", ON_CIFAR, ids=lambda patch: patch.label)
def test_single_pixels_reach_no_farther_than_the_patch_they_are_of(patch: LabelledPatch) -> None:
    """In the middle, at a border and in corners: one pixel after another, black and white."""
    assert patch.photo is not None
    photo = np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    last = SIDE - patch.photo
    for top, left in ((0, 0), (0, last), (last, 3), (13, 14), (last, last)):
        changed = np.zeros(INPUT, dtype=bool)
        for row, column in np.ndindex(patch.photo, patch.photo):
            for fill in (0, 255):
                other = photo.copy()
                other[top + row, left + column] = fill
                changed |= moved(photo, other)
        low, high, begin, end = box(changed)
        assert max(high - low, end - begin) <= patch.side


def test_a_network_that_takes_the_photo_as_it_is_meets_the_patch_itself() -> None:
    assert [patch.on(PHOTO).size for patch in ON_CIFAR] == [(2, 2), (5, 5)]
    assert [patch.on(PHOTO) for patch in ON_CIFAR] == [PATCHES[label].on(PHOTO) for label in ("0.4 %", "2.4 %")]
    assert [patch.number for patch in ON_CIFAR] == ["2", "5"]


@pytest.mark.parametrize(
    ("image", "framing", "known"),
    [
        (PHOTO, FRAMING, True),
        (INPUT, FRAMING, True),
        ((64, 64), FRAMING, True),
        ((192, 192), FRAMING, True),
        ((200, 200), FRAMING, False),
        ((16, 16), FRAMING, False),
        (INPUT, Framing(0.875), False),
        (PHOTO, Framing(0.875), False),
        (INPUT, Framing(1.0, "lanczos"), False),
        ((384, 384), FRAMING, False),
        ((224, 32), FRAMING, False),
    ],
)
def test_other_inputs_are_not_guessed_at(image: tuple[int, int], framing: Framing, known: bool) -> None:
    for patch in EXPERIMENTS["table1-photo"].every_patch:
        assert patch.known_on(image, framing) is known
    assert PATCHES["2 %"].known_on(image, framing)
