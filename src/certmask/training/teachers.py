"""Teachers: trained networks whose answers about what another one is shown are part of what it learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from certmask.backends import is_compilable
from certmask.errors import CertmaskError
from certmask.images import fill_for
from certmask.zoo import Card, load_checkpoint


class Teacher:
    """One trained network, which learns nothing any more; it looks in its own size, with its own colours and fill."""

    def __init__(self, checkpoint: Path, device: torch.device, compiled: bool = False) -> None:
        self.model, self.card = load_checkpoint(checkpoint)
        self.model.to(device).to(memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        self.network: Callable[[Tensor], Tensor] = (
            torch.compile(self.model) if compiled and is_compilable(self.model) else self.model
        )
        self.shift, self.scale, self.fill = (
            torch.tensor(colour, device=device).view(1, 3, 1, 1)
            for colour in (self.card.mean, self.card.std, fill_for(self.model, self.card.mean))
        )

    def answers(self, pictures: Tensor, hidden: Tensor) -> Tensor:
        """Probabilities ``[n, classes]`` about pictures ``[n, 3, …]`` with the pixels ``[n, 1, …]`` that are hidden."""
        if pictures.shape[2:] != self.card.size:
            pictures = functional.interpolate(pictures, self.card.size, mode="bicubic", antialias=True).clamp(0, 1)
            hidden = functional.interpolate(hidden.float(), self.card.size, mode="nearest-exact") > 0
        normal = (torch.where(hidden, self.fill, pictures) - self.shift) / self.scale
        with torch.autocast(normal.device.type, dtype=torch.bfloat16, enabled=normal.is_cuda):
            logits = self.network(normal.contiguous(memory_format=torch.channels_last))
        return logits.float().softmax(dim=1)


class Teachers:
    """Several of them, who say what they say on average; each sees no more of a picture than the one who learns."""

    def __init__(
        self, checkpoints: Sequence[Path], classes: Sequence[str], device: str, compiled: bool = False
    ) -> None:
        self.each = [Teacher(checkpoint, torch.device(device), compiled) for checkpoint in checkpoints]
        for checkpoint, card in zip(checkpoints, self.cards, strict=True):
            if card.classes != tuple(classes):
                raise CertmaskError(
                    f"expected a teacher of the classes {', '.join(classes[:3])} …, "
                    f"got {', '.join(card.classes[:3])} … in {checkpoint}"
                )

    @property
    def cards(self) -> list[Card]:
        return [teacher.card for teacher in self.each]

    def describe(self) -> list[str]:
        """Who they are, for the card of the network that they teach."""
        return [f"{card.architecture}, sha256 {card.sha256[:16]}" for card in self.cards]

    @torch.no_grad()
    def answers(self, shown: Tensor, pictures: Tensor) -> Tensor:
        """Probabilities ``[n, classes]`` about views ``[n, 3, height, width]`` of pictures, of which each has several.

        All views of a kind stand together, as the pictures do.
        """
        whole = pictures.repeat(len(shown) // len(pictures), 1, 1, 1)
        hidden = (shown != whole).any(dim=1, keepdim=True)
        return torch.stack([teacher.answers(whole, hidden) for teacher in self.each]).mean(dim=0)
