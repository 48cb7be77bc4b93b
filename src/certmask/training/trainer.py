"""Training with occlusion: epochs, checkpoints, and a resume that ends with the same weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from certmask.backends import is_compilable
from certmask.errors import CertmaskError
from certmask.images import Colour, fill_for
from certmask.training.augmentation import random_band
from certmask.training.lessons import Lessons
from certmask.training.loss import loss_of
from certmask.training.recipe import PROVABLE, Recipe
from certmask.training.showing import Lesson, Showing
from certmask.training.teachers import Teachers

History = list[dict[str, float]]
CHECK_BATCH = 256


class Trainer:
    """Trains a network on lessons; after every epoch a checkpoint is written from which the next run goes on.

    ``origin`` says what the weights rest on beside the recipe; a run goes on only where all of it is the same.
    There are ``teachers`` if the recipe asks for what they say, and only then.
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
        teachers: Teachers | None = None,
    ) -> None:
        if (teachers is None) == (recipe.taught > 0):
            raise CertmaskError(
                f"expected teachers for a recipe with something taught, and for no other, got {recipe.taught} of a "
                f"target taught by {'nobody' if teachers is None else ', '.join(teachers.describe())}"
            )
        self.device = torch.device(device)
        self.loss = loss_of(recipe, model, lessons.size)
        self.model = model.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        compiled = compiled and is_compilable(model)
        self.network: Callable[[Tensor], Tensor] = torch.compile(self.loss.forward) if compiled else self.loss.forward
        self.lessons, self.recipe, self.folder, self.teachers = lessons, recipe, folder, teachers
        self.shift, self.scale, self.fill = (
            torch.tensor(colour, device=self.device).view(1, 3, 1, 1) for colour in (mean, std, fill_for(model, mean))
        )
        self.average = _averaged(self.model, recipe.average)
        self.answers: Callable[[Tensor], Tensor] = self.trained.local if recipe.loss == PROVABLE else self.trained  # type: ignore[assignment]
        self.agreeing: Callable[[Tensor], Tensor] = torch.compile(self.answers) if compiled else self.answers
        self.showing = Showing(recipe, self.model, lessons.size, len(lessons.labels), self.fill, self._losses)
        self.origin = {**asdict(recipe), **(origin or {})}
        self.optimizer = _optimizer(self.model, recipe)
        self.history: History = []
        self.seconds = 0.0

    @property
    def trained(self) -> nn.Module:
        """The network that is kept: the average of the weights, where there is one."""
        return self.model if self.average is None else self.average.module

    def train(self, held_out: Lessons | None, progress: Callable[[dict[str, float]], None]) -> History:
        """Train the epochs that are not done yet."""
        self._resume()
        while len(self.history) < self.recipe.epochs:
            began = time.perf_counter()
            entry = self._epoch(len(self.history))
            self.seconds += time.perf_counter() - began
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
        batches = self.lessons.batches(order, self.recipe.batch, self.device)
        for step, (images, labels) in enumerate(batches):
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.rate_at(epoch + step / steps)
            photos = order[step * self.recipe.batch :][: len(labels)].to(self.device)
            loss, share = self._learn(self.showing.varied(images, labels, photos, chance), chance)
            total += loss * len(labels)
            right += share * len(labels)
        count = len(order)
        mean_loss = total.item() / count
        if not torch.isfinite(torch.tensor(mean_loss)):
            raise CertmaskError(
                f"expected a finite training loss, got {mean_loss} in epoch {epoch + 1}: lower the rate"
            )
        rate = self.recipe.rate_at(epoch)
        return {"epoch": epoch + 1, "rate": rate, "loss": mean_loss, "training_accuracy": right.item() / count}

    def _learn(self, lesson: Lesson, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """One step; the mean loss over all views of a batch, and the share of them that was right before it."""
        shown, pairs = self.showing.occluded(lesson, chance)
        shown = torch.cat([shown, lesson.images]) if self.recipe.whole else shown
        labels = lesson.labels.repeat(len(shown) // len(lesson.labels))
        logits = self.loss.logits(self._outputs(shown), labels)
        targets = self._targets(lesson, shown, logits, labels)
        each = nn.functional.cross_entropy(logits, targets, label_smoothing=self.recipe.smoothing, reduction="none")
        loss = each.mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        self.showing.remember(lesson, pairs, each.detach())
        return loss.detach(), (logits.argmax(dim=1) == labels).float().mean()

    def _targets(self, lesson: Lesson, shown: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """What each view should be answered with: its label ``[n]``, or shares of the classes ``[n, classes]``."""
        targets = self._agreed(lesson, logits, labels) if self.recipe.agreement else labels
        if self.teachers is None:
            return targets
        shares = targets if self.recipe.agreement else nn.functional.one_hot(labels, logits.shape[1]).float()
        return torch.lerp(shares, self.teachers.answers(shown, lesson.images), self.recipe.taught)

    @torch.no_grad()
    def _agreed(self, lesson: Lesson, logits: Tensor, labels: Tensor) -> Tensor:
        """Targets ``[n, classes]``: of masked views partly the answer about the whole picture; of that, the label."""
        count, share = len(lesson.labels), self.recipe.agreement
        hard = nn.functional.one_hot(labels, logits.shape[1]).float()
        if self.average is None:
            answers = logits[-count:].softmax(dim=1)
        else:
            answers = self._outputs(lesson.images, self.agreeing).float().softmax(dim=1)
        masked = self.recipe.views * count
        hard[:masked] = (1 - share) * hard[:masked] + share * answers.repeat(self.recipe.views, 1)
        return hard

    def _losses(self, images: Tensor, labels: Tensor) -> Tensor:
        """One loss per image of a batch that holds several copies of the labelled one, of the network as it answers."""
        self.model.eval()
        labels = labels.repeat(len(images) // len(labels))
        logits = self.loss.logits(self._outputs(images), labels)
        self.model.train()
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    def _outputs(self, images: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        normal = ((images - self.shift) / self.scale).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            return (self.network if network is None else network)(normal)

    @torch.inference_mode()
    def accuracy(self, lessons: Lessons) -> float:
        """Share of photos answered rightly, without any mask; of a network for bands, on one band of each.

        The bands are drawn by the recipe's seed, the same after every epoch.
        """
        self.trained.eval()
        order, right = torch.arange(len(lessons.labels)), torch.zeros((), device=self.device)
        chance = torch.Generator().manual_seed(self.recipe.seed)
        for images, labels in lessons.batches(order, CHECK_BATCH, self.device):
            shown = images if self.recipe.band is None else random_band(images, self.recipe.band, self.fill, chance)
            right += (self.loss.scores(self._outputs(shown, self.answers)).argmax(dim=1) == labels).sum()
        return right.item() / len(order)

    def _save(self) -> None:
        """Write the state beside the old one, then put it in its place: a kill leaves one of them whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "origin": json.dumps(self.origin),
            "average": None if self.average is None else self.average.state_dict(),
            "recall": None if self.showing.recall is None else self.showing.recall.losses,
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
        self.history, self.seconds = state["history"], state["seconds"]
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.showing.recall is not None:
            self.showing.recall.losses = state["recall"]


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Weight decay pulls at matrices and kernels only, not at biases and norms."""
    learnt = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learnt if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in learnt if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if recipe.optimizer == "adamw":
        fused = all(p.is_cuda for p in learnt)
        return torch.optim.AdamW(groups, lr=recipe.rate, betas=(recipe.momentum, 0.999), fused=fused)
    nesterov = recipe.schedule == "cosine" and recipe.momentum > 0
    return torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=nesterov)


def _averaged(model: nn.Module, decay: float) -> AveragedModel | None:
    """A running average of a network's weights and statistics, which answers as it is: never in training mode."""
    if not decay:
        return None
    running = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(model, multi_avg_fn=running, use_buffers=True).eval()
