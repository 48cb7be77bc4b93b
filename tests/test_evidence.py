"""Local evidence: what cells see, what a patch touches, and rules that agree with their definitions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference_evidence as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from certmask.certificate import Guarantee
from certmask.errors import CertmaskError, ClassifierError, GeometryError, VoteError
from certmask.evidence import (
    Averaging,
    ClippedBagNet,
    EvidenceMaps,
    EvidenceRule,
    Field,
    Hypotheses,
    RobustMasking,
    band_fields,
    hypotheses,
    receptive_field,
    touched,
)
from certmask.evidence.maps import LARGEST, ONE, largest, sums
from certmask.evidence.network import LocalLogits
from certmask.geometry import IntArray
from certmask.zoo.bagnet import BagNet

torch.set_num_threads(1)

Fields = tuple[Field, Field]


# ------------------------------------------------------------------------------------------------ what cells see


def reached(network: nn.Module, image: tuple[int, int]) -> Tensor:
    """Which cells a NaN in each pixel reaches, ``[row of pixel, column, row of cell, column]``.

    It gets through weights of zero and dead units, and nothing brings it back.
    """
    height, width = image
    pixel = torch.arange(height * width)
    pictures = torch.zeros(height * width, 3, height, width)
    pictures[pixel, :, pixel // width, pixel % width] = float("nan")
    with torch.no_grad():
        cells: Tensor = network(pictures)
    return torch.isnan(cells).any(dim=1).reshape(height, width, *cells.shape[2:])


def claimed(fields: Fields) -> Tensor:
    """The same, as the fields have it."""
    rows, columns = fields
    return torch.from_numpy(rows.sees.T[:, None, :, None] & columns.sees.T[None, :, None, :])


class Residual(nn.Module):
    """Two branches that are added; the shortcut is cropped as BagNet does, or in the middle."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module, centred: bool = False) -> None:
        super().__init__()
        self.branch, self.shortcut, self.centred = branch, shortcut, centred

    def forward(self, x: Tensor) -> Tensor:
        out, rest = self.branch(x), self.shortcut(x)
        if rest.size(-1) != out.size(-1):
            rows, columns = rest.size(-2) - out.size(-2), rest.size(-1) - out.size(-1)
            top, left = (rows // 2, columns // 2) if self.centred else (0, 0)
            rest = rest[:, :, top : top + out.size(-2), left : left + out.size(-1)]
        out += rest
        return F.relu(out, inplace=True)


class Beside(nn.Module):
    """Two branches side by side, and padding."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(torch.cat([self.one(x), self.other(x)], dim=1), (1, 2, 0, 1))


class ChannelNorm(nn.Module):
    """LayerNorm over channels and a linear layer on them, as in ConvNeXt; a softmax over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2), dim=1)


class ThroughAView(nn.Module):
    """A part of a map is written to through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 2, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.near(x)
        part = y[:, :2]
        part += self.far(x)
        return y


class WrittenTwice(nn.Module):
    """In eval mode dropout gives the tensor it got: what is added to one is added to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far, self.dropout = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 5, padding=2), nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.near(x)
        same = self.dropout(y)
        same += self.far(x)
        return y


def bagnet(field: int) -> nn.Module:
    """A BagNet with few blocks and channels, whose output are its local logits."""
    return LocalLogits(BagNet(field, 3, width=2, blocks=(2, 2, 2, 2)).eval())


