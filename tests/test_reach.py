"""What a patch in the stored photo reaches, by brute force: photos are changed, and Pillow says what moves."""

from __future__ import annotations

from fractions import Fraction
from io import BytesIO
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from certmask.data import Framing, read_photo
from certmask.data.framing import RESAMPLINGS
from certmask.data.reach import (
    BLOCKS,
    PIXELS,
    Stored,
    largest_reach,
    largest_side,
    share_of,
    shared_patch,
    stored,
    touched,
)
from certmask.errors import DataError
from certmask.experiments.experiment import PAPER_SIDE, PHOTO
from certmask.experiments.paper_tables import IN_THE_PHOTO
from certmask.threat import Box, Patch, Size

Array = npt.NDArray[Any]

FRAMINGS = [
    Framing(crop, resampling, squash)
    for resampling, crop, squash in product(RESAMPLINGS, (1.0, 0.875, 0.6), (False, True))
] + [Framing(resampling=resampling, resized=pixels) for resampling in RESAMPLINGS for pixels in (17, (16, 19))]
PHOTOS: tuple[Size, ...] = ((5, 5), (9, 13), (16, 12), (23, 31), (12, 41))
IMAGES: tuple[Size, ...] = ((12, 12), (7, 10), (16, 16))
ORIENTATIONS = range(1, 9)


