"""Your own network behind a defence: it answers, certifies, and says why. Run: python examples/own_model.py"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import certmask as cm

COLOURS = ("red", "green", "blue")
PATCH = cm.Patch(6, 6)


class ColourNet(nn.Module):
    """Put yours here: anything that maps images ``[n, 3, height, width]`` to logits ``[n, classes]``.

    This one names the colour that a picture has most of; its weights are fixed, so that there is nothing to train.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(50 * self.pool(images).flatten(1))
        return logits


def pictures() -> Tensor:
    """A picture that is a little more red than green everywhere, and one whose left half is green, the rest red."""
    reddish = torch.tensor([0.32, 0.30, 0.10]).view(3, 1, 1).expand(3, 32, 32)
    halves = torch.zeros(3, 32, 32)
    halves[1, :, :15], halves[0, :, 15:] = 1, 1
    return torch.stack([reddish, halves])


def main() -> None:
    network, images = ColourNet(), pictures()
    shield = cm.Defence(network, PATCH, size=32, class_names=COLOURS)  # the default rule and the masks that suit it
    # For a network on a GPU, or one that wants normalized images: Defence(..., device="cuda", mean=..., std=...).

    proof = shield.certify(images, labels=[0, 0])  # both are red
    for name, certificate in zip(("reddish", "halves"), proof.certificates, strict=True):
        print(f"{name}: {certificate.sentence}")

    attacked = images[:1].clone()
    attacked[0, :, 3:9, 20:26] = torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)  # a green patch somewhere on it
    print("the network alone says", COLOURS[int(network(attacked).argmax())])
    answer = shield(attacked)
    print(f"the defence says {COLOURS[int(answer.labels[0])]}, after {int(answer.passes[0])} passes")
    print("because", shield.explain(attacked)[0].why(COLOURS))


if __name__ == "__main__":
    main()