NETWORKS: dict[str, nn.Module] = {
    "one convolution": nn.Conv2d(3, 2, 3),
    "strided": nn.Sequential(nn.Conv2d(3, 2, 3, 2), nn.ReLU(), nn.Conv2d(2, 2, 2, 3)),
    "stride beyond the kernel": nn.Sequential(nn.Conv2d(3, 2, 1, 2), nn.Conv2d(2, 2, 2, 2)),
    "dilated": nn.Sequential(nn.Conv2d(3, 2, 3, dilation=2), nn.Conv2d(2, 2, 2, padding=3, dilation=3)),
    "padded": nn.Sequential(nn.Conv2d(3, 4, 3, padding=2), nn.Conv2d(4, 4, 5, padding="same", groups=2)),
    "not square": nn.Sequential(nn.Conv2d(3, 2, (3, 1), (1, 2), (0, 1)), nn.MaxPool2d((1, 3), (2, 1), (0, 1))),
    "pooled": nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.GELU(), nn.AvgPool2d(2, ceil_mode=True), nn.Hardswish()),
    "unseen pixels, then padding": nn.Sequential(nn.Conv2d(3, 2, 2, 2), nn.Conv2d(2, 2, 3, padding=1)),
    "residual": nn.Sequential(Residual(nn.Conv2d(3, 3, 3, padding=1), nn.Identity()), nn.Dropout(), nn.Conv2d(3, 2, 2)),
    "residual, cropped": Residual(nn.Conv2d(3, 2, 3), nn.Conv2d(3, 2, 1)),
    "residual, centred": Residual(nn.Conv2d(3, 2, 5, 1), nn.Conv2d(3, 2, 3), centred=True),
    "cropped, then padded": nn.Sequential(
        Residual(nn.Conv2d(3, 2, 3, 2), nn.Conv2d(3, 2, 1, 2)), nn.ZeroPad2d((-1, 2, 1, -1)), nn.Conv2d(2, 2, 2)
    ),
    "side by side": nn.Sequential(Beside(nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 3, padding=1)), nn.Conv2d(4, 2, 2, 2)),
    "norms of channels": nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), ChannelNorm(4), nn.SiLU()),
    "written to under another name": WrittenTwice(),
    "bagnet 9": bagnet(9),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("image", [(9, 9), (10, 11), (13, 8)])
def test_a_nan_reaches_exactly_the_cells_that_see_it(name: str, image: tuple[int, int]) -> None:
    network = NETWORKS[name].eval()
    image = (image[0] + 8, image[1] + 8) if name.startswith("bagnet") else image
    fields = receptive_field(network, image)
    assert torch.equal(claimed(fields), reached(network, image))
    for field in fields:
        whole = Field.regular(field.extent, field.size, field.stride, field.start, field.cells)
        assert not (field.sees & ~whole.sees).any(), "no cell sees a pixel outside its interval"


@pytest.mark.parametrize("name", ["bagnet 9", "norms of channels", "pooled", "cropped, then padded"])
def test_a_trace_that_is_taken_apart_says_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, image = NETWORKS[name].eval(), (18, 19)
    said = [field.describe() for field in receptive_field(network, image)]
    monkeypatch.setattr("certmask.evidence.field._KNOWN", frozenset())
    assert [field.describe() for field in receptive_field(network, image)] == said


def test_branches_in_two_directions_see_no_more_than_rows_times_columns() -> None:
    network = Residual(nn.Conv2d(3, 2, (3, 1), padding=(1, 0)), nn.Conv2d(3, 2, (1, 3), padding=(0, 1))).eval()
    said, true = claimed(receptive_field(network, (5, 6))), reached(network, (5, 6))
    assert not (true & ~said).any()
    assert torch.equal(said.any(3).any(1), true.any(3).any(1)), "exact along rows"
    assert torch.equal(said.any(2).any(0), true.any(2).any(0)), "exact along columns"


@st.composite
def stacks(draw: st.DrawFn) -> nn.Module:
    """A few random layers, some of them with a shortcut."""
    layers: list[nn.Module] = []
    side = st.integers(1, 3)
    for _ in range(draw(st.integers(1, 4))):
        kernel, stride, dilation = ((draw(side), draw(side)) for _ in range(3))
        padding = (draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2)))
        kind = draw(st.sampled_from(["convolution", "largest", "mean", "residual", "side by side"]))
        if kind == "convolution":
            layers.append(nn.Conv2d(3, 3, kernel, stride, padding, dilation))
        elif kind == "largest":
            layers.append(nn.MaxPool2d(kernel, stride, padding, dilation, ceil_mode=draw(st.booleans())))
        elif kind == "mean":
            layers.append(nn.AvgPool2d(kernel, stride, padding, ceil_mode=draw(st.booleans())))
        elif kind == "residual":
            layers.append(Residual(nn.Conv2d(3, 3, kernel, stride), nn.Conv2d(3, 3, 1, stride)))
        else:
            layers.append(Beside(nn.Conv2d(3, 1, 3, padding=1), nn.Conv2d(3, 2, 1)))
    return nn.Sequential(*layers).eval()


