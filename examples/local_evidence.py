"""A network with local evidence of your own behind PatchGuard. Run: python examples/local_evidence.py"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import certmask as cm

COLOURS = ("red", "green", "blue")
PATCH = 5


class SmallCells(nn.Module):
    """Put yours here: ``local`` gives the logits of every cell, ``[n, classes, rows, columns]``.

    Each cell of this one sees 4×4 pixels and says how red, green and blue they are; its weights are fixed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 3, 4, stride=4, bias=False)
        self.look.weight.data = 10 / 16 * torch.eye(3).view(3, 3, 1, 1).expand(3, 3, 4, 4).clone()

    def local(self, images: Tensor) -> Tensor:
        logits: Tensor = self.look(images)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.local(images).mean(dim=(2, 3))


def main() -> None:
    network = SmallCells()
    rows, _ = cm.LocalClassifier(network, 32).fields
    print(f"{rows.cells}×{rows.cells} cells, each sees {rows.size}×{rows.size} pixels")

    image = torch.tensor([0.4, 0.3, 0.1]).view(1, 3, 1, 1).expand(1, 3, 32, 32).clone()  # a little more red than green
    attacked = image.clone()
    attacked[0, :, 6:11, 6:11] = torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)  # a green patch
    for rule in (cm.RobustMasking(PATCH), cm.ClippedBagNet(PATCH)):
        shield = cm.Defence(network, rule, size=32, class_names=COLOURS)
        (certificate,) = shield.certify(image, labels=[0]).certificates
        answer = COLOURS[int(shield(attacked).labels[0])]
        print(f"{rule.name}: {'certified' if certificate.holds else 'not certified'}, {answer} under attack")


if __name__ == "__main__":
    main()