def box_of(pixels: Array) -> Box | None:
    """The smallest box of those that are true."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return (int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1) if rows.size else None


def inside(inner: Box | None, outer: Box | None) -> bool:
    if inner is None:
        return True
    return outer is not None and all(
        outer[axis] <= inner[axis] and inner[axis + 1] <= outer[axis + 1] for axis in (0, 2)
    )


def weighed(photo: Size, framing: Framing, image: Size, where: Any) -> Array:
    """Which pixels of the input have a weight for some of the photo, before anything is rounded or clipped."""
    marked = np.zeros(photo, dtype=np.float32)
    marked[where] = 1
    return np.asarray(np.asarray(framing(Image.fromarray(marked), image)) != 0)


def lines(photo: Size, framing: Framing, image: Size) -> tuple[Array, Array]:
    """The same for each row of a photo and for each of its columns, ``[line of the photo, line of the input]``."""
    rows = [weighed(photo, framing, image, np.s_[row]).any(axis=1) for row in range(photo[0])]
    columns = [weighed(photo, framing, image, np.s_[:, column]).any(axis=0) for column in range(photo[1])]
    return np.stack(rows), np.stack(columns)


@pytest.mark.parametrize("framing", FRAMINGS, ids=str)
def test_a_box_is_never_too_small_and_hardly_too_large(framing: Framing) -> None:
    """Every run of pixels of both axes of photos that are enlarged, reduced, both at once, or left as they are.

    One pixel too large at each end, where a weight is 0; a single pixel has such weights at whole distances from it.
    """
    for photo, image in product(PHOTOS, IMAGES):
        for axis, moved in enumerate(lines(photo, framing, image)):
            for start, stop in combinations(range(len(moved) + 1), 2):
                box = (start, stop, 0, photo[1]) if axis == 0 else (0, photo[0], start, stop)
                found, reached = (
                    touched(Stored(*photo), framing, image, box),
                    np.flatnonzero(moved[start:stop].any(axis=0)),
                )
                low, high = found[2 * axis : 2 * axis + 2] if found else (0, 0)
                spare = 1 if stop - start > 1 else 3
                if reached.size:
                    assert 0 <= reached[0] - low <= spare, (photo, image, box)
                    assert 0 <= high - 1 - reached[-1] <= spare, (photo, image, box)
                else:
                    assert high - low <= 1, (photo, image, box)


@pytest.mark.parametrize("resampling", RESAMPLINGS)
def test_every_pixel_of_large_photos_is_read_within_the_bounds(resampling: str) -> None:
    """Single pixels, at sizes that cameras have and on inputs that networks have: along a line of the photo."""
    chance = np.random.default_rng(0)
    for length in (255, 256, 333, 500, 1000, 2448):
        photo, framing, image = Stored(16, length), Framing(1.0, resampling, squash=True), (16, 224)
        for pixel in map(int, chance.integers(0, length, 40)):
            moved = weighed((16, length), framing, image, np.s_[:, pixel])
            assert inside(box_of(moved), touched(photo, framing, image, (0, 16, pixel, pixel + 1)))


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(sorted(RESAMPLINGS)),
    st.floats(0.3, 1.0),
    st.booleans(),
    st.sampled_from(ORIENTATIONS),
    st.data(),
)
def test_photos_in_eight_bits(
    photo: Size, image: Size, resampling: str, crop: float, squash: bool, orientation: int, data: st.DataObject
) -> None:
    """Any patch in a photo of noise, black or white, turned as EXIF says, moves nothing outside its box."""
    top, left = (data.draw(st.integers(0, side - 1)) for side in photo)
    bottom, right = data.draw(st.integers(top + 1, photo[0])), data.draw(st.integers(left + 1, photo[1]))
    framing, whole = Framing(crop, resampling, squash), Stored(*photo, orientation)
    found = touched(whole, framing, image, (top, bottom, left, right))
    chance = np.random.default_rng(data.draw(st.integers(0, 99)))
    for background in (chance.integers(0, 256, photo), np.zeros(photo), np.full(photo, 255)):
        clean = background.astype(np.uint8)
        for fill in (0, 255, chance.integers(0, 256, (bottom - top, right - left))):
            other = clean.copy()
            other[top:bottom, left:right] = fill
            shown = [np.asarray(framing(upright(pixels, orientation), image)) for pixels in (clean, other)]
            assert inside(box_of((shown[0] != shown[1]).any(axis=2)), found)
    reach = largest_reach(whole, framing, image, (bottom - top, right - left))
    if found is not None:
        assert found[1] - found[0] <= reach.size[0]
        assert found[3] - found[2] <= reach.size[1]


def upright(pixels: Array, orientation: int, format: str = "PNG") -> Image.Image:
    """A file with this EXIF tag, as ``read_photo`` gives it."""
    return read_photo(file_of(Image.fromarray(pixels), orientation, format), "photo")


def file_of(photo: Image.Image, orientation: int, format: str = "PNG", **options: Any) -> BytesIO:
    exif, file = Image.Exif(), BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    photo.save(file, format, exif=exif, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("framing", [Framing(1.0), Framing(0.7, "nearest"), Framing(0.8, "lanczos", True)], ids=str)
def test_the_box_turns_with_the_photo(orientation: int, framing: Framing) -> None:
    """Every 2×2 pixels of a photo that is no square, not rounded: Pillow turns a TIFF as it loads."""
    size, image = (11, 14), (9, 12)
    for top, left in np.ndindex(10, 13):
        marked = np.zeros(size, dtype=np.float32)
        marked[top : top + 2, left : left + 2] = 1
        turned = ImageOps.exif_transpose(Image.open(file_of(Image.fromarray(marked), orientation, "TIFF")))
        reached = box_of(np.asarray(framing(turned, image)) != 0)
        found = touched(Stored(*size, orientation), framing, image, (top, top + 2, left, left + 2))
        assert inside(reached, found)
        if reached is not None and found is not None:
            assert max(abs(a - b) for a, b in zip(reached, found, strict=True)) <= 1


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("framing", [Framing(0.875), Framing(0.6, "lanczos"), Framing(0.9, "nearest", True)], ids=str)
@pytest.mark.parametrize("blocks", [PIXELS, *BLOCKS.values()], ids=str)
def test_the_largest_reach_is_that_of_the_worst_place(orientation: int, framing: Framing, blocks: Any) -> None:
    photo, image = Stored(19, 27, orientation, blocks), (10, 12)
    for patch in ((1, 1), (5, 9), (19, 2), (19, 27)):
        sizes = {}
        for top, left in np.ndindex(photo.height - patch[0] + 1, photo.width - patch[1] + 1):
            found = touched(photo, framing, image, (top, top + patch[0], left, left + patch[1]))
            sizes[top, left] = (found[1] - found[0], found[3] - found[2]) if found else (0, 0)
        reach = largest_reach(photo, framing, image, patch)
        assert reach.size == (max(height for height, _ in sizes.values()), max(width for _, width in sizes.values()))
        assert sizes[reach.corner] == reach.size


@pytest.mark.parametrize("patch", IN_THE_PHOTO["cifar10"], ids=lambda patch: patch.label)
def test_it_is_what_was_counted_on_photos_of_cifar(patch: Any) -> None:
    side = largest_reach(Stored(*PHOTO), Framing(1.0), (PAPER_SIDE, PAPER_SIDE), (patch.photo, patch.photo)).size
    assert side == (patch.side + 1, patch.side + 1), "one pixel has the weight 0, where the two centres are 2 apart"


SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def compressed(photo: Array, orientation: int = 1, **options: Any) -> Image.Image:
    return read_photo(file_of(Image.fromarray(photo), orientation, "JPEG", **options), "photo")


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_jpeg_carries_a_change_no_farther_than_its_blocks(sampling: str, quality: int, tmp_path: Path) -> None:
    """Random boxes of photos of odd sizes to noise and to extremes; the photo as decoded, without any resizing."""
    chance, reached = np.random.default_rng(quality), 0
    for size in ((41, 57), (64, 48), (17, 90)):
        for _ in range(60):
            top, left = (int(chance.integers(0, side)) for side in size)
            height, width = (int(chance.integers(1, min(12, most) + 1)) for most in (size[0] - top, size[1] - left))
            clean = chance.integers(0, 256, (*size, 3), dtype=np.uint8)
            other = clean.copy()
            other[top : top + height, left : left + width] = chance.choice([0, 255], 3)
            options: dict[str, Any] = {"quality": quality, "subsampling": sampling}
            file = tmp_path / "photo.jpg"
            file.write_bytes(file_of(Image.fromarray(clean), 1, "JPEG", **options).getvalue())
            photo = stored(file, before_jpeg=True)
            assert photo == Stored(*size, 1, BLOCKS[SUBSAMPLINGS[sampling]])
            moved = (np.asarray(compressed(clean, **options)) != np.asarray(compressed(other, **options))).any(axis=2)
            found = touched(photo, Framing(1.0), size, (top, top + height, left, left + width))
            assert inside(box_of(moved), found)
            reached += box_of(moved) == found
    assert reached > 30, "the box is the smallest one"


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_a_patch_before_jpeg_is_turned_and_resized_with_its_blocks(orientation: int, sampling: str) -> None:
    chance, size, image = np.random.default_rng(orientation), (53, 70), (40, 44)
    photo, framing = Stored(*size, orientation, BLOCKS[SUBSAMPLINGS[sampling]]), Framing(0.9)
    for _ in range(25):
        top, left = (int(chance.integers(0, side - 6)) for side in size)
        clean = chance.integers(0, 256, (*size, 3), dtype=np.uint8)
        other = clean.copy()
        other[top : top + 6, left : left + 4] = chance.choice([0, 255], 3)
        shown = [
            np.asarray(framing(compressed(p, orientation, quality=90, subsampling=sampling), image))
            for p in (clean, other)
        ]
        moved = box_of((shown[0] != shown[1]).any(axis=2))
        assert inside(moved, touched(photo, framing, image, (top, top + 6, left, left + 4)))


@pytest.mark.parametrize("orientation", [*ORIENTATIONS, 0, 9])
@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_files_are_known_as_they_are_stored(orientation: int, format: str, tmp_path: Path) -> None:
    """Whatever turns the picture, Pillow as it loads a TIFF or ``read_photo``: upright sizes agree."""
    path = tmp_path / f"photo.{format.lower()}"
    path.write_bytes(file_of(Image.new("RGB", (30, 20)), orientation, format).getvalue())
    photo, (width, height) = stored(path), read_photo(path).size
    assert (photo.height, photo.width, photo.blocks) == (20, 30, PIXELS)
    assert photo.upright == (height, width)
    assert photo.orientation == (orientation if orientation in ORIENTATIONS else 1)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("after_pixels", [False, True])
def test_a_png_that_says_in_xmp_how_to_turn_it_is_known_as_it_is_read(
    orientation: int, after_pixels: bool, tmp_path: Path
) -> None:
    """Pillow turns it by XMP, which may come after the pixels, where EXIF is there and says nothing of that."""
    told, exif, path = PngInfo(), Image.Exif(), tmp_path / "photo.png"
    xmp = f'<rdf:Description tiff:Orientation="{orientation}"/>'.encode()
    told.add(b"iTXt", b"XML:com.adobe.xmp" + bytes(5) + xmp)
    exif[ExifTags.Base.ImageDescription] = "a photo"
    Image.new("RGB", (30, 20)).save(path, pnginfo=told, exif=exif)
    if after_pixels:
        file = path.read_bytes()
        start = file.index(b"iTXt") - 4
        stop = start + 12 + int.from_bytes(file[start : start + 4], "big")
        path.write_bytes(file[:start] + file[stop:-12] + file[start:stop] + file[-12:])
    photo, (width, height) = stored(path), read_photo(path).size
    assert (photo.upright, photo.orientation) == ((height, width), orientation)


def test_grey_jpeg_has_small_blocks_and_other_files_have_none(tmp_path: Path) -> None:
    for mode, name in (("L", "grey.jpg"), ("CMYK", "ink.jpg"), ("RGB", "photo.png")):
        Image.new(mode, (30, 20)).save(tmp_path / name)
    assert stored(tmp_path / "grey.jpg", before_jpeg=True).blocks == BLOCKS[0]
    with pytest.raises(DataError, match=r"got something else in .*ink\.jpg"):
        stored(tmp_path / "ink.jpg", before_jpeg=True)
    with pytest.raises(DataError, match=r"expected a JPEG file .*, got PNG in .*photo\.png"):
        stored(tmp_path / "photo.png", before_jpeg=True)


def test_sizes_that_are_asked_for() -> None:
    assert [share_of(Fraction(percent), Stored(480, 640, 6)) for percent in ("5", "0.1", "12.5", "100")] == [
        24,
        1,
        60,
        480,
    ]
    assert shared_patch((41, 44), (224, 224)) == Patch(44, 44)
    assert shared_patch((1, 223), (224, 223)) == Patch(4, 223)
    assert shared_patch((5, 7), (32, 448)) == Patch(5, 8)
    with pytest.raises(DataError, match="got 41×2"):
        largest_reach(Stored(40, 50), Framing(), (224, 224), (41, 2))
    with pytest.raises(DataError, match="inside the photo 50×40"):
        touched(Stored(40, 50), Framing(), (224, 224), (0, 41, 0, 2))


def test_what_is_cut_off_reaches_nothing() -> None:
    """And what is left of a patch at the edge of the cut is smaller than in the middle."""
    photo, framing, image = Stored(100, 300), Framing(1.0, "bilinear"), (100, 100)
    assert touched(photo, framing, image, (0, 100, 0, 99)) is None
    assert touched(photo, framing, image, (0, 100, 0, 101)) == (0, 100, 0, 1)
    assert touched(photo, framing, image, (40, 50, 150, 160)) == (40, 50, 50, 60)


@pytest.mark.parametrize("framing", FRAMINGS, ids=str)
def test_the_largest_side_is_the_last_one_that_fits(framing: Framing) -> None:
    """Against every box of the input, by trying every side: the inverse of the largest reach, turned and in blocks."""
    for size, image, orientation, blocks in product(PHOTOS, ((12, 12), (7, 10)), (1, 6), (PIXELS, BLOCKS[1])):
        photo = Stored(*size, orientation, blocks)
        reaches = [largest_reach(photo, framing, image, (side, side)).size for side in range(1, min(size) + 1)]
        for box in product(range(1, image[0] + 1), range(1, image[1] + 1)):
            fits = [high <= box[0] and wide <= box[1] for high, wide in reaches]
            assert largest_side(photo, framing, image, box) == max(
                (n for n, fit in enumerate(fits, 1) if fit), default=0
            )
