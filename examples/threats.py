"""Hold off more than one square: two stickers, a strip, a patch of unknown size: python examples/threats.py

The network of this example says which colour a picture has most of.
"""

from __future__ import annotations

import torch
from torch import Tensor

import certmask as cm

SIZE = 32
NAMES = ("red", "green", "blue")


def most_colour(images: Tensor) -> Tensor:
    """Logits from the mean colour."""
    return 30 * images.mean(dim=(2, 3))


def pictures() -> Tensor:
    """A red square on green, fainter in the second picture."""
    images = torch.tensor([0.0, 0.08, 0.0]).view(1, 3, 1, 1).repeat(2, 1, SIZE, SIZE)
    images[:, :, 3:29, 3:29] = 0
    images[:, 0, 3:29, 3:29] = torch.tensor([1.0, 0.09]).view(2, 1, 1)
    return images


def main() -> None:
    images, labels = pictures(), [0, 0]
    for threat in (cm.Patch(6, 6), cm.Patch(6, 6, count=2), cm.AnyRectangle(36), cm.UpTo(12, (4, 8, 12))):
        cover = cm.zoom_cover(SIZE, threat, levels=(5,))
        shield = cm.Defence(most_colour, cover, "zoom", size=SIZE, class_names=NAMES, batch=64)
        for picture, certificate in zip(("strong", "faint"), shield.certify(images, labels).certificates, strict=True):
            print(f"{picture}: {certificate.sentence.split(':')[0]}")

    shield = cm.Defence(most_colour, cm.Patch(6, 6, count=2), "pair-detection", size=SIZE, class_names=NAMES, batch=64)
    attacked = images[:1].clone()
    attacked[:, :, 8:14, 8:14] = attacked[:, :, 18:24, 18:24] = torch.tensor([0.0, 1.0, 1.0]).view(3, 1, 1)
    answer = shield(attacked)
    print(f"two stickers: {NAMES[int(answer.labels[0])]}{', with an alert' if answer.alerts[0] else ''}")


if __name__ == "__main__":
    main()