@settings(max_examples=60, deadline=None)
@given(stacks(), st.integers(4, 12), st.integers(4, 12))
def test_a_nan_reaches_what_random_layers_say(network: nn.Module, height: int, width: int) -> None:
    try:
        network(torch.zeros(1, 3, height, width))
    except RuntimeError:
        return  # the picture is too small for these layers
    assert torch.equal(claimed(receptive_field(network, (height, width))), reached(network, (height, width)))


class Squeeze(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x.mean((2, 3), keepdim=True))


class Depends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return F.scaled_dot_product_attention(tokens, tokens, tokens).transpose(1, 2).reshape(x.shape)


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.roll(1, dims=3)


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.permute(0, 1, 3, 2)


class FilteredByItself(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, x)


class FilteredByAPart(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(torch.ones(x.shape), x[:, :, :3, :3])


class SpreadOut(nn.Module):
    """One cell is added to all others."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x[:, :, :1, :1]


FAR = {
    "squeeze and excitation": (Squeeze(), "mean"),
    "attention": (Attention(), "view|flatten|reshape"),
    "a branch on the data": (Depends(), "a trace that fails"),
    "global pooling": (nn.AdaptiveAvgPool2d(1), "adaptive_avg_pool2d"),
    "statistics of the batch": (nn.BatchNorm2d(3, track_running_stats=False), "batch_norm"),
    "instance norm": (nn.InstanceNorm2d(3), "norm|view|repeat"),
    "group norm": (nn.GroupNorm(1, 3), "group_norm"),
    "layer norm over space": (nn.LayerNorm([3, 6, 6]), "layer_norm"),
    "layer norm over columns": (nn.LayerNorm([6]), "layer_norm"),
    "linear over columns": (nn.Linear(6, 6), "linear"),
    "flatten": (nn.Sequential(nn.Flatten(), nn.Linear(108, 5)), "view|flatten|reshape"),
    "softmax over columns": (nn.Softmax(dim=3), "softmax"),
    "reflected": (nn.ReflectionPad2d(1), "pad"),
    "rolled": (Rolled(), "roll"),
    "turned": (Turned(), "branches of one layout|add"),
    "filtered by itself": (FilteredByItself(), "conv2d"),
    "filtered by a part": (FilteredByAPart(), "conv2d"),
    "spread out": (SpreadOut(), "branches of one stride and as many cells"),
    "through a view": (ThroughAView(), "slice_scatter"),
    "upsampled": (nn.Upsample(scale_factor=2), "upsample"),
}


@pytest.mark.parametrize("name", FAR)
def test_a_layer_whose_reach_is_not_known_is_an_error(name: str) -> None:
    network, words = FAR[name]
    with pytest.raises(ClassifierError, match=f"expected .*got .*({words})|expected ({words})"):
        receptive_field(network.eval(), (6, 6))


def test_batch_norm_in_training_mode_and_outputs_that_are_no_map_are_errors() -> None:
    with pytest.raises(ClassifierError, match="expected a network in eval mode"):
        receptive_field(nn.Sequential(nn.BatchNorm2d(3)).train(), (6, 6))

    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(x.shape)

    with pytest.raises(ClassifierError, match="expected a network that gives one map"):
        receptive_field(Constant().eval(), (6, 6))


def test_branches_of_two_strides_are_an_error() -> None:
    network = Residual(nn.Conv2d(3, 2, 4, 4), nn.Conv2d(3, 2, 1, 3)).eval()
    with pytest.raises(ClassifierError, match="expected branches of one stride"):
        receptive_field(network, (4, 4))


@pytest.mark.parametrize(("size", "cells"), [(9, 5), (17, 6), (33, 8)])
def test_bagnets_on_224_pixels(size: int, cells: int) -> None:
    """Fields of 9, 17 and 33 pixels every 8; a 32 pixel patch touches at most ⌈(p + r − 1)/s⌉ cells along an axis."""
    fields = receptive_field(bagnet(size), (224, 224))
    assert [(field.size, field.stride, field.start) for field in fields] == [(size, 8, 0)] * 2
    for sets in touched(32, fields):
        assert sets.sum(axis=1).max() == cells == -(-(32 + size - 1) // 8)
    found = hypotheses(32, fields)
    assert found.window_rows.sum(axis=1).tolist() == [cells] * (fields[0].cells - cells + 1)


@pytest.mark.parametrize("name", ["bagnet 9", "dilated", "residual, cropped", "norms of channels"])
def test_no_patch_anywhere_moves_evidence_that_it_does_not_touch(name: str) -> None:
    """The one fact: to the last bit, whatever the patch shows, be it no number; and what it touches does move."""
    network, size, patch = NETWORKS[name].eval(), 21 if name.startswith("bagnet") else 11, (2, 3)
    generator = torch.Generator().manual_seed(3)
    picture = torch.rand(1, 3, size, size, generator=generator).repeat(3, 1, 1, 1)  # batches of one shape, as in use
    fields = receptive_field(network, (size, size))
    rows, columns = touched(patch, fields)

    def evidence(pictures: Tensor) -> list[IntArray]:
        with torch.no_grad():
            logits = network(pictures).permute(0, 2, 3, 1) * 10
        return [rule.evidence(logits, fields).values.numpy() for rule in (ClippedBagNet(1), RobustMasking(1))]

    clean, moved = evidence(picture), 0
    for y, x in product(range(len(rows)), range(len(columns))):
        attacked = picture.clone()
        attacked[:, :, y : y + 2, x : x + 3] = torch.randn(3, 3, 2, 3, generator=generator) * 100
        attacked[1, :, y, x], attacked[2, :, y, x] = float("nan"), float("inf")
        for before, after in zip(clean, evidence(attacked), strict=True):
            changed = (before != after).any(axis=(0, 3))
            assert not (changed & ~np.outer(rows[y], columns[x])).any()
            moved += int(changed.sum())
    assert moved > 100


# --------------------------------------------------------------------------------------------- what a patch touches


fields_of_one_axis = st.builds(
    lambda extent, size, stride, start, cells: Field.regular(extent, size, stride, start, cells),
    st.integers(3, 12),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(-4, 2),
    st.integers(1, 7),
)


def plain(field: Field) -> list[set[int]]:
    return [
        reference.interval(field.size, field.stride, field.start, cell, field.extent, field.wraps)
        for cell in range(field.cells)
    ]


def as_cells(rows: npt.NDArray[np.bool_], columns: npt.NDArray[np.bool_]) -> list[frozenset[tuple[int, int]]]:
    """The sets of cells ``rows[a] × columns[b]``, in order."""
    return [
        frozenset(product(np.flatnonzero(row).tolist(), np.flatnonzero(column).tolist()))
        for row in rows
        for column in columns
    ]


@settings(max_examples=150, deadline=None)
@given(fields_of_one_axis, fields_of_one_axis, st.integers(1, 3), st.integers(1, 3))
def test_touched_cells_and_windows_are_those_of_the_reference(
    rows: Field, columns: Field, height: int, width: int
) -> None:
    """Also: the largest sets of cells that a patch touches are all as long, and windows have just that shape."""
    fields, image = (rows, columns), (rows.extent, columns.extent)
    expected = reference.touched((height, width), plain(rows), plain(columns), image)
    assert as_cells(*touched((height, width), fields)) == expected
    found = hypotheses((height, width), fields)
    kept = as_cells(found.rows, found.columns)
    assert set(kept) == set(reference.largest(expected))
    boxes = as_cells(found.window_rows, found.window_columns)
    assert all(any(one <= box for box in boxes) for one in expected)
    assert found.sizes.ravel().tolist() == [len(one) for one in kept]
    if all(expected):
        (height,), (width,) = (set(sets.sum(axis=1).tolist()) for sets in (found.rows, found.columns))
        assert set(boxes) == set(reference.windows((height, width), (rows.cells, columns.cells), wraps=False))


@settings(max_examples=150, deadline=None)
@given(st.integers(3, 14), st.integers(1, 14), st.integers(1, 5), st.integers(1, 14))
def test_bands_and_their_windows_wrap(width: int, band: int, stride: int, patch: int) -> None:
    if band > width or patch > width:
        return
    fields = band_fields((4, width), band, stride)
    expected = reference.touched((1, patch), [{0, 1, 2, 3}], plain(fields[1]), (4, width))
    assert as_cells(*touched((1, patch), fields)) == expected
    found = hypotheses((1, patch), fields)
    longest = max(map(len, expected))
    boxes = as_cells(found.window_rows, found.window_columns)
    assert set(boxes) == set(reference.windows((1, longest), (1, fields[1].cells), wraps=True))
    assert all(any(one <= box for box in boxes) for one in expected)


def test_counts_of_bands_by_enumeration() -> None:
    """Where the stride does not divide the width, more bands may be touched than ⌈(p + b − 1)/stride⌉."""
    for stride, formula, true in ((1, 50, 50), (10, 5, 6), (5, 10, 11)):
        _, columns = touched((1, 32), band_fields((1, 224), 19, stride))
        assert -(-(32 + 19 - 1) // stride) == formula
        assert columns.sum(axis=1).max() == true


def test_windows_that_are_too_small_are_an_error() -> None:
    sets, small = np.array([[True, True, False]]), np.eye(3, dtype=bool)
    with pytest.raises(GeometryError, match="expected windows that contain whatever a patch touches, got smaller rows"):
        Hypotheses(sets, sets, small, sets)
    with pytest.raises(GeometryError, match="got smaller columns"):
        Hypotheses(sets, sets, sets, small)


def test_nonsense_is_an_error() -> None:
    with pytest.raises(GeometryError, match="expected an extent"):
        Field.regular(8, 3, 0, 0, 2)
    with pytest.raises(GeometryError, match="no band wider than the picture"):
        band_fields((8, 8), 9)
    with pytest.raises(GeometryError, match="no band wider"):
        band_fields((8, 8), 3, 0)
    with pytest.raises(GeometryError, match="expected a patch inside the image"):
        touched(9, band_fields((8, 8), 3))


# -------------------------------------------------------------------------------------------------------- evidence


LINE = Field.regular(1, 1, 1, 0, 1)


def line(cells: int) -> Fields:
    """A map of one row, whose cells see a pixel each."""
    return LINE, Field.regular(cells, 1, 1, 0, cells)


def maps_of(values: Any, fields: Fields) -> EvidenceMaps:
    """Evidence in whole ones."""
    return EvidenceMaps(torch.as_tensor(np.asarray(values, dtype=np.int64)) * ONE, fields)


def test_evidence_is_what_the_papers_say() -> None:
    logits = torch.tensor([-1e30, 0.0, 20.0, 60.0, float("inf"), float("-inf"), float("nan")]).reshape(1, 1, 1, 7)
    clipped = ClippedBagNet(1).evidence(logits, line(1)).values.ravel().numpy() / ONE
    assert clipped == pytest.approx([-1, np.tanh(-1), 0, np.tanh(2), 1, -1, -1], abs=1e-7)
    steeper = ClippedBagNet(1, slope=0.1).evidence(logits / 2, line(1)).values.ravel().numpy() / ONE
    assert steeper == pytest.approx(clipped, abs=1e-7)
    positive = RobustMasking(1).evidence(logits, line(1)).values.ravel() / ONE
    assert positive.tolist() == [0, 0, 20, 60, LARGEST, 0, 0]
    signed = Averaging(1).evidence(logits, line(1)).values.ravel() / ONE
    assert signed.tolist() == [-LARGEST, 0, 20, 60, LARGEST, -LARGEST, 0]


def test_evidence_of_another_shape_or_kind_is_an_error() -> None:
    with pytest.raises(VoteError, match=r"expected evidence \[pictures, 1, 3, classes\]"):
        maps_of(np.zeros((1, 3, 1, 2)), line(3))
    with pytest.raises(VoteError, match="expected whole numbers, int64, got"):
        EvidenceMaps(torch.zeros(1, 1, 3, 2), line(3))
    with pytest.raises(VoteError, match="expected whole numbers of at most"):
        EvidenceMaps(torch.full((1, 1, 3, 2), torch.iinfo(torch.int64).min), line(3))
    with pytest.raises(VoteError, match="expected whole numbers of at most"):
        maps_of(np.full((1, 1, 3, 2), 2**13), line(3))
    with pytest.raises(VoteError, match="expected evidence from -1 to 1"):
        ClippedBagNet(1).answers(maps_of(np.full((1, 1, 3, 2), 2), line(3)))
    with pytest.raises(VoteError, match="expected evidence of at least 0"):
        RobustMasking(1).answers(maps_of(np.full((1, 1, 3, 2), -1), line(3)))


def test_parameters_that_make_no_sense_are_errors() -> None:
    for threshold in (-0.1, 1, 1.5, 0.12345, float("nan"), "much"):
        with pytest.raises(CertmaskError, match="expected a share of evidence from 0 to below 1"):
            RobustMasking(1, threshold)  # type: ignore[arg-type]
    for margin in (-1, float("inf"), float("nan"), True):
        with pytest.raises(CertmaskError, match="expected a margin of at least 0"):
            ClippedBagNet(1, margin=margin)
    for slope in (0, -0.1, float("nan"), float("inf"), True, "0.1"):
        with pytest.raises(CertmaskError, match="expected a slope above 0, got"):
            ClippedBagNet(1, slope=slope)  # type: ignore[arg-type]
    with pytest.raises(CertmaskError, match="expected a label from 0 to 1"):
        ClippedBagNet(1).certify(maps_of(np.zeros((1, 1, 3, 2)), line(3)), np.array([2]))


def test_sums_are_exact_at_the_largest_evidence() -> None:
    """Half of the cells at the largest number there is and half one unit: no digit is lost."""
    values = torch.full((1, 128, 128, 1), int(LARGEST) * ONE)
    values[:, ::2] = 1
    every = np.ones((1, 128), dtype=bool)
    assert sums(values, every, every).item() == 64 * 128 * (int(LARGEST) * ONE + 1) == values.sum()


# -------------------------------------------------------------------------------------------------------- the rules


def test_a_certificate_says_what_was_proved() -> None:
    maps = maps_of([[[[0, 1]] * 5], [[[1, 0]] * 5]], line(5))
    first, second = RobustMasking((1, 1), 0.25).certify(maps, np.array([1, 1]))
    assert first.holds
    assert not second.holds
    assert first.guarantee is Guarantee.RECOVERY
    assert first.image == (1, 5)
    assert first.rule == {"rule": "robust masking", "guarantee": "recovery", "margin": 0.0, "threshold": 0.25}
    assert "any 1×1 patch on a 1×5 input" in first.sentence


def geometries() -> list[tuple[str, tuple[int, int], Fields, bool]]:
    """Maps and bands: with and without padding, strides, patches that touch different numbers of cells."""
    return [
        ("cells are pixels", (2, 2), (Field.regular(3, 1, 1, 0, 3), Field.regular(4, 1, 1, 0, 4)), False),
        ("padded", (1, 2), (Field.regular(4, 3, 1, -1, 4), Field.regular(5, 3, 2, -1, 3)), False),
        ("strided", (3, 3), (Field.regular(9, 5, 3, 0, 2), Field.regular(16, 4, 3, 0, 5)), False),
        ("bands", (1, 2), band_fields((3, 7), 2), True),
        ("strided bands", (1, 2), band_fields((2, 13), 3, 2), True),
    ]


@pytest.mark.parametrize("margin", [0, 1, 2.5])
@pytest.mark.parametrize(
    ("name", "patch", "fields", "wraps"), geometries(), ids=lambda one: one if isinstance(one, str) else ""
)
def test_rules_agree_with_the_reference(
    name: str, patch: tuple[int, int], fields: Fields, wraps: bool, margin: float
) -> None:
    """Answers and certificates of random maps, near the edge of the certificate; units of 1/ONE and whole ones."""
    rng, cells = Random(f"{name} {margin}"), (fields[0].cells, fields[1].cells)
    sets = reference.largest(
        reference.touched(patch, plain(fields[0]), plain(fields[1]), (fields[0].extent, fields[1].extent))
    )
    spans = [max(len({cell[axis] for cell in one}) for one in sets) for axis in (0, 1)]
    boxes = reference.windows((spans[0], spans[1]), cells, wraps)
    held = {True: 0, False: 0}
    for _ in range(40):
        classes, label = 3, rng.randrange(3)
        favour, others = rng.choice([0, 3, 8, 16, 40]), rng.choice([0, 1, 4])
        numbers = np.array(
            [
                [
                    [favour if one == label else rng.randint(0, others) for one in range(classes)]
                    for _ in range(cells[1])
                ]
                for _ in range(cells[0])
            ]
        )
        if rng.random() < 0.3:
            numbers[rng.randrange(cells[0]), rng.randrange(cells[1])] = rng.randint(0, 9)
        share = Fraction(rng.choice([0, 1, 3, 5, 9]), 10)
        for rule, unit, shift in (
            (ClippedBagNet(patch, margin=margin / 8), ONE // 8, -8),
            (RobustMasking(patch, float(share), margin), ONE, 0),
        ):
            values = (2 * numbers + shift).clip(max=8) * unit if shift else numbers * unit
            maps = EvidenceMaps(torch.from_numpy(values[None].astype(np.int64)), fields)
            table = {(i, j): values[i, j].tolist() for i in range(cells[0]) for j in range(cells[1])}
            if isinstance(rule, ClippedBagNet):
                answer = reference.clipped_answer(table, classes)
                proved = reference.clipped_certifies(table, classes, label, sets, ONE, int(rule.margin * ONE))
            else:
                answer = reference.masked_answer(table, classes, boxes, share)
                proved = reference.masked_certifies(table, classes, label, sets, boxes, share, int(margin * ONE))
            assert rule.answers(maps).tolist() == [answer]
            assert rule.holds(maps, np.array([label])).tolist() == [proved]
            held[proved] += 1
    assert min(held.values()) > 5


def every_rule(patch: tuple[int, int], margin: float = 0.0) -> list[EvidenceRule]:
    return [ClippedBagNet(patch, margin=margin), *(RobustMasking(patch, share, margin) for share in (0, 0.3, 0.6))]


@pytest.mark.parametrize("number", range(4))
def test_a_cohort_is_judged_as_its_pictures_are_one_by_one(number: int) -> None:
    rng = np.random.default_rng(number)
    rule, fields = every_rule((2, 2))[number], (Field.regular(6, 2, 1, 0, 5), Field.regular(6, 1, 1, 0, 6))
    values = (rng.random((60, 5, 6, 3)) < rng.choice([0, 0.1, 0.5], (60, 1, 1, 1))).astype(np.int64)
    labels = rng.integers(0, 3, 60)
    values[np.arange(60), ..., labels] |= rng.integers(0, 2, 60)[:, None, None]
    maps = maps_of(values, fields)
    answers, holds = rule.answers(maps), rule.holds(maps, labels)
    assert 0 < holds.sum() < 60
    for one in range(60):
        alone = maps_of(values[one : one + 1], fields)
        assert (answers[one], holds[one]) == (rule.answers(alone)[0], rule.holds(alone, labels[one : one + 1])[0])


@pytest.mark.parametrize("number", range(4))
def test_pictures_are_judged_alike_in_portions(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven pictures at a time, or one where a single one takes more than fits: the same answers and proofs."""
    rng, labels = np.random.default_rng(number), np.arange(60) % 3
    rule, fields = every_rule((2, 2))[number], (Field.regular(6, 2, 1, 0, 5), Field.regular(6, 1, 1, 0, 6))
    values = (rng.random((60, 5, 6, 3)) < 0.1).astype(np.int64)
    values[np.arange(60), ..., labels] |= rng.integers(0, 2, 60)[:, None, None]
    maps, sets = maps_of(values, fields), rule.hypotheses(fields)
    whole = rule.answers(maps), rule.holds(maps, labels)
    assert 0 < whole[1].sum() < 60
    most = max(5 * 6 * 3, len(sets.columns) * len(sets.window_rows) * len(sets.window_columns))
    for numbers, portions in ((7 * most, 9), (1, 60)):
        monkeypatch.setattr("certmask.evidence.maps.AT_ONCE", numbers)
        assert len(maps.portions(sets)) == portions
        assert (rule.answers(maps) == whole[0]).all()
        assert (rule.holds(maps, labels) == whole[1]).all()


@pytest.mark.parametrize("rule", [*every_rule((2, 2)), Averaging((2, 2))], ids=lambda rule: str(rule.describe()))
def test_the_largest_score_is_the_answer(rule: EvidenceRule) -> None:
    """From random logits, and from a picture whose strongest window decides; the gradient has numbers."""
    fields = Field.regular(6, 2, 1, 0, 5), Field.regular(6, 1, 1, 0, 6)
    logits = torch.randn(200, 5, 6, 4, generator=torch.Generator().manual_seed(1)) * 5
    logits[::3, 1:3, 2:4, 3] += 60
    logits.requires_grad_()
    scores = rule.scores(logits, fields)
    assert scores.shape == (200, 4)
    assert (scores.argmax(dim=1).numpy() == rule.answers(rule.evidence(logits, fields))).all()
    (slope,) = torch.autograd.grad(scores.amax(dim=1).sum(), logits)
    assert slope.isfinite().all()
    assert slope.flatten(1).any(dim=1).all()


def test_what_is_only_averaged_is_never_certified() -> None:
    (certificate,) = Averaging(1).certify(maps_of([[[[0, 9]] * 5]], line(5)), np.array([1]))
    assert not certificate.holds
    assert certificate.guarantee is Guarantee.NONE
    assert Averaging(1).answers(maps_of([[[[0, -9], [1, 9], [0, 2]]]], line(3))).tolist() == [1]
    assert Averaging(1).answers(maps_of(np.zeros((0, 1, 3, 2)), line(3))).tolist() == []


@pytest.mark.parametrize("number", range(4))
def test_a_certificate_with_a_margin_survives_noise(number: int) -> None:
    """Every cell moves by up to 1/64: a difference of two sums over 8 cells each by up to a quarter."""
    rng = np.random.default_rng(number)
    margin, step, cells, labels = 0.25, ONE // 64, 8, np.zeros(4000, dtype=np.int64) + 1
    rule, bold = every_rule((1, 1), margin)[number], every_rule((1, 1))[number]
    values = rng.integers(2, 5, (4000, 1, cells, 2)) * (ONE // 16)
    values[..., 1] += rng.integers(0, 12, (4000, 1, 1)) * (ONE // 16)
    values = values.clip(max=ONE - step)
    clean = EvidenceMaps(torch.from_numpy(values), line(cells))
    certified, boldly = rule.holds(clean, labels), bold.holds(clean, labels)
    assert certified.sum() > 50
    assert (certified <= boldly).all()
    lost = 0
    for sign in (-1, 1):
        for own in (-1, 1):
            noise = np.full(values.shape, step) * sign
            noise[..., 1] *= own
            moved = values + noise
            for place in range(cells):
                least = 0 if number else -ONE
                for mine, other in product((least, ONE), (least, ONE)):
                    attacked = moved.copy()
                    attacked[:, 0, place] = other, mine
                    answers = rule.answers(EvidenceMaps(torch.from_numpy(attacked), line(cells)))
                    assert (answers[certified] == 1).all()
                    lost += int((answers[boldly] != 1).sum())
    assert lost > 0 or number > 1, "without a margin some would be lost, where the certificate is exact"


def test_largest_keeps_one_of_equal_sets() -> None:
    sets = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]], dtype=bool)
    kept: IntArray = largest(sets).astype(np.int64)
    assert sorted(kept.tolist()) == [[0, 1, 1], [1, 1, 0]]
