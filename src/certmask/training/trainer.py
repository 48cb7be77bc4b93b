"""Training with occlusion: epochs, checkpoints, and a resume that ends with the same weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from certmask.classifier import Colour
from certmask.data import Dataset
from certmask.errors import CertmaskError
from certmask.geometry import Size
from certmask.training.cutout import greedy_cutout, random_cutout
from certmask.training.recipe import Recipe

History = list[dict[str, float]]
MEMORY = 16 << 30


class Photos:
    """A data set as bytes in memory, ``[n, 3, height, width]``; an error if it would not fit."""

    def __init__(self, dataset: Dataset, size: Size, progress: Callable[[int], None]) -> None:
        need = len(dataset) * 3 * size[0] * size[1]
        if need > MEMORY:
            raise CertmaskError(
                f"expected training photos of at most {MEMORY >> 30} GiB as bytes, got {need >> 30} GiB"
            )
        self.pixels = torch.empty(len(dataset), 3, *size, dtype=torch.uint8)
        for number, image in enumerate(dataset.tensors(size)):
            self.pixels[number] = (image * 255).round().to(torch.uint8)
            progress(1)
        self.labels = torch.tensor([sample.label for sample in dataset.samples])

    def batches(self, order: Tensor, batch: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in the given order, on the device, in [0, 1]."""
        for part in torch.split(order, batch):
            yield self.pixels[part].to(device).float() / 255, self.labels[part].to(device)


class Trainer:
    """Trains a network on photos; after every epoch a checkpoint is written from which the next run goes on."""

    def __init__(
        self, model: nn.Module, photos: Photos, recipe: Recipe, folder: Path, *, mean: Colour, std: Colour, device: str
    ) -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.photos, self.recipe, self.folder = photos, recipe, folder
        self.fill = torch.tensor(mean, device=self.device).view(1, 3, 1, 1)
        self.scale = torch.tensor(std, device=self.device).view(1, 3, 1, 1)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=recipe.rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, recipe.decay_every, recipe.decay)
        self.history: History = []

    def run(self, validation: Photos | None, progress: Callable[[dict[str, float]], None]) -> History:
        """Train the epochs that are not done yet."""
        self._resume()
        while len(self.history) < self.recipe.epochs:
            entry = self._epoch(len(self.history))
            if validation is not None:
                entry["validation_accuracy"] = self.accuracy(validation)
            self.history.append(entry)
            self._save()
            progress(entry)
        return self.history

    def _epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the photos; everything random depends on the seed and the epoch alone."""
        chance = torch.Generator().manual_seed(1_000_003 * self.recipe.seed + epoch)
        torch.manual_seed(1_000_003 * self.recipe.seed + epoch)
        order = torch.randperm(len(self.photos.labels), generator=chance)
        rate = self.optimizer.param_groups[0]["lr"]
        self.model.train()
        total, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for images, labels in self.photos.batches(order, self.recipe.batch, self.device):
            if self.recipe.flip:
                mirrored = torch.rand(len(images), 1, 1, 1, generator=chance).to(self.device) < 0.5
                images = torch.where(mirrored, images.flip(3), images)  # noqa: PLW2901
            logits = self._logits(self._occluded(images, labels, chance))
            loss = nn.functional.cross_entropy(logits.float(), labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum()
        self.schedule.step()
        count = len(order)
        mean_loss = total.item() / count
        if not torch.isfinite(torch.tensor(mean_loss)):
            raise CertmaskError(
                f"expected a finite training loss, got {mean_loss} in epoch {epoch + 1}: lower the rate"
            )
        return {"epoch": epoch + 1, "rate": rate, "loss": mean_loss, "training_accuracy": right.item() / count}

    def _occluded(self, images: Tensor, labels: Tensor, chance: torch.Generator) -> Tensor:
        if self.recipe.cutout == "random":
            return random_cutout(images, self.recipe, self.fill, chance)
        if self.recipe.cutout == "greedy":
            self.model.eval()
            losses = lambda batch: nn.functional.cross_entropy(self._logits(batch).float(), labels, reduction="none")  # noqa: E731
            images = greedy_cutout(images, losses, self.recipe, self.fill, chance)
            self.model.train()
        return images

    def _logits(self, images: Tensor) -> Tensor:
        normal = ((images - self.fill) / self.scale).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            logits: Tensor = self.model(normal)
        return logits

    @torch.inference_mode()
    def accuracy(self, photos: Photos) -> float:
        """Share of photos classified rightly, without any mask."""
        self.model.eval()
        order = torch.arange(len(photos.labels))
        right = [
            (self._logits(images).argmax(dim=1) == labels).sum()
            for images, labels in photos.batches(order, self.recipe.batch, self.device)
        ]
        return torch.stack(right).sum().item() / len(order)

    def _save(self) -> None:
        """Write the state beside the old one, then put it in its place: a kill leaves one of them whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "history": self.history,
            "recipe": json.dumps(asdict(self.recipe)),
        }
        torch.save(state, self.folder / "last.pt.part")
        os.replace(self.folder / "last.pt.part", self.folder / "last.pt")

    def _resume(self) -> None:
        path = self.folder / "last.pt"
        if not path.is_file():
            return
        try:
            state: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
            recipe = json.loads(state["recipe"])
        except Exception as error:
            raise CertmaskError(f"expected a training state in {path}, got {type(error).__name__}") from None
        mine = json.loads(json.dumps(asdict(self.recipe)))
        for name in mine:
            if recipe.get(name) != mine[name]:
                raise CertmaskError(
                    f"expected to continue {path} with the same recipe, got {name} {mine[name]}, where it has "
                    f"{recipe.get(name)}"
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.history = state["history"]
