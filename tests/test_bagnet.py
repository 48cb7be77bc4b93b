"""BagNets: the layers of their names, the mean of what cells say, the names of the published tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from certmask.evidence import receptive_field
from certmask.evidence.network import LocalLogits
from certmask.zoo import build_model, card_of
from certmask.zoo.bagnet import BagNet, Bottleneck
from certmask.zoo.timm_import import import_timm


@pytest.mark.parametrize(
    ("name", "field", "weights"),
    [("bagnet9", 9, 15.7), ("bagnet17", 17, 16.2), ("bagnet33", 33, 18.3), ("bagnet17_half", 17, 4.6)],
)
def test_a_bagnet_by_name(name: str, field: int, weights: float) -> None:
    """So many million weights, cells of so many pixels every 8 of them, whatever the weights."""
    card = card_of(name)
    assert (card.size, card.mean) == ((224, 224), (0.485, 0.456, 0.406))
    model = build_model(name, 1000, card.size).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(weights * 1e6, rel=0.01)
    for axis in receptive_field(LocalLogits(model), (224, 224)):
        assert (axis.size, axis.stride, axis.start, axis.cells) == (field, 8, 0, (224 - field) // 8 + 1)


@pytest.mark.parametrize("image", [(33, 33), (41, 50)])
def test_the_answer_is_the_mean_of_what_cells_say(image: tuple[int, int]) -> None:
    torch.manual_seed(0)
    network = BagNet(17, 4, width=4, blocks=(2, 1, 1, 1)).eval()
    pictures = torch.rand(2, 3, *image)
    with torch.no_grad():
        cells = network.local(pictures)
        assert cells.shape == (2, 4, (image[0] - 17) // 8 + 1, (image[1] - 17) // 8 + 1)
        torch.testing.assert_close(network(pictures), cells.mean(dim=(2, 3)))


@pytest.mark.parametrize("field", [9, 17, 33])
def test_a_cell_says_what_it_says_of_its_pixels_alone(field: int) -> None:
    """Cut out and shown alone, the pixels of a cell get the same logits."""
    torch.manual_seed(1)
    network = BagNet(field, 4, width=4, blocks=(1, 2, 1, 1)).eval()
    picture = torch.rand(1, 3, 64, 56)
    with torch.no_grad():
        cells = network.local(picture)
        for row in range(cells.shape[2]):
            for column in range(cells.shape[3]):
                own = picture[:, :, 8 * row : 8 * row + field, 8 * column : 8 * column + field]
                torch.testing.assert_close(network.local(own)[:, :, 0, 0], cells[:, :, row, column])


@pytest.mark.parametrize("stride", [1, 2])
def test_the_shortcut_begins_where_the_block_does(stride: int) -> None:
    """What a 3×3 convolution leaves out is cropped at the far end: with nothing else in it, that is the output."""
    block = Bottleneck(2, 2, 3, stride).eval()
    nn.init.zeros_(block.bn3.weight)
    cells = torch.rand(1, 2, 9, 12, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        found = block(cells)
        assert found.shape[2:] == ((9 - 3) // stride + 1, (12 - 3) // stride + 1)
        assert found.any()
        for row in range(found.shape[2]):
            for column in range(found.shape[3]):
                own = cells[:, :, stride * row, stride * column]
                torch.testing.assert_close(
                    found[:, :, row, column], block.downsample(own[:, :, None, None])[:, :, 0, 0].relu()
                )


def test_tensors_are_named_as_in_a_resnet50() -> None:
    """As the published ones: those of ResNet-50 and a second convolution in the stem; kernels of 3×3 are few."""
    theirs = import_timm().create_model("resnet50").state_dict()
    for field, wide in ((9, 2), (17, 3), (33, 4)):
        own = BagNet(field).state_dict()
        assert set(own) == {*theirs, "conv2.weight"}
        kernels = {name for name, tensor in own.items() if tensor.ndim == 4 and tensor.shape[-1] == 3}
        assert kernels == {"conv2.weight", *(f"layer{stage + 1}.0.conv2.weight" for stage in range(wide))}
