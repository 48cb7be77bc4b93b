"""The network as an attacker sees it: differentiable, masks included, and never the deployed object itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from certmask.classifier import Classifier, Colour, weights_digest
from certmask.covers import Cover
from certmask.engine.masking import MaskTable
from certmask.errors import AttackError
from certmask.geometry import IntArray


class Surrogate:
    """Logits of masked views with gradients, on a copy of the network: the classifier's state is never touched.

    Computes in fp32 on a CPU and in bf16 on a GPU. What it says guides an attack and decides nothing.
    """

    def __init__(
        self,
        classifier: Classifier,
        covers: Sequence[Cover] = (),
        *,
        network: nn.Module | None = None,
        fill: Colour | None = None,
    ) -> None:
        network = _own_network(classifier) if network is None else _checked_network(network, classifier)
        self.device, self.classes, self.size = classifier.device, classifier.classes, classifier.size
        network = copy.deepcopy(network).float().eval().requires_grad_(False).to(self.device)
        self._network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._masks = MaskTable(covers, classifier.size, self.device)
        self._shift, self._scale, self._fill = (
            torch.tensor(colour, device=self.device).view(1, 3, 1, 1)
            for colour in (classifier.mean, classifier.std, classifier.mean if fill is None else fill)
        )

    def numbers(self, cover: Cover) -> IntArray:
        """The number that each mask of a cover has here; -1 always stands for "no mask"."""
        return self._masks.index(cover)

    def __call__(self, pictures: Tensor, pairs: Tensor) -> Tensor:
        """Logits ``[n, views, classes]`` of pictures ``[n, 3, H, W]`` under pairs of masks ``[n, views, 2]``."""
        count, views = pairs.shape[:2]
        seen = self._masked(pictures, pairs).flatten(0, 1)
        normal = ((seen - self._shift) / self._scale).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self._network(normal)
        return logits.float().view(count, views, -1)  # type: ignore[no-any-return]

    def _masked(self, pictures: Tensor, pairs: Tensor) -> Tensor:
        """``[n, views, 3, H, W]``: the fill colour wherever one of the two masks lies."""
        rows, columns = self._masks.rows[pairs], self._masks.columns[pairs]
        hidden = (rows[..., :, None] & columns[..., None, :]).any(dim=2)
        return torch.where(hidden[:, :, None], self._fill[None], pictures[:, None])


def _own_network(classifier: Classifier) -> nn.Module:
    if not isinstance(classifier.model, nn.Module):
        raise AttackError(
            f"expected a torch network for gradients, got {classifier.name} without one: "
            "pass network=… or use random search"
        )
    return classifier.model


def _checked_network(network: nn.Module, classifier: Classifier) -> nn.Module:
    if weights_digest(network) != classifier.weights:
        raise AttackError(f"expected the network that {classifier.name} was made from, got other weights")
    return network
