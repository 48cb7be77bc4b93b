"""Training with occlusion: epochs, checkpoints, and a resume that ends with the same weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from certmask.backends import is_compilable
from certmask.classifier import Colour, fill_for
from certmask.errors import CertmaskError
from certmask.training.augmentation import greedy_cutout, random_band, random_cutout, random_shift, random_window
from certmask.training.lessons import Lessons
from certmask.training.loss import loss_of
from certmask.training.recipe import Recipe

History = list[dict[str, float]]
CHECK_BATCH = 256


class Trainer:
    """Trains a network on lessons; after every epoch a checkpoint is written from which the next run goes on.

    ``origin`` says what the weights rest on beside the recipe; a run goes on only where all of it is the same.
    """

    def __init__(
        self,
        model: nn.Module,
        lessons: Lessons,
        recipe: Recipe,
        folder: Path,
        *,
        mean: Colour,
        std: Colour,
        device: str,
        compiled: bool = False,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.loss = loss_of(recipe, model, lessons.size)
        self.model = model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        compiled = compiled and is_compilable(model)
        self.network: Callable[[Tensor], Tensor] = torch.compile(self.loss.forward) if compiled else self.loss.forward
        self.lessons, self.recipe, self.folder = lessons, recipe, folder
        self.shift, self.scale, self.fill = (
            torch.tensor(colour, device=self.device).view(1, 3, 1, 1) for colour in (mean, std, fill_for(model, mean))
        )
        self.origin = {**asdict(recipe), **(origin or {})}
        self.optimizer = _optimizer(self.model, recipe)
        self.history: History = []

    def train(self, held_out: Lessons | None, progress: Callable[[dict[str, float]], None]) -> History:
        """Train the epochs that are not done yet."""
        self._resume()
        while len(self.history) < self.recipe.epochs:
            entry = self._epoch(len(self.history))
            if held_out is not None:
                entry[self.loss.accuracy] = self.accuracy(held_out)
            self.history.append(entry)
            self._save()
            progress(entry)
        return self.history

    def _epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the photos; everything random depends on the seed and the epoch alone."""
        chance = torch.Generator().manual_seed(1_000_003 * self.recipe.seed + epoch)
        torch.manual_seed(1_000_003 * self.recipe.seed + epoch)
        order = torch.randperm(len(self.lessons.labels), generator=chance)
        steps = max(len(order) // self.recipe.batch, 1)
        order = order[: steps * self.recipe.batch]
        self.model.train()
        total, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for step, (images, labels) in enumerate(self.lessons.batches(order, self.recipe.batch, self.device)):
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.rate_at(epoch + step / steps)
            shown = self._occluded(self._varied(images, chance), labels, chance)
            logits = self.loss.logits(self._outputs(shown), labels)
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=self.recipe.smoothing)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum()
        count = len(order)
        mean_loss = total.item() / count
        if not torch.isfinite(torch.tensor(mean_loss)):
            raise CertmaskError(
                f"expected a finite training loss, got {mean_loss} in epoch {epoch + 1}: lower the rate"
            )
        rate = self.recipe.rate_at(epoch)
        return {"epoch": epoch + 1, "rate": rate, "loss": mean_loss, "training_accuracy": right.item() / count}

    def _varied(self, images: Tensor, chance: torch.Generator) -> Tensor:
        """Mirrored with probability one half, moved and seen through a window, as the recipe says."""
        if self.recipe.flip:
            mirrored = torch.rand(len(images), 1, 1, 1, generator=chance).to(self.device) < 0.5
            images = torch.where(mirrored, images.flip(3), images)
        if self.recipe.shift:
            images = random_shift(images, self.recipe.shift, chance)
        return random_window(images, self.recipe.zoom, chance) if self.recipe.zoom < 1 else images

    def _occluded(self, images: Tensor, labels: Tensor, chance: torch.Generator) -> Tensor:
        if self.recipe.cutout == "random":
            return random_cutout(images, self.recipe, self.fill, chance)
        if self.recipe.band is not None:
            return random_band(images, self.recipe.band, self.fill, chance)
        if self.recipe.cutout == "greedy":
            self.model.eval()
            images = greedy_cutout(images, lambda tried: self._losses(tried, labels), self.recipe, self.fill, chance)
            self.model.train()
        return images

    def _losses(self, images: Tensor, labels: Tensor) -> Tensor:
        """One loss per image of a batch that holds several copies of the labelled one."""
        labels = labels.repeat(len(images) // len(labels))
        return nn.functional.cross_entropy(self.loss.logits(self._outputs(images), labels), labels, reduction="none")

    def _outputs(self, images: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        normal = ((images - self.shift) / self.scale).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            return (network or self.network)(normal)

    @torch.inference_mode()
    def accuracy(self, lessons: Lessons) -> float:
        """Share of photos answered rightly, without any mask; of a network for bands, on one band of each.

        The bands are drawn by the recipe's seed, the same after every epoch.
        """
        self.model.eval()
        order, right = torch.arange(len(lessons.labels)), torch.zeros((), device=self.device)
        chance = torch.Generator().manual_seed(self.recipe.seed)
        for images, labels in lessons.batches(order, CHECK_BATCH, self.device):
            shown = images if self.recipe.band is None else random_band(images, self.recipe.band, self.fill, chance)
            right += (self.loss.scores(self._outputs(shown, self.loss.forward)).argmax(dim=1) == labels).sum()
        return right.item() / len(order)

    def _save(self) -> None:
        """Write the state beside the old one, then put it in its place: a kill leaves one of them whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "origin": json.dumps(self.origin),
        }
        torch.save(state, self.folder / "last.pt.part")
        os.replace(self.folder / "last.pt.part", self.folder / "last.pt")

    def _resume(self) -> None:
        path = self.folder / "last.pt"
        if not path.is_file():
            return
        try:
            state: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
            origin = json.loads(state["origin"])
        except Exception as error:
            raise CertmaskError(f"expected a training state in {path}, got {type(error).__name__}") from None
        mine = json.loads(json.dumps(self.origin))
        for name in mine:
            if origin.get(name) != mine[name]:
                raise CertmaskError(
                    f"expected to continue {path} with the same recipe, start and photos, got {name} {mine[name]}, "
                    f"where it has {origin.get(name)}"
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = state["history"]


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Weight decay pulls at matrices and kernels only, not at biases and norms."""
    learnt = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learnt if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in learnt if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.rate, betas=(recipe.momentum, 0.999))
    nesterov = recipe.schedule == "cosine" and recipe.momentum > 0
    return torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=nesterov)
